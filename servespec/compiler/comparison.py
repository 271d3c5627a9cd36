"""Two plans beside each other, from their JSON forms: only what differs, as a document of its own.

Both are plans of format 1, or records, whose measured columns say nothing here.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from servespec.compiler.comparison_schema import COMPARISON_FORMAT

Json = Mapping[str, Any]

_ROW_NAME = ("runner", "routine", "mode", "query_len", "num_speculative_tokens")
_ROW_VALUES = ("sizes", "graphs", "active_loras", "ubatches")
_STEP_NAME = ("requests", "tokens", "drafted_at_requests")
_ABSENT: Json = {"sizes": [], "graphs": 0}
_RAN = ("mode", "padded_to_tokens", "padded_to_requests")


def compared(before: Json, after: Json, names: tuple[str, str]) -> dict[str, Any]:
    """The differences of two plans; ``names`` is what to call them."""
    return _document(
        names,
        resolved=list(_changes(_settings(before), _settings(after))),
        **_compared_graphs(before, after),
        launch={
            "argv": list(_changes(_flags(before["launch"]["argv"]), _flags(after["launch"]["argv"]))),
            "env": list(_changes(before["launch"]["env"], after["launch"]["env"])),
        },
    )


def graphs_compared(before: Json, after: Json, names: tuple[str, str]) -> dict[str, Any]:
    """The same of graphs, coverage and memory alone, which a plan's `stock` has too."""
    launch: Json = {"argv": [], "env": []}
    return _document(names, resolved=[], **_compared_graphs(before, after), launch=launch)


def _document(names: tuple[str, str], **parts: Any) -> dict[str, Any]:
    differences = [*parts["runners"], *parts["resolved"], *parts["memory"]]
    differences += [row for key in ("coverage", "launch") for rows in parts[key].values() for row in rows]
    return {
        "format": COMPARISON_FORMAT,
        "before": names[0],
        "after": names[1],
        "same": not differences,
        **parts,
    }


def _compared_graphs(before: Json, after: Json) -> dict[str, Any]:
    return {
        "runners": list(_runners(before["runners"], after["runners"])),
        "coverage": {
            "decode": list(_decode(before["coverage"]["decode"], after["coverage"]["decode"])),
            "prefill": list(_spans(before["coverage"]["prefill"], after["coverage"]["prefill"], "tokens")),
            "mixed": list(_mixed(before["coverage"]["mixed"], after["coverage"]["mixed"])),
        },
        "memory": list(_changes(_totals(before["memory"]), _totals(after["memory"]))),
    }


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Names in the order of the second, then those that only the first has; null is what a side does not have."""
    for name in dict.fromkeys((*after, *before)):
        if before.get(name) != after.get(name):
            yield {"name": name, "before": before.get(name), "after": after.get(name)}


# Graphs


def _runners(before: Sequence[Json], after: Sequence[Json]) -> Iterator[dict[str, Any]]:
    """Rows that capture other graphs."""
    old, new = _by_name(before), _by_name(after)
    for name in dict.fromkeys((*new, *old)):
        one, other = old.get(name), new.get(name)
        if _captures(one) == _captures(other):
            continue
        old_sizes, new_sizes = (set((row or _ABSENT)["sizes"]) for row in (one, other))
        yield {
            **dict(zip(_ROW_NAME, name, strict=True)),
            "unit": (other or one or _ABSENT)["unit"],
            "before": _extent(one),
            "after": _extent(other),
            "added_sizes": sorted(new_sizes - old_sizes),
            "dropped_sizes": sorted(old_sizes - new_sizes),
        }


def _by_name(rows: Iterable[Json]) -> dict[tuple[Any, ...], Json]:
    return {tuple(row[key] for key in _ROW_NAME): row for row in rows}


def _captures(row: Json | None) -> tuple[Any, ...]:
    """What a row captures; a row without graphs captures what an absent one does."""
    return () if row is None or not row["graphs"] else tuple(row[key] for key in _ROW_VALUES)


def _extent(row: Json | None) -> dict[str, Any]:
    found = row or _ABSENT
    return {
        "count": len(found["sizes"]),
        "graphs": found["graphs"],
        "largest": max(found["sizes"], default=None),
    }


# Coverage


def _decode(before: Sequence[Json], after: Sequence[Json]) -> Iterator[dict[str, Any]]:
    old, new = _by_routine(before), _by_routine(after)
    for name in dict.fromkeys((*new, *old)):
        for span in _spans(old.get(name, ()), new.get(name, ()), "requests"):
            yield {"runner": name[0], "routine": name[1], **span}


def _by_routine(rows: Iterable[Json]) -> dict[tuple[str, str], list[Json]]:
    found: dict[tuple[str, str], list[Json]] = {}
    for row in rows:
        found.setdefault((row["runner"], row["routine"]), []).append(row)
    return found


def _spans(before: Sequence[Json], after: Sequence[Json], unit: str) -> Iterator[dict[str, Any]]:
    """Sizes that run from another graph; neighbours alike in modes and padding are one span."""
    first, last = f"from_{unit}", f"to_{unit}"
    old_at, new_at = _lookup(before, first, last), _lookup(after, first, last)
    edges = sorted({edge for row in (*before, *after) for edge in (row[first], row[last] + 1)})
    span: dict[str, Any] = {}
    for start, end in pairwise(edges):
        old, new = old_at(start), new_at(start)
        if _ran(old) == _ran(new):
            continue
        found = {"before": _mode(old), "after": _mode(new), "padding": _padding(old, new)}
        if span and span[last] == start - 1 and found.items() <= span.items():
            span = {**span, last: end - 1}
            continue
        if span:
            yield span
        span = {first: start, last: end - 1, **found}
    if span:
        yield span


def _lookup(rows: Sequence[Json], first: str, last: str) -> Callable[[int], Json | None]:
    """The row of a size; ``rows`` do not overlap."""
    ordered = sorted(rows, key=lambda row: row[first])
    starts = [row[first] for row in ordered]

    def row_at(size: int) -> Json | None:
        at = bisect_right(starts, size) - 1
        return ordered[at] if at >= 0 and size <= ordered[at][last] else None

    return row_at


def _mode(row: Json | None) -> str | None:
    return None if row is None else str(row["mode"])


def _ran(row: Json | None) -> tuple[Any, ...]:
    return () if row is None else (*(row.get(key) for key in _RAN), row.get("query_len"))


def _padding(old: Json | None, new: Json | None) -> str:
    """Whether a batch of the same mode is padded to fewer tokens or to more; `none` where the mode differs."""
    if old is None or new is None or old["mode"] != new["mode"]:
        return "none"
    one, other = old["padded_to_tokens"] or 0, new["padded_to_tokens"] or 0
    return "less" if other < one else "more" if other > one else "same"


def _mixed(before: Sequence[Json], after: Sequence[Json]) -> Iterator[dict[str, Any]]:
    """Steps at the edges of tiers that run from another graph."""
    old, new = ({tuple(step[key] for key in _STEP_NAME): step for step in steps} for steps in (before, after))
    for name in dict.fromkeys((*new, *old)):
        one, other = old.get(name), new.get(name)
        if _ran(one) != _ran(other):
            found = {"before": _mode(one), "after": _mode(other), "padding": _padding(one, other)}
            yield dict(zip(_STEP_NAME, name, strict=True)) | found


# Memory, values, launch


def _totals(memory: Json | None) -> dict[str, Any]:
    if memory is None:
        return {}
    return {**memory["totals"], "fits": memory["fits"], "fits_at_start": memory["fits_at_start"]}


def _settings(plan: Json) -> dict[str, Any]:
    """Models, engine, device and every resolved value; who filled one in makes no difference."""
    inputs = {"model.id": plan["inputs"]["model"], "speculative.model": plan["inputs"]["draft"]}
    models = {path: one["id"] for path, one in inputs.items() if one is not None}
    engine = {f"engine.{key}": plan["engine"][key] for key in ("version", "facts_version", "lowering")}
    device = {f"device.{key}": value for key, value in plan["device"].items()}
    return {**models, **engine, **device, **{path: one["value"] for path, one in plan["resolved"].items()}}


def _flags(argv: Sequence[str]) -> dict[str, list[str]]:
    """The words of each flag; those before the first stand under ''."""
    found: dict[str, list[str]] = {"": []}
    flag = ""
    for word in argv:
        if word.startswith("--"):
            flag = word
            found.setdefault(flag, [])
        else:
            found[flag].append(word)
    return found

"""What differs between two plans, for the terminal, made from its JSON form."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from servespec.render.alignment import aligned

Json = Mapping[str, Any]

_GIB = 1 << 30
_LONGEST_VALUE = 60
_MOST_SIZES = 6


def comparison_text(comparison: Json, *, details: bool = False) -> str:
    """One block for each kind of difference; launch words and unshown totals only with ``details``."""
    before, after = comparison["before"], comparison["after"]
    if comparison["same"]:
        return f"{after} is the same as {before}\n"
    parts = [
        f"{before} -> {after}",
        _graphs(comparison["runners"]),
        _block("batches", _batches(comparison["coverage"])),
        _memory(comparison["memory"], details=details),
        _changes("resolved values", comparison["resolved"]),
        _launch(comparison["launch"], details=details),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(heading: str, lines: Iterable[str]) -> str:
    found = list(lines)
    return "\n".join([heading, *found]) if found else ""


# Graphs

_COLUMNS = ("runner", "routine", "mode", "q", "K", "before", "after", "added", "dropped")


def _graphs(rows: Sequence[Json]) -> str:
    if not rows:
        return "graphs: the same"
    return "\n".join(["graphs", aligned([_COLUMNS, *map(_cells, rows)])])


def _cells(row: Json) -> tuple[str, ...]:
    return (
        row["runner"],
        row["routine"],
        row["mode"],
        str(row["query_len"] or ""),
        "" if row["num_speculative_tokens"] is None else str(row["num_speculative_tokens"]),
        _extent(row["before"], row["unit"]),
        _extent(row["after"], row["unit"]),
        _sizes(row["added_sizes"]),
        _sizes(row["dropped_sizes"]),
    )


def _extent(side: Json, unit: str) -> str:
    if side["largest"] is None:
        return "-"
    times = "" if side["graphs"] == side["count"] else f" ({side['graphs']} graphs)"
    return f"{side['count']} @ {side['largest']} {unit}{times}"


def _sizes(sizes: Sequence[int]) -> str:
    """The sizes themselves while they are few, else their number and their ends."""
    if len(sizes) <= _MOST_SIZES:
        return " ".join(map(str, sizes)) or "-"
    return f"{len(sizes)}: {sizes[0]} ... {sizes[-1]}"


# Batches


def _batches(coverage: Json) -> Iterator[str]:
    names = dict.fromkeys((row["runner"], row["routine"]) for row in coverage["decode"])
    for name in names:
        rows = [row for row in coverage["decode"] if (row["runner"], row["routine"]) == name]
        yield from _spans(" ".join(name), rows, "requests")
    yield from _spans("prefill", coverage["prefill"], "tokens")
    for row in coverage["mixed"]:
        where = f"a step of {row['requests']} requests and {row['tokens']} tokens"
        yield f"  {where} at a tier edge: {_change(row)}"


def _spans(name: str, rows: Sequence[Json], unit: str) -> Iterator[str]:
    """Sizes whose mode changes, line by line; of those that are only padded otherwise, how many."""
    first, last = f"from_{unit}", f"to_{unit}"
    for row in rows:
        if row["padding"] == "none":
            yield f"  {name}, {_between(row[first], row[last])} {unit}: {_change(row)}"
    for padding, words in _PADDINGS.items():
        sizes = sum(row[last] - row[first] + 1 for row in rows if row["padding"] == padding)
        if sizes:
            yield f"  {name}: {words} at {sizes} {'size' if sizes == 1 else 'sizes'}"


_PADDINGS = {"less": "less padding", "more": "more padding", "same": "another graph"}


def _between(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _change(row: Json) -> str:
    return f"{row['before'] or 'none'} -> {row['after'] or 'none'}"


# Memory

_TOTALS = {
    "device_bytes": "the device's own",
    "budget_bytes": "to spend",
    "cudagraph_bytes": "CUDA graphs",
    "engine_estimate_bytes": "graphs, by the engine",
    "weights_bytes": "weights",
    "activation_peak_bytes": "peak of a step",
    "other_bytes": "context, buffers",
    "runtime_bytes": "a wide step, beyond the peak",
    "kv_cache_bytes": "KV cache",
    "kv_cache_tokens": "KV cache, tokens",
    "max_concurrency": "requests of the longest context",
    "kv_block_bytes": "one KV block",
    "fits": "fits",
    "fits_at_start": "fits at the start",
}


def _memory(changes: Sequence[Json], *, details: bool) -> str:
    """Totals that differ as they are shown; all of them with ``details``."""
    rows = [
        (
            _TOTALS.get(one["name"]) or str(one["name"]),
            _amount(one["name"], one["before"]),
            _amount(one["name"], one["after"]),
        )
        for one in changes
        if details or one["name"] in _TOTALS
    ]
    shown = [row for row in rows if details or row[1] != row[2]]
    if not shown:
        return "memory of one device: the same to two decimals" if changes else ""
    return "\n".join(["memory of one device", aligned([("", "before", "after"), *shown])])


def _amount(name: str, value: Any) -> str:
    if value is None:
        return "not known"
    if name.endswith("_bytes"):
        return f"{value / _GIB:.2f} GiB"
    return f"{value:,}" if isinstance(value, int) else str(value)


# Values and launch


def _joined(change: Json) -> Json:
    """The words of a flag as a command line has them."""
    words = {side: change[side] and " ".join(change[side]) for side in ("before", "after")}
    return {"name": change["name"] or "the program or its model", **words}


def _changes(heading: str, changes: Iterable[Json]) -> str:
    return _block(heading, (f"  {one['name']}: {_value(one['before'])} -> {_value(one['after'])}" for one in changes))


def _value(value: Any) -> str:
    if value is None:
        return "none"
    words = value if isinstance(value, str) else json.dumps(value)
    return words if len(words) <= _LONGEST_VALUE else words[:_LONGEST_VALUE] + "…"


def _launch(launch: Json, *, details: bool) -> str:
    if details:
        both = [_changes("launch", map(_joined, launch["argv"])), _changes("variables of the launch", launch["env"])]
        return "\n\n".join(part for part in both if part)
    names = [one["name"] or "the program or its model" for one in (*launch["argv"], *launch["env"])]
    return f"launch: {', '.join(names)} differ{'' if len(names) > 1 else 's'}" if names else ""

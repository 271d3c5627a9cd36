"""Prints what measured launches held beside what the memory ledger says of them, row by row.

usage: python tools/memory_table.py

The figures are read from ``docs/measurements/``.  Rows that no formula reaches stay in the table.
"""

import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from doc_pages.compiling import plan_of_values  # noqa: E402

from servespec.compiler.graphs.shape import Shape  # noqa: E402
from servespec.compiler.lower import Lowering  # noqa: E402
from servespec.compiler.memory.graph_pools import (  # noqa: E402
    GraphRemedy,
    added_by_capture,
    engine_estimate,
    graph_lines,
)
from servespec.compiler.memory.kv_cache import KvCache  # noqa: E402
from servespec.compiler.memory.ledger import Ledger, ledger_of  # noqa: E402
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line  # noqa: E402
from servespec.compiler.plan import Plan  # noqa: E402
from servespec.compiler.resolve.resolution import Resolution  # noqa: E402
from servespec.units import Bytes  # noqa: E402

GIB = 1 << 30
Json = Mapping[str, Any]

MEASUREMENTS = ROOT / "docs" / "measurements"
FILES = (
    "2026-11-29-h200-memory.json",
    "2026-11-29-h200-graph-memory.json",
    "published-gb200-memory.json",
    "published-sm120-memory.json",
)

GRAPHS_BOUND = 0.15
BOUNDS: Mapping[str, float] = {
    "estimate": 0.25,
    "weights": 0.01,
    "peak of a step": 0.05,
    "consumed": 0.02,
    "KV cache": 0.05,
    "KV tokens": 0.05,
    "a KV token": 0.01,
}
"""How far a figure may be off, as a share of what was measured; a graph figure is not named here."""

_SPARSE_BLOCKS = "workspaces of its block-sparse attention are not counted"
_ENCODERS = (
    "its encoders are not counted; without them the counted lines leave 27 % more tokens, so 20 GiB are not explained"
)
MISSED: Mapping[tuple[str, str], str] = {
    ("30B-A3B EAGLE3 K=7, stock", "added"): "objects of FULL graphs have no measurement of their own on an H200",
    ("DeepSeek-V4-Flash DSpark K=7, plan", "target PIECEWISE"): "0.33.0 has the attention output in the graph",
    ("DeepSeek-V4-Flash DSpark K=7 adaptive, plan", "target PIECEWISE"): "0.33.0 has the attention output in the graph",
    ("DeepSeek-V4-Flash DSpark K=7 adaptive, plan", "target FULL"): "one segment of converted logits, not two",
    ("MiniMax-M3 EAGLE3 K=3, stock", "target FULL"): _SPARSE_BLOCKS,
    ("MiniMax-M3 EAGLE3 K=3, plan", "target FULL"): _SPARSE_BLOCKS,
    ("MiniMax-M3 EAGLE3 K=3, stock", "added"): _SPARSE_BLOCKS,
    ("MiniMax-M3 EAGLE3 K=3, plan", "added"): _SPARSE_BLOCKS,
    ("MiniMax-M3 EAGLE3 K=3, stock", "estimate"): _SPARSE_BLOCKS,
    ("MiniMax-M3 EAGLE3 K=3, plan", "estimate"): _SPARSE_BLOCKS,
    ("MiniMax-M3 EAGLE3 K=3, stock", "KV tokens"): _ENCODERS,
    ("MiniMax-M3 EAGLE3 K=3, plan", "KV tokens"): _ENCODERS,
}
"""Rows that are further off than their bound, and why; one that comes within it has to leave this table."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure; ``is_fitted`` where a constant of the ledger was chosen by it.

    ``bound`` is what its file asks for, None where all of its name have the same.
    """

    name: str
    value: float
    unit: str
    is_fitted: bool
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One start-up: its spec, what was measured in it, and the engine's estimate of its graphs where that is given.

    ``is_stock`` takes the graphs of the unmodified engine, else those of the plan.
    """

    name: str
    file: str
    is_stock: bool
    target: Json
    draft: Json | None
    spec: Json
    figures: tuple[Figure, ...]
    given_estimate_gib: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A figure beside what is predicted; None where a part of it is not known."""

    launch: str
    file: str
    figure: Figure
    predicted: float | None

    @property
    def bound(self) -> float:
        return self.figure.bound or BOUNDS.get(self.figure.name, GRAPHS_BOUND)

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.figure.value - 1

    @property
    def is_within(self) -> bool:
        return self.error is not None and abs(self.error) <= self.bound


@dataclass(frozen=True, slots=True)
class Saving:
    """What remedies took away, one after the other, on an earlier grid without a limit of decode tokens."""

    launch: Launch
    before: frozenset[GraphRemedy]
    added: frozenset[GraphRemedy]
    measured_gib: float


def launches() -> Iterator[Launch]:
    for file in FILES:
        found = document(file)
        for one in found["launches"]:
            yield _launch(file, found["models"], one)


@cache
def document(file: str) -> Json:
    """What a file of measurements holds."""
    found: Json = json.loads((MEASUREMENTS / file).read_text(encoding="utf-8"))
    return found


def _launch(file: str, models: Json, one: Json) -> Launch:
    draft = one.get("draft")
    return Launch(
        name=one["name"],
        file=file,
        is_stock=one.get("graphs", "stock") == "stock",
        target=models[one["target"]],
        draft=None if draft is None else models[draft],
        spec=one["spec"],
        figures=tuple(_figure(name, value) for name, value in one["figures"].items()),
        given_estimate_gib=one.get("given", {}).get("estimate_gib"),
    )


def _figure(name: str, written: Json) -> Figure:
    unit = next(unit for unit in _UNITS if unit in written)
    value = written[unit] / GIB if unit == "bytes" else written[unit]
    return Figure(name, value, _UNITS[unit], bool(written.get("fitted")), written.get("bound"))


_UNITS: Mapping[str, str] = {"gib": "GiB", "bytes": "GiB", "tokens": "tokens", "token_bytes": "bytes"}
"""A figure's key in the file, and the unit that it is shown in."""


def savings() -> Iterator[Saving]:
    by_name = {launch.name: launch for launch in launches()}
    for file in FILES:
        for one in document(file).get("savings", ()):
            launch = by_name[one["launch"]]
            yield Saving(
                launch=_with_spec(launch, one["spec"]),
                before=frozenset(map(GraphRemedy, one["before"])),
                added=frozenset(map(GraphRemedy, one["added"])),
                measured_gib=one["gib"],
            )


def _with_spec(launch: Launch, sections: Json) -> Launch:
    return Launch(**{**_fields(launch), "spec": {**launch.spec, **sections}})


def _fields(launch: Launch) -> dict[str, Any]:
    return {name: getattr(launch, name) for name in Launch.__slots__}


def saved(saving: Saving) -> float:
    """GiB that the remedies take away, as predicted."""
    resolution, shapes, lowering = subject_of(saving.launch)
    with_and_without = (
        added_by_capture(resolution, graph_lines(resolution, shapes, lowering, remedies))
        for remedies in (saving.before, saving.before | saving.added)
    )
    without, with_them = with_and_without
    return (without - with_them) / GIB


def plan_of(launch: Launch) -> Plan:
    spec = {"servespec": 1, **launch.spec}
    spec["model"] = {"id": "target", **spec.get("model", {})}
    if launch.draft is not None:
        spec["speculative"] = {"model": "draft", **spec["speculative"]}
    spec["engine"] = {"version": "0.33.0", **spec.get("engine", {})}
    return plan_of_values(spec, launch.target, draft=launch.draft, with_stock=launch.is_stock)


Lines = tuple[MemoryLine, ...]
Subject = tuple[Resolution, tuple[Shape, ...], Lowering]


def subject_of(launch: Launch) -> Subject:
    """The graphs as that launch captured them; none of them bounded the KV splits as the extension does."""
    plan = plan_of(launch)
    if launch.is_stock:
        assert plan.stock is not None
        return plan.resolution, plan.stock.shapes, Lowering.NONE
    return plan.resolution, plan.graphs.shapes, Lowering.LEGACY


def rows() -> Iterator[Row]:
    for launch in launches():
        yield from rows_of(launch)


def rows_of(launch: Launch) -> Iterator[Row]:
    resolution, shapes, lowering = subject_of(launch)
    lines = graph_lines(resolution, shapes, lowering)
    estimate = engine_estimate(resolution, shapes, lines, lowering)
    ledger = ledger_of(resolution, lines, _given_estimate(launch) or estimate)
    assert ledger is not None
    for figure in launch.figures:
        if figure.name in _OF_LEDGER:
            value = _of_ledger(figure.name, ledger)
        elif figure.name == "estimate":
            value = estimate.size / GIB
        else:
            value = _of_graphs(figure.name, resolution, lines) / GIB
        yield Row(launch.name, launch.file, figure, value)


def _given_estimate(launch: Launch) -> MemoryLine | None:
    given = launch.given_estimate_gib
    if given is None:
        return None
    size = Bytes(int(given * GIB))
    return exact_line("the engine's own estimate of its graphs", Holder.ENGINE, Part.GRAPHS, size, "as it was logged")


_OWN_LINES: Mapping[str, str] = {"parallel hidden states kept": "parallel hidden states of the target"}
"""Figures that are one line of the ledger, and its owner."""
_OF_LEDGER = ("weights", "consumed", "peak of a step", "KV cache", "KV tokens", "a KV token", *_OWN_LINES)


def _of_ledger(name: str, ledger: Ledger) -> float | None:
    parts: Mapping[str, tuple[Part, ...]] = {
        "weights": (Part.WEIGHTS,),
        "consumed": (Part.WEIGHTS, Part.OTHER),
        "peak of a step": (Part.ACTIVATIONS,),
    }
    if name in _OWN_LINES:
        return sum(line.size for line in ledger.lines if line.owner == _OWN_LINES[name]) / GIB
    if name == "a KV token":
        return None if isinstance(ledger.kv, str) else _token_bytes(ledger.kv)
    missing = {line.part for line in ledger.unknown}
    if missing & set(parts.get(name, ())):
        return None
    if name in parts:
        return sum(ledger.of(part).size for part in parts[name]) / GIB
    if ledger.pinned_bytes is None and Part.WEIGHTS in missing:
        return None
    return ledger.cache.size / GIB if name == "KV cache" else ledger.tokens(ledger.cache.size)


def _token_bytes(kv: KvCache) -> float:
    return kv.block_bytes * kv.request_blocks / kv.request.max_model_len_tokens


def _of_graphs(name: str, resolution: Resolution, lines: Lines) -> int:
    if name == "added":
        return added_by_capture(resolution, lines)
    runner, mode = name.split()
    return sum(
        line.size
        for line in lines
        if line.owner.startswith(runner) and mode in line.owner and "objects" not in line.owner
    )


def median_error(found: tuple[Row, ...]) -> float:
    """Of rows that were not fitted and are no estimate of the engine's, whose error is another question."""
    return statistics.median(
        abs(row.error)
        for row in found
        if row.error is not None and not row.figure.is_fitted and row.figure.name != "estimate"
    )


def main() -> None:
    found = tuple(rows())
    for row in found:
        predicted, error = "not known", ""
        if row.predicted is not None and row.error is not None:
            predicted, error = f"{row.predicted:,.3f}".rstrip("0").rstrip("."), f"{row.error:+.0%}"
        verdict = "fitted" if row.figure.is_fitted else "within" if row.is_within else "missed"
        measured = f"{row.figure.value:,.3f}".rstrip("0").rstrip(".")
        print(f"{row.launch:45} {row.figure.name:17} {measured:>12} {predicted:>12} {error:>6} {verdict}")
    for saving in savings():
        value = saved(saving)
        error = f"{value / saving.measured_gib - 1:+.0%}"
        words = ", ".join(sorted(saving.added))
        print(f"{saving.launch.name:45} saved by {words:40} {saving.measured_gib:7.3f} {value:7.3f} {error:>6}")
    print(f"median error of rows that nothing was fitted on: {median_error(found):.1%}")


if __name__ == "__main__":
    main()

"""Prints what measured launches held beside what the memory ledger says of them, row by row.

usage: python tools/memory_table.py

The figures are read from ``docs/measurements/``.  Rows that no formula reaches stay in the table.
"""

import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from doc_pages.compiling import plan_of_values  # noqa: E402
from ruamel.yaml import YAML  # noqa: E402

from servespec.compiler.facts.graph_memory import BLAS_WORKSPACE  # noqa: E402
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
from servespec.compiler.remedies import graph_remedies  # noqa: E402
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
OWN_FILES = "*-memory-launches-*.json"
"""As `benchmarks/launches.py` writes them."""

GRAPHS_BOUND = 0.15
NOTHING_GIB = 0.1
"""How much may be predicted of what took nothing."""
BOUNDS: Mapping[str, float] = {
    "estimate": 0.25,
    "weights": 0.01,
    "peak of a step": 0.05,
    "consumed": 0.02,
    "held": 0.02,
    "KV cache": 0.05,
    "KV tokens": 0.05,
    "a KV token": 0.01,
}
"""How far a figure may be off, as a share of what was measured; a graph figure is not named here."""

_SPARSE_BLOCKS = "workspaces of its block-sparse attention are not counted"
_ENCODERS = (
    "its encoders are not counted; without them the counted lines leave 27 % more tokens, so 20 GiB are not explained"
)
_TWO_RANKS = "qwen3-8b K=3, 512 requests, extension, 2 ranks"
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
    (_TWO_RANKS, "held"): "0.6 GiB more are made after the profile run than on one rank; by what is not known",
    (_TWO_RANKS, "later steps FULL, all"): "not explained: other stages of two ranks are within 14 %",
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

    ``is_stock`` takes the graphs of the unmodified engine, else those of the plan; ``is_planned`` says that the launch
    was servespec's own, under the lowering of its spec.
    """

    name: str
    file: str
    is_stock: bool
    target: Json
    draft: Json | None
    spec: Json
    figures: tuple[Figure, ...]
    given_estimate_gib: float | None
    is_planned: bool = False


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
        """None also where nothing was taken, of which nothing is a share."""
        return None if self.predicted is None or not self.figure.value else self.predicted / self.figure.value - 1

    @property
    def is_within(self) -> bool:
        if self.predicted is not None and not self.figure.value:
            return self.predicted <= NOTHING_GIB
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
    yield from own_launches()


@dataclass(frozen=True, slots=True)
class Repeated:
    """A figure of launches that were the same but for their port."""

    launch: str
    name: str
    values: tuple[float, ...]
    unit: str

    @property
    def spread(self) -> float:
        """The widest difference, as a share of the smallest."""
        return max(self.values) / min(self.values) - 1


def own_launches() -> Iterator[Launch]:
    """Launches of `benchmarks/launches.py` that served; of those that are the same, the first."""
    yield from (same[0] for same in _same_launches())


def repeated() -> Iterator[Repeated]:
    for same in _same_launches():
        for figures in zip(*(launch.figures for launch in same), strict=True) if len(same) > 1 else ():
            yield Repeated(same[0].name, figures[0].name, tuple(one.value for one in figures), figures[0].unit)


def _same_launches() -> list[list[Launch]]:
    found: dict[str, list[Launch]] = {}
    for path in sorted(MEASUREMENTS.glob(OWN_FILES)):
        held = document(path.name)
        for one in held["launches"]:
            if one["exit_code"] == 0:
                launch = _own_launch(path.name, held["models"], one)
                found.setdefault(launch.name, []).append(launch)
    return list(found.values())


def _own_launch(file: str, models: Json, one: Json) -> Launch:
    written = YAML(typ="safe", pure=True).load(one["text"])
    del written["serve"]
    target, drafted = written["model"].pop("id"), written.get("speculative")
    return Launch(
        name=_title(target, written),
        file=file,
        is_stock=False,
        target=models[target],
        draft=None if drafted is None else models[drafted.pop("model")],
        spec=written,
        figures=tuple(_own_figures(one)),
        given_estimate_gib=None,
        is_planned=True,
    )


def _title(target: str, spec: Json) -> str:
    """What tells one of our launches from another."""
    ranks = spec.get("parallel", {}).get("tensor_parallel_size", 1)
    parts = (
        f"{Path(target).name} K={spec.get('speculative', {}).get('num_speculative_tokens', 0)}",
        f"{spec['scheduler']['max_num_seqs']} requests",
        "stock" if spec["engine"]["lowering"] == "none" else spec["engine"]["lowering"],
        *spec.get("remedies", ()),
        *((f"{ranks} ranks",) if ranks > 1 else ()),
    )
    return ", ".join(parts)


def _own_figures(one: Json) -> Iterator[Figure]:
    """Of the rank that held most, and of the engine's log."""
    said, ranks = one["measured"]["engine_said"], one["measured"]["ranks"]
    memory = max(
        (rank["memory"] for rank in ranks if rank["memory"]), key=lambda held: held["held_bytes"], default=None
    )
    if memory is not None:
        yield _measured("weights", memory["weights_bytes"])
        yield _measured("held", memory["held_bytes"])
    yield _measured("added", max(rank["graph_bytes"] for rank in ranks))
    for name, key in (("estimate", "graph_pool_estimate_bytes"), ("KV cache", "kv_cache_bytes")):
        yield _measured(name, said[key])
    yield Figure("KV tokens", said["kv_cache_tokens"], "tokens", is_fitted=False)
    for name, size in _stages(one).items():
        yield _measured(name, size)


def _stages(one: Json) -> Mapping[str, int]:
    """What the captures of a stage took in the allocator, outputs and workspaces with it, where they took most."""
    stages: dict[str, int] = {}
    for row in one["row_costs"]:
        costs = [cost["pool_bytes"] for cost in row["costs"] if cost is not None]
        if costs:
            name = f"{_STAGES[row['routine']]} {row['mode']}{_ALL}"
            stages[name] = stages.get(name, 0) + max(costs)
    return stages


_STAGES: Mapping[str, str] = {
    "piecewise": "target",
    "uniform_decode": "target",
    "step0_piecewise": "step 0",
    "step0_uniform": "step 0",
    "later_steps": "later steps",
}
_ALL = ", all"
"""What the lines of the ledger call the manager that captures a routine."""


def _measured(name: str, size_bytes: int) -> Figure:
    return Figure(name, size_bytes / GIB, "GiB", is_fitted=False)


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
                launch=replace(launch, spec={**launch.spec, **one["spec"]}),
                before=frozenset(map(GraphRemedy, one["before"])),
                added=frozenset(map(GraphRemedy, one["added"])),
                measured_gib=one["gib"],
            )
    yield from _own_savings(by_name)


def _own_savings(by_name: Mapping[str, Launch]) -> Iterator[Saving]:
    """Launches with a remedy beside the same launch without."""
    for name, launch in by_name.items():
        remedies = launch.spec.get("remedies", {}) if launch.is_planned else {}
        bare = by_name.get(name.removesuffix(", " + ", ".join(remedies))) if remedies else None
        if bare is not None:
            taken = (next(one.value for one in each.figures if one.name == "added") for each in (bare, launch))
            without, with_them = taken
            yield Saving(bare, frozenset(), frozenset(map(GraphRemedy, remedies)), without - with_them)


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
    """The graphs as that launch captured them; none but our own bounded the KV splits as the extension does."""
    plan = plan_of(launch)
    if launch.is_planned:
        return plan.resolution, plan.graphs.shapes, plan.lowered.lowering
    if launch.is_stock:
        assert plan.stock is not None
        return plan.resolution, plan.stock.graphs.shapes, Lowering.NONE
    return plan.resolution, plan.graphs.shapes, Lowering.LEGACY


@cache
def rows() -> tuple[Row, ...]:
    return tuple(row for launch in launches() for row in rows_of(launch))


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """What was captured in a launch beside what was foretold of it, and beside what the engine's estimate of it was."""

    captured: Row
    estimate: Row

    @property
    def estimate_error(self) -> float:
        return self.estimate.figure.value / self.captured.figure.value - 1


def graph_memory(found: tuple[Row, ...]) -> Iterator[GraphMemory]:
    """Of every launch that gave both."""
    by_figure = {(row.launch, row.figure.name): row for row in found}
    for (launch, name), row in by_figure.items():
        estimate = by_figure.get((launch, "estimate"))
        if name == "added" and row.error is not None and estimate is not None:
            yield GraphMemory(row, estimate)


def rows_of(launch: Launch) -> Iterator[Row]:
    resolution, shapes, lowering = subject_of(launch)
    lines = graph_lines(resolution, shapes, lowering, graph_remedies(resolution, shapes, lowering))
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
_OF_LEDGER = ("weights", "consumed", "held", "peak of a step", "KV cache", "KV tokens", "a KV token", *_OWN_LINES)


def _of_ledger(name: str, ledger: Ledger) -> float | None:
    parts: Mapping[str, tuple[Part, ...]] = {
        "weights": (Part.WEIGHTS,),
        "consumed": (Part.WEIGHTS, Part.OTHER),
        "held": (Part.WEIGHTS, Part.OTHER, Part.GRAPHS),
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
        return sum(line.size for line in ledger.lines if line.is_budgeted and line.part in parts[name]) / GIB
    if ledger.pinned_bytes is None and Part.WEIGHTS in missing:
        return None
    return ledger.cache.size / GIB if name == "KV cache" else ledger.tokens(ledger.cache.size)


def _token_bytes(kv: KvCache) -> float:
    return kv.block_bytes * kv.request_blocks / kv.request.max_model_len_tokens


def _of_graphs(name: str, resolution: Resolution, lines: Lines) -> int:
    if name == "added":
        return added_by_capture(resolution, lines)
    stage, mode = name.removesuffix(_ALL).rsplit(maxsplit=1)
    own = [line for line in lines if line.owner.startswith(stage) and "objects" not in line.owner]
    pools = sum(line.size for line in own if mode in line.owner)
    is_first = mode == "PIECEWISE" or not any("PIECEWISE" in line.owner for line in own)
    return pools + (_beside_pools(stage, lines) if name.endswith(_ALL) and is_first else 0)


def _beside_pools(stage: str, lines: Lines) -> int:
    """What a manager's first capture makes beside its pool: the target's outputs, and the workspace of its stream."""
    outputs = sum(line.size for line in lines if line.owner.startswith(stage) and "outputs" in line.owner)
    managers = {line.owner.partition(":")[0] for line in lines if "objects" in line.owner}
    workspaces = sum(line.size for line in lines if "workspace" in line.owner)
    streams = workspaces // BLAS_WORKSPACE.value
    has_own = streams == len(managers) or stage == "target"
    return outputs + (BLAS_WORKSPACE.value if has_own else 0)


def median_error(found: tuple[Row, ...]) -> float:
    """Of rows that were not fitted and are no estimate of the engine's, whose error is another question."""
    return statistics.median(
        abs(row.error)
        for row in found
        if row.error is not None and not row.figure.is_fitted and row.figure.name != "estimate"
    )


def main() -> None:
    found = rows()
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

"""Prints what measured launches held beside what the memory ledger says of them, row by row.

usage: python tools/memory_table.py

The figures are read from ``docs/measurements/``.  Rows that no formula reaches stay in the table.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

from doc_pages.compiling import plan_of_values
from measured_launches import GIB, WHOLE_STAGE, Figure, Launch, Saving, launches, savings

from servespec.compiler.facts.graph_memory import BLAS_WORKSPACE
from servespec.compiler.graphs.shape import Shape
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.activation_peak import STEP_LOW
from servespec.compiler.memory.engine_estimate import (
    added_by_capture,
    engine_estimate,
    left_by_profiling,
    profiles_graphs,
)
from servespec.compiler.memory.graph_lines import graph_lines, is_workspace
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.compiler.memory.kv_cache import KvCache
from servespec.compiler.memory.ledger import Ledger, ledger_of
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line
from servespec.compiler.memory.working import BEFORE_OWNER
from servespec.compiler.plan import Plan
from servespec.compiler.remedies import graph_remedies
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes

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


@dataclass(frozen=True, slots=True)
class Row:
    """A figure beside what is predicted; None where a part of it is not known.

    ``counted`` is what the known parts alone would make of it, None where they are all.
    """

    launch: str
    file: str
    figure: Figure
    predicted: float | None
    counted: float | None = None

    @property
    def bound(self) -> float:
        return self.figure.bound or BOUNDS.get(self.figure.name, GRAPHS_BOUND)

    @property
    def error(self) -> float | None:
        """None also where nothing was taken, of which nothing is a share."""
        return None if self.predicted is None or not self.figure.value else self.predicted / self.figure.value - 1

    @property
    def is_within(self) -> bool:
        if self.predicted is None:
            return False
        if abs(self.predicted - self.figure.value) <= self.figure.bound_gib:
            return True
        if not self.figure.value:
            return self.predicted <= NOTHING_GIB
        return self.error is not None and abs(self.error) <= self.bound


# Why rows are missed


_OTHER_DAY, _STOCK_30B = "30B-A3B EAGLE3 K=7, stock", "qwen3-30b-a3b K=7, 256 requests, stock"
_ONE_RANK = "qwen3-8b K=3, 512 requests, extension"
_TWO_RANKS = f"{_ONE_RANK}, 2 ranks"
_COMPILED_BEFORE = "qwen3-30b-a3b K=7, 256 requests, extension"
_LONG_30B = "qwen3-30b-a3b K=0, 256 requests, context 32768, extension"
_SMALL = (
    "qwen3-0.6b K=3, 512 requests, extension, one_capture_stream",
    "qwen3-0.6b K=3, 512 requests, context 32768, share 0.5, extension, one_capture_stream",
)
Cause = Callable[[], str]


def _row(launch: str, figure: str) -> Row:
    (found,) = (row for row in rows() if (row.launch, row.figure.name) == (launch, figure))
    return found


def _missing_gib(launch: str, figure: str) -> float:
    row = _row(launch, figure)
    assert row.predicted is not None, row
    return row.figure.value - row.predicted


def _call_or_not() -> str:
    (launch,) = (one for one in launches() if one.name == _STOCK_30B)
    (kept,) = (line.high for line in lines_of(launch) if "memory kept by capture outputs" in line.owner)
    return (
        f"the same launch took {_row(_OTHER_DAY, 'added').figure.value:.2f} GiB on another day; {kept / GIB:.2f} are "
        "what one attention call accumulates, which capture outputs keep or do not"
    )


def _small_model(launch: str) -> str:
    held, graphs = _missing_gib(launch, "held"), _missing_gib(launch, "added")
    share = held / _row(launch, "held").figure.value
    return (
        f"{held - graphs:.2f} GiB of context and {graphs:.2f} of graphs, which are {100 * share:.0f} % of a model this "
        "small"
    )


def made_before_capture_gib(name: str) -> float:
    """What is held beside graphs and was not consumed when the engine sized its KV cache."""
    (launch,) = (one for one in launches() if one.name == name)
    figures, ledger = {one.name: one.value for one in launch.figures}, plan_of(launch).ledger
    assert ledger is not None
    taken = sum(figures[one] for one in ("peak of a step", "estimate", "KV cache"))
    return figures["held"] - figures["added"] - (ledger.budget_bytes / GIB - taken)


def _before_capture() -> str:
    two, one = map(made_before_capture_gib, (_TWO_RANKS, _ONE_RANK))
    return (
        f"{two:.2f} GiB are made after the profile run and before the first capture, {one:.2f} on one rank; captures "
        "of both grow by what their pools do, so that it is no graph's; by what is not known"
    )


def _later(launch: str, words: str) -> str:
    """A launch that compiles is foretold."""
    (one,) = (one for one in launches() if one.name == launch)
    ledger = plan_of(one).ledger
    assert ledger is not None
    (low,) = (line.low for line in ledger.lines if line.owner == "peak of a step")
    return f"{low / (1 - STEP_LOW) / GIB:.2f} GiB are foretold of a launch that finds {words}"


def _said(words: str) -> Cause:
    return lambda: words


MISSED: Mapping[tuple[str, str], Cause] = {
    (_STOCK_30B, "added"): _call_or_not,
    (_COMPILED_BEFORE, "peak of a step"): partial(_later, _COMPILED_BEFORE, "its code in the cache, as this one did"),
    **{
        (launch, "peak of a step"): partial(_later, launch, "its code in the cache; of this one it is not known")
        for launch in (_TWO_RANKS, _LONG_30B)
    },
    (_TWO_RANKS, "held"): _before_capture,
    **{(launch, "held"): partial(_small_model, launch) for launch in _SMALL},
    **{
        (f"MiniMax-M3 EAGLE3 K=3, {graphs}", "KV tokens"): _said("its encoders are not counted")
        for graphs in ("stock", "plan")
    },
}
"""Rows that are further off than their bound, and why; one that comes within it has to leave this table."""


def saved(saving: Saving) -> float:
    """GiB that the remedies take away, as predicted."""
    resolution, shapes, lowering = subject_of(saving.launch)
    with_and_without = (
        added_by_capture(resolution, graph_lines(resolution, shapes, lowering, remedies), remedies)
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


def lines_of(launch: Launch) -> Lines:
    """What its graphs hold by the ledger, under its own remedies."""
    resolution, shapes, lowering = subject_of(launch)
    return graph_lines(resolution, shapes, lowering, graph_remedies(resolution, shapes, lowering))


def pool_bytes_of(launch: Launch, stage: str, lines: Lines) -> int:
    """What the captures of a manager reserve in the allocator, in both modes and beside its pool."""
    beside = _beside_pools(stage, lines, has_workspace=_has_workspace(launch))
    return sum(_pool_bytes(stage, mode, lines) for mode in ("PIECEWISE", "FULL")) + beside


def _has_workspace(launch: Launch) -> bool:
    """Whether the stream of all captures was profiled on, and has its workspace before the first of them."""
    resolution, shapes, lowering = subject_of(launch)
    is_shared = GraphRemedy.ONE_CAPTURE_STREAM in graph_remedies(resolution, shapes, lowering)
    return is_shared and profiles_graphs(resolution)


def _pool_bytes(stage: str, mode: str, lines: Lines) -> int:
    return sum(line.size for line in _of_manager(stage, lines) if mode in line.owner)


def _of_manager(stage: str, lines: Lines) -> Lines:
    return tuple(line for line in lines if line.owner.startswith(stage) and "objects" not in line.owner)


def rows_of(launch: Launch) -> Iterator[Row]:
    resolution, shapes, lowering = subject_of(launch)
    lines, remedies = lines_of(launch), graph_remedies(resolution, shapes, lowering)
    estimate = engine_estimate(resolution, shapes, lines, lowering)
    left = left_by_profiling(resolution, lines, remedies)
    ledger = ledger_of(resolution, (*lines, *left), _given_estimate(launch) or estimate)
    assert ledger is not None
    for figure in launch.figures:
        counted = None
        if figure.name in _OF_LEDGER:
            value = _of_ledger(figure.name, ledger)
            counted = ledger.tokens(ledger.cache.size) if value is None and figure.name == "KV tokens" else None
        elif figure.name == "estimate":
            value = (estimate.size + _taken_for_graphs(ledger)) / GIB
        else:
            value = _of_graphs(figure.name, launch, lines) / GIB
        yield Row(launch.name, launch.file, figure, value, counted)


def _taken_for_graphs(ledger: Ledger) -> int:
    """Kernels' workspaces that the engine counts among its graphs, of which the ledger has lines of their own."""
    return sum(line.size for line in ledger.lines if line.is_budgeted and line.owner.endswith("kernels' workspace"))


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
        own = (line for line in ledger.lines if line.part in parts[name] and line.owner != BEFORE_OWNER)
        return sum(line.size for line in own if line.is_budgeted or name == "held") / GIB
    if ledger.pinned_bytes is None and Part.WEIGHTS in missing:
        return None
    return ledger.cache.size / GIB if name == "KV cache" else ledger.tokens(ledger.cache.size)


def _token_bytes(kv: KvCache) -> float:
    return kv.block_bytes * kv.request_blocks / kv.request.max_model_len_tokens


def _of_graphs(name: str, launch: Launch, lines: Lines) -> int:
    if name == "added":
        resolution, shapes, lowering = subject_of(launch)
        return added_by_capture(resolution, lines, graph_remedies(resolution, shapes, lowering))
    stage, mode = name.removesuffix(WHOLE_STAGE).rsplit(maxsplit=1)
    is_first = mode == "PIECEWISE" or not any("PIECEWISE" in line.owner for line in _of_manager(stage, lines))
    beside = 0
    if name.endswith(WHOLE_STAGE) and is_first:
        beside = _beside_pools(stage, lines, has_workspace=_has_workspace(launch))
    return _pool_bytes(stage, mode, lines) + beside


def _beside_pools(stage: str, lines: Lines, *, has_workspace: bool) -> int:
    """What a manager's first capture makes beside its pool: the target's outputs, and the workspace of its stream."""
    outputs = sum(line.size for line in lines if line.owner.startswith(stage) and "outputs" in line.owner)
    managers = {line.owner.partition(":")[0] for line in lines if "objects" in line.owner}
    workspaces = sum(line.size for line in lines if is_workspace(line))
    streams = workspaces // BLAS_WORKSPACE.value
    has_own = not has_workspace and (streams == len(managers) or stage == "target")
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

"""The reports that the workers left of what they captured, held against the plan graph by graph."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.hand_off import Remedy, manager_class
from servespec.compiler.graphs.managers import GraphFrame, Manager, managers_of, own_shapes
from servespec.compiler.graphs.shape import Row, Runner, Shape
from servespec.compiler.parallel_ranks import replica_ranks, stage_ranks
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.capture import (
    AtExit,
    Capture,
    Evidence,
    RankCapture,
    RankMemory,
    RowCapture,
    RowCost,
    Verdict,
    VerificationSteps,
)
from servespec.runtime.extension.report import ASK_PIPES, left_beside, left_name, report_name
from servespec.runtime.run_rules import CAPTURE_DIFFERS, CAPTURE_UNSEEN, GRAPHS_CHANGED

Json = dict[str, Any]
Graph = tuple[int, ...]
Rank = tuple[int, int]
"""Data-parallel rank, and rank within the replica."""

_HELP = "compare the engine's version with the plan's, and report this with the folder of the launch"
_SHOWN = 4


_WORKERS_FILE = re.compile(r"(?:captured|left|failed|verified|steps)-\d+-\d+\.json")
"""Of any launch, by its replica and rank: an earlier one may have had more workers, or have measured something."""


def remove_reports(folder: Path) -> None:
    """Of an earlier launch with the same folder, so that none is taken for this one's; nothing else of the folder."""
    for path in list(folder.iterdir()):
        if _WORKERS_FILE.fullmatch(path.name):
            path.unlink()
    remove_pipes(folder)


def remove_pipes(folder: Path) -> None:
    """Those through which workers were asked: whoever reads every file of a folder would wait at one for ever."""
    for path in folder.glob(ASK_PIPES):
        if path.is_fifo():
            path.unlink(missing_ok=True)


def report_capture(plan: Plan, folder: Path) -> Capture:
    """What the workers report that they captured."""
    expected = _ranks(plan)
    paths = {rank: folder / report_name(*rank) for rank in expected}
    reports = {rank: _read(path) for rank, path in paths.items() if path.is_file()}
    differing = [one for rank, report in reports.items() for one in _differences(plan, rank, report, paths[rank])]
    if len(reports) < len(expected):
        message = f"{len(expected) - len(reports)} of {len(expected)} workers left no report of what they captured"
        differing.append(CAPTURE_UNSEEN.at(Place(str(folder)), message, "the plan could not be checked there"))
    return Capture(
        evidence=Evidence.WORKERS,
        rows=tuple(_row_capture(plan, row, list(reports.values())) for row in plan.graphs.rows),
        ranks=tuple(_rank_capture(rank, report) for rank, report in reports.items()),
        findings=tuple(differing),
    )


def graphs_at_exit(plan: Plan, folder: Path) -> tuple[AtExit, tuple[Diagnostic, ...]]:
    """Whether the workers ended with the graphs that they had captured, and how they did not."""
    reports = [folder / name for name in rank_names(plan, report_name)]
    pairs = [(report, left_beside(report)) for report in reports]
    seen = [(before, after) for before, after in pairs if before.is_file() and after.is_file()]
    found = tuple(finding for before, after in seen for finding in _changes(before, after))
    if found:
        return AtExit.CHANGED, found
    return (AtExit.SAME if len(seen) == len(pairs) else AtExit.UNSEEN), ()


def verification_steps(plan: Plan, folder: Path) -> VerificationSteps | None:
    """Of the first worker that ended and counted them; every worker of a launch takes the same steps."""
    paths = [folder / name for name in rank_names(plan, left_name)]
    counts = [report.get("verification") for report in (_read(path) for path in paths if path.is_file())]
    found = next((one for one in counts if one is not None), None)
    return None if found is None else VerificationSteps(found["fixed_steps"], found["adaptive_steps"])


def _changes(before: Path, after: Path) -> Iterator[Diagnostic]:
    captured, left = _entries(_read(before)), _entries(_read(after))
    for name in sorted({*captured, *left}):
        lost = sorted(captured.get(name, set()) - left.get(name, set()))
        late = sorted(left.get(name, set()) - captured.get(name, set()))
        for what, graphs in (("no longer holds", lost), ("captured late", late)):
            if graphs:
                message = (
                    f"the worker of `{after.name}` {what} graphs of {name}: {len(graphs)}, of {_tokens_of(graphs)}"
                )
                yield GRAPHS_CHANGED.at(Place(str(after)), message, _HELP)


def _entries(report: Json) -> dict[str, set[Graph]]:
    """The graphs of each manager and of all compiled pieces, each with the tokens first."""
    pieces: Counter[Graph] = Counter()
    for piece in report["compiled_pieces"]:
        pieces.update({tuple(size): piece["pieces"] for size in piece["sizes"]})
    found = {"the compiled pieces": {(*size, count) for size, count in pieces.items()}}
    for one in report["managers"]:
        name = f"`{one['class']}` at query length {one['query_len']}"
        found[name] = _graphs(one["full"])
        found[f"{name}, piecewise"] = {(tokens,) for tokens in one["breakable"] or ()}
    return found


def _ranks(plan: Plan) -> list[Rank]:
    spec = plan.resolution.request.spec
    replicas, ranks = spec.parallel.data_parallel_size, replica_ranks(spec)
    return [(replica, rank) for replica in range(replicas) for rank in range(ranks)]


def rank_names(plan: Plan, name: Callable[[int, int], str]) -> list[str]:
    """The name of each worker's file, where ``name`` makes one from its data-parallel replica and rank."""
    return [name(*rank) for rank in _ranks(plan)]


def _read(path: Path) -> Json:
    report: Json = json.loads(path.read_text(encoding="utf-8"))
    return report


def _rank_capture(rank: Rank, report: Json) -> RankCapture:
    return RankCapture(
        data_parallel_rank=rank[0],
        rank=rank[1],
        capture_seconds=report["capture_seconds"],
        graph_bytes=report["graph_bytes"],
        memory=RankMemory(**report["memory"]),
    )


def _row_capture(plan: Plan, row: Row, reports: Sequence[Json]) -> RowCapture:
    """A rank without the row's manager, such as a pipeline stage without the drafter, holds None of it."""
    manager = next(one for one in managers_of(plan.resolution.frame) if row.routine in one.routines)
    shapes = [shape for shape in own_shapes(manager, plan.graphs.shapes) if row.holds(shape)]
    kind = manager_class(plan.resolution.frame, manager)
    held = [_held(kind, manager, row, shapes, report) for report in reports]
    seen = [one for one in held if one is not None]
    if not seen:
        return RowCapture(tuple(None for _ in held), Verdict.UNSEEN)
    agrees = all(planned == captured for planned, captured in seen)
    counts = tuple(None if one is None else len(one[1]) for one in held)
    costs = tuple(
        None if one is None else _row_cost(kind, manager, row, shapes, report)
        for one, report in zip(held, reports, strict=True)
    )
    return RowCapture(counts, Verdict.AS_PLANNED if agrees else Verdict.DIFFERS, costs)


def _row_cost(kind: str, manager: Manager, row: Row, shapes: Sequence[Shape], report: Json) -> RowCost:
    """Over the row's graphs of one rank."""
    is_of_row = _is_like(shapes)
    own = [
        one
        for capture in report["captures"]
        if (capture["class"], capture["query_len"], capture["mode"]) == (kind, manager.query_len, str(row.mode))
        for one in capture["graphs"]
        if row.mode is not CudaGraphMode.FULL or is_of_row(tuple(one["graph"]))
    ]
    return RowCost(
        pool_bytes=sum(one["pool_bytes"] for one in own),
        device_bytes=sum(one["device_bytes"] for one in own),
        seconds=round(sum(one["seconds"] for one in own), 3),
    )


def _is_like(shapes: Sequence[Shape]) -> Callable[[Graph], bool]:
    """Whether a FULL graph is of a row's kind: its query length, one for all requests or the longest, and its K.

    A manager of load-aware verification holds graphs of both kinds of query length.
    """
    kinds = {_kind(graph_of(shape)) for shape in shapes}
    return lambda graph: _kind(graph) in kinds


def _kind(graph: Graph) -> tuple[int, int, int]:
    return graph[2], graph[3], graph[6]


def _held(
    kind: str, manager: Manager, row: Row, shapes: Sequence[Shape], report: Json
) -> tuple[set[Graph], set[Graph]] | None:
    """The graphs of one row that were planned, and those that a rank holds; None without its manager."""
    one = next((m for m in report["managers"] if (m["class"], m["query_len"]) == (kind, manager.query_len)), None)
    if one is None:
        return None
    if row.mode is CudaGraphMode.FULL:
        return {graph_of(shape) for shape in shapes}, set(filter(_is_like(shapes), _graphs(one["full"])))
    if one["breakable"] is not None:
        return {(shape.tokens,) for shape in shapes}, {(tokens,) for tokens in one["breakable"]}
    planned: set[Graph] = {(shape.tokens, shape.active_loras) for shape in shapes}
    pieces = [_graphs(piece["sizes"]) for piece in report["compiled_pieces"]]
    return planned, max(pieces, key=lambda sizes: (sizes == planned, len(sizes & planned)), default=set())


def _differences(plan: Plan, rank: Rank, report: Json, path: Path) -> Iterator[Diagnostic]:
    drafts = _is_of_last_stage(plan, rank)
    of_graphs = differences(plan.resolution.frame, plan.graphs.shapes, report, drafts=drafts)
    for message in (*of_graphs, *_remedy_differences(plan.lowered.remedies, report.get("remedies", {}))):
        yield CAPTURE_DIFFERS.at(Place(str(path)), message, _HELP)


def _remedy_differences(planned: Sequence[Remedy], in_force: Json) -> Iterator[str]:
    for name in sorted(set(planned) ^ in_force.keys()):
        yield f"the remedy `{name}` {'is in force, and was not planned' if name in in_force else 'is not in force'}"


def _is_of_last_stage(plan: Plan, rank: Rank) -> bool:
    """Ranks of a pipeline stage follow one another, stage by stage."""
    spec = plan.resolution.request.spec
    return rank[1] >= replica_ranks(spec) - stage_ranks(spec)


def differences(frame: GraphFrame, shapes: Sequence[Shape], report: Json, *, drafts: bool = True) -> Iterator[str]:
    """In words, how one worker's report differs from the plan's shapes.

    A worker of another pipeline stage than the last has no drafter: it is given without ``drafts``.
    Source: vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.__init__.
    """
    captured = {(one["class"], one["query_len"]): one for one in report["managers"]}
    if len(captured) < len(report["managers"]):
        # Managers are told apart by these two; of those that share them only the last could be held against the plan.
        yield f"{len(report['managers'])} graph managers are of {len(captured)} classes and query lengths"
    planned = [one for one in managers_of(frame) if drafts or one.runner is Runner.TARGET]
    for manager in planned:
        one = captured.pop((manager_class(frame, manager), manager.query_len), None)
        yield from _manager_differences(manager, own_shapes(manager, shapes), one)
    for (kind, query_len), one in captured.items():
        if one["full"]:
            yield f"a `{kind}` of query length {query_len} captured graphs: {len(one['full'])}; none were planned"
    if all(one["breakable"] is None for one in report["managers"]):
        yield from _piece_differences(planned, shapes, report["compiled_pieces"])


def _manager_differences(manager: Manager, own: Sequence[Shape], captured: Json | None) -> Iterator[str]:
    name = f"{manager.runner} {manager.decode}"
    if captured is None:
        if own:
            yield f"`{name}`: the engine has no such graph manager"
        return
    if own and captured["mode"] != str(manager.mode):
        yield f"`{name}`: its mode is {captured['mode']}; {manager.mode} was planned"
    full = [tuple(graph) for graph in captured["full"]]
    if doubled := sorted(graph for graph, count in Counter(full).items() if count > 1):
        yield f"`{name}`: graphs that were captured more than once: {_tokens_of(doubled)}"
    yield from _set_difference(name, {graph_of(shape) for shape in own if _is_full(shape)}, set(full))
    if captured["breakable"] is not None:
        planned: set[Graph] = {(shape.tokens,) for shape in own if not _is_full(shape)}
        yield from _set_difference(f"{name}, piecewise", planned, {(tokens,) for tokens in captured["breakable"]})


def _piece_differences(managers: Sequence[Manager], shapes: Sequence[Shape], pieces: Sequence[Json]) -> Iterator[str]:
    """Every piece of a compiled model holds the sizes of its manager: what all pieces hold are the planned lists."""
    planned = {_piecewise_sizes(manager, shapes) for manager in managers} - {()}
    captured = {tuple(tuple(size) for size in one["sizes"]) for one in pieces} - {()}
    for sizes in sorted(planned - captured):
        yield f"no compiled piece holds the {len(sizes)} PIECEWISE sizes to {sizes[-1][0]} tokens that were planned"
    for sizes in sorted(captured - planned):
        yield f"compiled pieces hold {len(sizes)} PIECEWISE sizes to {sizes[-1][0]} tokens that were not planned"


def _piecewise_sizes(manager: Manager, shapes: Sequence[Shape]) -> tuple[Graph, ...]:
    own = own_shapes(manager, shapes)
    return tuple(sorted((shape.tokens, shape.active_loras) for shape in own if not _is_full(shape)))


def _set_difference(name: str, planned: set[Graph], captured: set[Graph]) -> Iterator[str]:
    missing, extra = sorted(planned - captured), sorted(captured - planned)
    if missing:
        yield f"`{name}`: missing {len(missing)} of {len(planned)} graphs: {_tokens_of(missing)}"
    if extra:
        yield f"`{name}`: graphs that were not planned: {_tokens_of(extra)}"


def _tokens_of(graphs: Sequence[Graph]) -> str:
    shown = ", ".join(str(graph[0]) for graph in graphs[:_SHOWN])
    return f"{shown}{', ...' if len(graphs) > _SHOWN else ''} tokens"


def _is_full(shape: Shape) -> bool:
    return shape.mode is CudaGraphMode.FULL


def _graphs(rows: Sequence[Sequence[int]]) -> set[Graph]:
    return {tuple(row) for row in rows}


def graph_of(shape: Shape) -> Graph:
    """As :func:`servespec.runtime.extension.report.graph_json` writes one."""
    return (
        shape.tokens,
        shape.requests or 0,
        shape.query_len or 0,
        shape.max_query_len or 0,
        shape.active_loras,
        shape.ubatches,
        shape.draft_steps or 0,
    )

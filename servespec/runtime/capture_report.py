"""The reports that the workers left of what they captured, held against the plan graph by graph."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.hand_off import manager_class
from servespec.compiler.graphs.managers import GraphFrame, Manager, managers_of, own_shapes
from servespec.compiler.graphs.shape import Shape
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.extension.report import report_name
from servespec.runtime.run_rules import CAPTURE_DIFFERS, CAPTURE_UNSEEN

Json = dict[str, Any]
Graph = tuple[int, ...]

_HELP = "compare the engine's version with the plan's, and report this with the folder of the launch"
_SHOWN = 4


def remove_reports(folder: Path) -> None:
    """Of an earlier launch with the same folder, so that none is taken for this one's."""
    for path in folder.glob("captured-*.json"):
        path.unlink()


def report_findings(plan: Plan, folder: Path) -> tuple[Diagnostic, ...]:
    """How what the workers captured differs from the plan; nothing where every rank captured the same."""
    expected = rank_names(plan, report_name)
    found = [folder / name for name in expected if (folder / name).is_file()]
    differing = tuple(finding for path in found for finding in _differences(plan, path))
    if len(found) < len(expected):
        message = f"{len(expected) - len(found)} of {len(expected)} workers left no report of what they captured"
        return (*differing, CAPTURE_UNSEEN.at(Place(str(folder)), message, "the plan could not be checked there"))
    return differing


def rank_names(plan: Plan, name: Callable[[int, int], str]) -> list[str]:
    """The name of each worker's file, where ``name`` makes one from its data-parallel replica and rank."""
    parallel = plan.resolution.request.spec.parallel
    ranks = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    return [name(replica, rank) for replica in range(parallel.data_parallel_size) for rank in range(ranks)]


def _differences(plan: Plan, path: Path) -> Iterator[Diagnostic]:
    report = json.loads(path.read_text(encoding="utf-8"))
    for message in differences(plan.resolution.frame, plan.graphs.shapes, report):
        yield CAPTURE_DIFFERS.at(Place(str(path)), message, _HELP)


def differences(frame: GraphFrame, shapes: Sequence[Shape], report: Json) -> Iterator[str]:
    """In words, how one worker's report differs from the plan's shapes."""
    captured = {(one["class"], one["query_len"]): one for one in report["managers"]}
    for manager in managers_of(frame):
        one = captured.pop((manager_class(frame, manager), manager.query_len), None)
        yield from _manager_differences(manager, own_shapes(manager, shapes), one)
    for (kind, query_len), one in captured.items():
        if one["full"]:
            yield f"a `{kind}` of query length {query_len} captured graphs: {len(one['full'])}; none were planned"
    if all(one["breakable"] is None for one in report["managers"]):
        yield from _piece_differences(frame, shapes, report["compiled_pieces"])


def _manager_differences(manager: Manager, own: Sequence[Shape], captured: Json | None) -> Iterator[str]:
    name = f"{manager.runner} {manager.decode}"
    if captured is None:
        if own:
            yield f"`{name}`: the engine has no such graph manager"
        return
    yield from _set_difference(name, {_graph(shape) for shape in own if _is_full(shape)}, _graphs(captured["full"]))
    if captured["breakable"] is not None:
        planned: set[Graph] = {(shape.tokens,) for shape in own if not _is_full(shape)}
        yield from _set_difference(f"{name}, piecewise", planned, {(tokens,) for tokens in captured["breakable"]})


def _piece_differences(frame: GraphFrame, shapes: Sequence[Shape], pieces: Sequence[Json]) -> Iterator[str]:
    """Every piece of a compiled model holds the sizes of its manager: what all pieces hold are the planned lists."""
    planned = {_piecewise_sizes(manager, shapes) for manager in managers_of(frame)} - {()}
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


def _graph(shape: Shape) -> Graph:
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

"""What the engine makes of its graphs' memory: its estimate before it captures, and what it logs after it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from servespec.compiler.facts.graph_memory import ESTIMATE_ERROR, LEAST_GRAPH, PROFILED_FULL_GRAPHS
from servespec.compiler.graphs.shape import Shape, widest_tokens
from servespec.compiler.list_effects import split_bound_tokens
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.capture_outputs import eager_rest, output_count
from servespec.compiler.memory.graph_lines import is_workspace
from servespec.compiler.memory.graph_manager import splits_of, target_manager
from servespec.compiler.memory.graph_objects import full_object, is_profiled
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line
from servespec.compiler.memory.stage import WHOLE_MODEL, Stage
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Basis
from servespec.units import Bytes, size_words


def added_by_capture(
    resolution: Resolution, lines: Iterable[MemoryLine], remedies: frozenset[GraphRemedy] = frozenset()
) -> Bytes:
    """How much less is free after the capture than before it, the number that the engine logs.

    Where the engine has profiled its graphs before, the driver keeps what their objects took: all but the target's
    FULL graphs, of which it profiles two.  A stream that was profiled on, and is captured on again, has its workspace.
    """
    if not profiles_graphs(resolution):
        return Bytes(sum(line.size for line in lines))
    has_workspace = GraphRemedy.ONE_CAPTURE_STREAM in remedies
    return Bytes(
        sum(line.size for line in lines if not is_profiled(line) and not (has_workspace and is_workspace(line)))
    )


def left_by_profiling(
    resolution: Resolution, lines: Iterable[MemoryLine], remedies: frozenset[GraphRemedy]
) -> Iterator[MemoryLine]:
    """Workspaces of the streams that the engine profiled its graphs on: the captures have streams of their own.

    Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture, which opens a stream at every call.
    """
    size = sum(line.size for line in lines if is_workspace(line))
    if size and profiles_graphs(resolution) and GraphRemedy.ONE_CAPTURE_STREAM not in remedies:
        because = "as much as those of the captures, whose streams are others"
        line = exact_line("workspaces that profiling graphs left", Holder.ENGINE, Part.OTHER, Bytes(size), because)
        yield replace(line, is_budgeted=False)


def profiles_graphs(resolution: Resolution) -> bool:
    """Source: vllm/v1/worker/gpu_worker.py: Worker.determine_available_memory."""
    return resolution.request.spec.memory.kv_cache_memory_bytes is None


def engine_estimate(
    resolution: Resolution,
    shapes: tuple[Shape, ...],
    lines: tuple[MemoryLine, ...],
    lowering: Lowering,
    stage: Stage = WHOLE_MODEL,
) -> MemoryLine:
    """What the engine's own profiling will say of graph memory: measured - m1 + (N - 1) x max(m1, 1 MiB).

    N counts the target's FULL graphs, m1 is what the second of them took.  Its capture first gives back what its eager
    run left in the allocator, so m1 is mostly negative and the estimate that much too high.
    Source: vllm/v1/worker/gpu/cudagraph_utils.py: profile_cudagraph_memory.
    """
    held = sum(line.size for line in lines)
    target = target_manager(resolution, shapes, splits_of(resolution, shapes, lowering), stage) if shapes else None
    graphs = len(target.full) if target else 0
    if target is None or not profiles_graphs(resolution):
        return _estimate_line(Bytes(0), Bytes(0), "the engine is not asked: the KV cache is set")
    count = output_count(resolution, target, stage)
    left = eager_rest(target, count, split_bound_tokens(lowering, widest_tokens(shapes), shapes))
    each = full_object(resolution, target.forward)
    beyond = max(graphs - PROFILED_FULL_GRAPHS.value, 0)
    unprofiled = beyond * each
    second = each - left
    result = held - unprofiled - second + max(graphs - 1, 0) * max(second, LEAST_GRAPH.value)
    because = (
        f"{size_words(held - unprofiled)} measured over all graphs but {beyond} FULL ones of the target, "
        f"{size_words(left)} given back while the second was captured, "
        f"{max(graphs - 1, 0)} x {size_words(max(second, LEAST_GRAPH.value))}"
    )
    return _estimate_line(Bytes(result), Bytes(held), because)


def _estimate_line(size: Bytes, held: Bytes, because: str) -> MemoryLine:
    """Its ends are those of the engine's known error, about what the graphs will really hold."""
    low, high = (int(held * (1 + error)) for error in ESTIMATE_ERROR)
    return MemoryLine(
        owner="the engine's own estimate of its graphs",
        holder=Holder.ENGINE,
        part=Part.GRAPHS,
        size=size,
        low=Bytes(min(low, size)),
        high=Bytes(max(high, size)),
        basis=Basis.ESTIMATE,
        because=because,
    )

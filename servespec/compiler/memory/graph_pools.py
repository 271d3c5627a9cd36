"""What captured graphs hold on the worst rank, before anything is launched, and what the engine will make of it.

Every manager captures on a stream of its own, and a pool's free blocks serve only their own stream.  So each manager
is played through on a model of the allocator: its widest PIECEWISE graph, then its widest FULL one; narrower graphs
fit into what those leave, but for PIECEWISE ones that keep outputs.  Space belongs to the tensor whose request made the
pool grow, which is also what an allocator trace of a real capture says.
Sources: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture; every capture under
vllm/v1/worker/gpu/spec_decode/.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import groupby

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.graph_memory import (
    BLAS_WORKSPACE,
    CAPTURE_ORDER,
    ESTIMATE_ERROR,
    EXPERT_LAYER_NODES,
    LAYER_NODES,
    LEAST_GRAPH,
    OLDER_BLAS_WORKSPACE,
    PIECE,
    PROFILED_FULL_GRAPHS,
    WIDE_LAYER_NODES,
)
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Routine, Runner, Shape, union_tokens, widest_tokens
from servespec.compiler.list_effects import graph_splits, list_change, split_bound_tokens
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.auxiliary_states import aux_layers
from servespec.compiler.memory.caching_allocator import Allocator, CachingAllocator
from servespec.compiler.memory.draft_logits import LOGITS, draft_logits
from servespec.compiler.memory.expert_workspace import EXPERTS
from servespec.compiler.memory.forward_passes import ModelPass, draft_pass, target_pass, untold
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line
from servespec.compiler.memory.model_pass import (
    ACCUMULATORS,
    ACTIVATIONS,
    CONVERTED_SCORES,
    SCORES,
    Attention,
)
from servespec.compiler.memory.stage import WHOLE_MODEL, Stage
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Basis, Sourced
from servespec.units import Bytes, Tokens, size_words


class GraphRemedy(StrEnum):
    """Remedies that take graph memory away, in force or not yet there; each changes the lines that it concerns."""

    WEAK_AUX_OUTPUTS = "weak_aux_outputs"
    ONE_CAPTURE_STREAM = "one_capture_stream"
    STEPWISE_DRAFT_LOGITS = "stepwise_draft_logits"
    INDEXER_ROW_CHUNKS = "indexer_row_chunks"


_WORKSPACE = "workspace of matrix products"
_OUTPUTS = "capture outputs"
_PIECEWISE_OBJECTS = "objects of PIECEWISE graphs"
_FULL_OBJECTS = "objects of FULL graphs"
_CHUNK_ROWS = 512
_WIDE_EXPERTS_FROM = (10, 0)
_REMEMBERED_POOLS = 8
_BLOCKS = {DrafterKind.BLOCK: "block", DrafterKind.MULTI_MODULE_MTP: "modules"}
_HOLDERS = {Runner.TARGET: Holder.TARGET, Runner.DRAFTER: Holder.DRAFTER, Runner.ENGINE: Holder.ENGINE}
_SPREAD = {
    ACCUMULATORS: (0.5, 1.6),
    LOGITS: (0.85, 1.15),
    SCORES: (0.97, 1.05),
}
_USUAL_SPREAD = (0.7, 1.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manager:
    """The graphs of one manager and the pass that it captures, as often as ``passes`` in a FULL graph.

    ``untold`` are fields that its model's config lacks.
    """

    runner: Runner
    name: str
    forward: ModelPass
    untold: tuple[str, ...]
    piecewise: tuple[Shape, ...]
    full: tuple[Shape, ...]
    passes: int = 1

    @property
    def widest_piecewise(self) -> Tokens:
        return widest_tokens(self.piecewise)

    @property
    def widest_full(self) -> Tokens:
        return widest_tokens(self.full)


def graph_lines(
    resolution: Resolution,
    shapes: tuple[Shape, ...],
    lowering: Lowering,
    remedies: frozenset[GraphRemedy] = frozenset(),
    allocator: Callable[[], Allocator] = CachingAllocator,
    stage: Stage = WHOLE_MODEL,
) -> tuple[MemoryLine, ...]:
    """What the graphs of ``shapes`` will hold, one line for each owner of each runner; none where there are none.

    Of a pipeline, what the ranks of one stage hold.
    """
    if not shapes:
        return ()
    bound = split_bound_tokens(lowering, widest_tokens(shapes), shapes)
    managers = _managers(resolution, shapes, _splits(resolution, shapes, lowering), stage)
    if GraphRemedy.INDEXER_ROW_CHUNKS in remedies:
        managers = tuple(replace(manager, forward=_in_row_chunks(manager.forward)) for manager in managers)
    of_target = (
        line
        for manager in managers
        if manager.runner is Runner.TARGET
        for line in _output_lines(manager, _outputs(resolution, manager, stage), bound, allocator)
    )
    return (
        *of_target,
        *_pool_lines(resolution, managers, remedies, allocator),
        *(line for manager in managers for line in _object_lines(resolution, manager)),
        *_workspace_lines(resolution, managers, remedies),
    )


def added_by_capture(resolution: Resolution, lines: Iterable[MemoryLine]) -> Bytes:
    """How much less is free after the capture than before it, the number that the engine logs.

    Where the engine has profiled its graphs before, the driver keeps what their objects took: all but the target's
    FULL graphs, of which it profiles two.
    """
    is_profiled = profiles_graphs(resolution)
    return Bytes(sum(line.size for line in lines if not (is_profiled and _is_profiled(line))))


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
    target = _target(resolution, shapes, _splits(resolution, shapes, lowering), stage) if shapes else None
    graphs = len(target.full) if target else 0
    if target is None or not profiles_graphs(resolution):
        return _estimate_line(Bytes(0), Bytes(0), "the engine is not asked: the KV cache is set")
    count = _outputs(resolution, target, stage)
    left = _eager_rest(target, count, split_bound_tokens(lowering, widest_tokens(shapes), shapes))
    each = _full_object(resolution, target.forward)
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


# Managers


def _splits(resolution: Resolution, shapes: tuple[Shape, ...], lowering: Lowering) -> int:
    sizes = union_tokens(shapes)
    return graph_splits(list_change(resolution, lowering, shapes, sizes, sizes))


def _managers(resolution: Resolution, shapes: tuple[Shape, ...], splits: int, stage: Stage) -> tuple[_Manager, ...]:
    managers = [_target(resolution, shapes, splits, stage)]
    drafted = tuple(shape for shape in shapes if shape.runner is Runner.DRAFTER and stage.is_last)
    if drafted:
        forward = draft_pass(resolution, splits)
        later = tuple(shape for shape in drafted if shape.routine is Routine.LATER_STEPS)
        first = tuple(shape for shape in drafted if shape.routine is not Routine.LATER_STEPS)
        lacking = untold(resolution.request.draft or resolution.request.target)
        name = _BLOCKS.get(resolution.drafting.kind, "step 0")
        managers.append(_manager(Runner.DRAFTER, name, forward, lacking, first))
        passes = _later_passes(resolution)
        managers.append(replace(_manager(Runner.DRAFTER, "later steps", forward, lacking, later), passes=passes))
    return tuple(manager for manager in managers if manager.piecewise or manager.full)


def _later_passes(resolution: Resolution) -> int:
    """One graph holds all later steps where the drafter can update its attention's metadata on the device."""
    steps = resolution.frame.num_speculative_tokens - 1 if resolution.frame.drafter.fused_later_steps else 1
    return max(steps, 1)


def _in_row_chunks(forward: ModelPass) -> ModelPass:
    scores = forward.scores
    return forward if scores is None else replace(forward, scores=replace(scores, most_rows=_CHUNK_ROWS))


def _target(resolution: Resolution, shapes: tuple[Shape, ...], splits: int, stage: Stage) -> _Manager:
    own = tuple(shape for shape in shapes if shape.runner is Runner.TARGET)
    lacking = untold(resolution.request.target)
    return _manager(Runner.TARGET, "target", target_pass(resolution, splits, stage), lacking, own)


def _manager(
    runner: Runner, name: str, forward: ModelPass, lacking: tuple[str, ...], shapes: tuple[Shape, ...]
) -> _Manager:
    return _Manager(
        runner=runner,
        name=name,
        forward=forward,
        untold=lacking,
        piecewise=tuple(shape for shape in shapes if shape.mode is CudaGraphMode.PIECEWISE),
        full=tuple(shape for shape in shapes if shape.mode is CudaGraphMode.FULL),
    )


# Pools


def _pool_lines(
    resolution: Resolution,
    managers: tuple[_Manager, ...],
    remedies: frozenset[GraphRemedy],
    allocator: Callable[[], Allocator],
) -> Iterator[MemoryLine]:
    """Growth of the pools, in the order of capture; only the target, which is the first, has auxiliary outputs."""
    pool = allocator()
    for manager in managers:
        if GraphRemedy.ONE_CAPTURE_STREAM not in remedies:
            pool = allocator()
        for mode in CAPTURE_ORDER.value:
            if mode is CudaGraphMode.PIECEWISE and _keeps_aux(resolution, manager, remedies):
                sizes = tuple(sorted((shape.tokens for shape in manager.piecewise), reverse=True))
                pool = _with_kept(replace(manager.forward, scores=None), sizes, allocator).copy()
                yield from _kept_lines(manager, pool.reserved_bytes)
                continue
            before = pool.grown_bytes.copy()
            _play(resolution, manager, mode, pool, remedies)
            yield from _grown_lines(manager, mode, pool.grown_bytes - before)


def _play(
    resolution: Resolution,
    manager: _Manager,
    mode: CudaGraphMode,
    pool: Allocator,
    remedies: frozenset[GraphRemedy],
) -> None:
    """The widest graph of a mode.  Attention is an eager break of PIECEWISE graphs, so they hold none of it.

    A pass of a drafter's FULL graph samples before the next one begins.
    Source: vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py:
    TargetDependentARSpeculator._generate_draft.
    """
    is_full = mode is CudaGraphMode.FULL
    widest = max(manager.full if is_full else manager.piecewise, key=lambda shape: shape.tokens, default=None)
    if widest is None:
        return
    attention = Attention.OF_ANY_CONTEXT if is_full else Attention.LEFT_OUT
    for _ in range(manager.passes if is_full else 1):
        outputs = manager.forward.run(pool, widest.tokens, attention)
        if is_full and manager.runner is Runner.DRAFTER:
            draft_logits(resolution, pool, widest, stepwise=GraphRemedy.STEPWISE_DRAFT_LOGITS in remedies)
        pool.give(*outputs.all)


def _keeps_aux(resolution: Resolution, manager: _Manager, remedies: frozenset[GraphRemedy]) -> bool:
    """Whether PIECEWISE graphs keep their auxiliary outputs: breakable ones, whose references are one level deep.

    Source: vllm/compilation/breakable_cudagraph.py: BreakableCUDAGraphWrapper.
    """
    is_breakable = bool(resolution.values["compilation.breakable_cudagraph"].value)
    has_any = bool(manager.piecewise and manager.forward.aux_layers)
    return is_breakable and has_any and GraphRemedy.WEAK_AUX_OUTPUTS not in remedies


@lru_cache(maxsize=_REMEMBERED_POOLS)
def _with_kept(forward: ModelPass, sizes: tuple[Tokens, ...], allocator: Callable[[], Allocator]) -> Allocator:
    """A pool after all sizes, the widest first: what one keeps lies in free blocks that the next one would have taken.

    Each remedy asks for the same one.
    """
    pool = allocator()
    for tokens in sizes:
        pool.give(*forward.run(pool, tokens, Attention.LEFT_OUT).hidden)
    return pool


def _kept_lines(manager: _Manager, reserved_bytes: Bytes) -> Iterator[MemoryLine]:
    tokens, layers = sum(shape.tokens for shape in manager.piecewise), len(manager.forward.aux_layers)
    size = Bytes(tokens * layers * manager.forward.hidden)
    because = f"{tokens} tokens of all sizes x {layers} layers x {manager.forward.hidden} bytes"
    yield _line(manager, "auxiliary hidden states kept of every PIECEWISE size", size, 0.95, 1.1, because)
    yield from _grown_lines(manager, CudaGraphMode.PIECEWISE, {ACTIVATIONS: max(reserved_bytes - size, 0)})


def _grown_lines(manager: _Manager, mode: CudaGraphMode, grown_bytes: Mapping[str, int]) -> Iterator[MemoryLine]:
    tokens = manager.widest_full if mode is CudaGraphMode.FULL else manager.widest_piecewise
    because = f"grown while the widest {mode} graph of {tokens} tokens is captured"
    for owner, size in grown_bytes.items():
        low, high = _SPREAD.get(owner, _USUAL_SPREAD)
        experts = manager.forward.experts
        if owner == EXPERTS and experts is not None:
            high *= experts.most_growth(tokens)
        line = _line(manager, f"{owner} in {mode} graphs", Bytes(size), low, high, because)
        yield _with_scores(line, owner, manager)


def _with_scores(line: MemoryLine, owner: str, manager: _Manager) -> MemoryLine:
    """Whether converted scores have one segment or two turns on small things."""
    scores = manager.forward.scores
    if scores is None or owner not in (SCORES, CONVERTED_SCORES):
        return line
    rows = scores.rows(manager.widest_full)
    line = replace(line, because=f"{line.because}, {rows} rows x {scores.row.positions} positions at once")
    if owner == SCORES:
        return line
    segment = rows * scores.row.converted_bytes
    low, high = _SPREAD[SCORES]
    return replace(
        line, low=Bytes(int(min(segment, line.size) * low)), high=Bytes(int(max(2 * segment, line.size) * high))
    )


def _line(manager: _Manager, owner: str, size: Bytes, low: float, high: float, because: str) -> MemoryLine:
    """``low`` and ``high`` are shares of the size; it bounds from below where the config does not tell all widths."""
    if manager.untold:
        because = f"{because}; without {', '.join(manager.untold)}, which config.json does not tell"
    return MemoryLine(
        owner=f"{manager.name}: {owner}",
        holder=_HOLDERS[manager.runner],
        part=Part.GRAPHS,
        size=size,
        low=Bytes(int(size * low)),
        high=Bytes(int(size * high)),
        basis=Basis.BOUND if manager.untold else Basis.ESTIMATE,
        because=because,
    )


# Outside of the pools


def _outputs(resolution: Resolution, target: _Manager, stage: Stage) -> int:
    """Tensors as wide as the hidden state that FULL graphs leave, on the last stage for the sampler and the drafter.

    Source: vllm/v1/worker/gpu/cudagraph_utils.py: ModelCudaGraphManager.capture.
    """
    if stage.is_last or not target.forward.hidden:
        return 1 + aux_layers(resolution)
    return target.forward.handed_on + len(target.forward.aux_layers)


def _output_lines(
    target: _Manager, count: int, bound: Tokens, allocator: Callable[[], Allocator]
) -> Iterator[MemoryLine]:
    """The buffers that FULL graphs copy the target's outputs to, and the segments that they keep from being freed.

    They are made after the first eager run, before its tensors are given back, from whatever free block fits.  Which
    one that is turns on small things, so a whole call's accumulators are the upper end.
    """
    if not target.forward.hidden:
        return
    tokens = max(target.widest_piecewise, target.widest_full)
    size = Bytes(tokens * count * target.forward.hidden)
    because = f"{tokens} tokens x {count} tensors x {target.forward.hidden} bytes"
    yield exact_line(f"target: {_OUTPUTS}", Holder.TARGET, Part.GRAPHS, size, because)
    kept = Bytes(max(_kept_by_outputs(target, tokens, count, bound, allocator()) - size, 0))
    because = f"rest of the segments that the first eager run of {tokens} tokens left, which the capture outputs share"
    line = _line(target, f"memory kept by {_OUTPUTS}", kept, 0.0, 1.0, because)
    one_call = max(target.forward.accumulators, default=0) * tokens if tokens <= bound else 0
    yield replace(line, high=Bytes(max(kept, one_call)))


def _kept_by_outputs(target: _Manager, tokens: Tokens, count: int, bound: Tokens, memory: Allocator) -> Bytes:
    """What stays of the first eager run, of as many tokens as the widest graph has."""
    live = target.forward.run(memory, tokens, _eager_attention(tokens, bound, Attention.OF_SHORT_CONTEXT))
    for _ in range(count):
        memory.take(target.forward.hidden * tokens, _OUTPUTS)
    memory.give(*live.all)
    return memory.kept_bytes


def _eager_rest(target: _Manager, count: int, bound: Tokens) -> Bytes:
    """What the eager run before the second FULL graph leaves in the allocator.

    The capture of the first one has given back all that the runs before left, but for the segments of the outputs.
    Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture.
    """
    sizes = sorted((shape.tokens for shape in target.full), reverse=True)
    if len(sizes) < PROFILED_FULL_GRAPHS.value:
        return Bytes(0)
    memory, widest = CachingAllocator(), Tokens(max(target.widest_piecewise, target.widest_full))
    _kept_by_outputs(target, widest, count, bound, memory)
    for tokens in sizes[: PROFILED_FULL_GRAPHS.value]:
        memory.release()
        kept_bytes = memory.reserved_bytes
        attention = _eager_attention(tokens, bound, Attention.OF_ANY_CONTEXT)
        memory.give(*target.forward.run(memory, tokens, attention).all)
    return Bytes(memory.reserved_bytes - kept_bytes)


def _eager_attention(tokens: int, bound: Tokens, attention: Attention) -> Attention:
    """Steps beyond the bound split no keys, so that what their attention takes for itself is little."""
    return attention if tokens <= bound else Attention.LEFT_OUT


def _workspace_lines(
    resolution: Resolution, managers: tuple[_Manager, ...], remedies: frozenset[GraphRemedy]
) -> Iterator[MemoryLine]:
    capability = resolution.device.compute_capability
    each = BLAS_WORKSPACE.value if capability >= (9, 0) else OLDER_BLAS_WORKSPACE.value
    streams = managers[:1] if GraphRemedy.ONE_CAPTURE_STREAM in remedies else managers
    for runner, own in groupby(streams, key=lambda manager: manager.runner):
        count = len(tuple(own))
        size = Bytes(count * each)
        because = f"{count} capture streams x {size_words(each)}"
        yield exact_line(f"{runner}: {_WORKSPACE}", _HOLDERS[runner], Part.GRAPHS, size, because)


# Objects of the driver


def _object_lines(resolution: Resolution, manager: _Manager) -> Iterator[MemoryLine]:
    full, layers = _full_object(resolution, manager.forward), manager.forward.layers
    if manager.piecewise:
        pieces, count = layers + 1, len(manager.piecewise)
        because = f"{count} sizes x ({size_words(full)} of kernels + {pieces} pieces x {size_words(PIECE.value)})"
        size = Bytes(count * (full + pieces * PIECE.value))
        yield _line(manager, _PIECEWISE_OBJECTS, size, 0.6, 1.7, because)
    if manager.full:
        count, each = len(manager.full), manager.passes * full
        because = f"{count} graphs x {size_words(each)} of kernels"
        yield _line(manager, _FULL_OBJECTS, Bytes(count * each), 0.6, 1.7, because)


def _full_object(resolution: Resolution, forward: ModelPass) -> Bytes:
    return Bytes(forward.layers * _layer_nodes(resolution, forward).value)


def _layer_nodes(resolution: Resolution, forward: ModelPass) -> Sourced[Bytes]:
    """Compressed attention, and experts from compute capability 10.0 on, have kernels with far more arguments."""
    is_compressed = forward.has_parallel_states or resolution.request.target.traits.uses_sparse_index
    if is_compressed or (forward.router and resolution.device.compute_capability >= _WIDE_EXPERTS_FROM):
        return WIDE_LAYER_NODES
    return EXPERT_LAYER_NODES if forward.router else LAYER_NODES


def _is_profiled(line: MemoryLine) -> bool:
    of_full = line.owner.endswith(_FULL_OBJECTS) and line.holder is not Holder.TARGET
    return of_full or line.owner.endswith(_PIECEWISE_OBJECTS)

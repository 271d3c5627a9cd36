"""How far the captures of each manager make the pools grow.

Every manager captures on a stream of its own, and a pool's free blocks serve only their own stream.  So each manager
is played through on a model of the allocator: its widest PIECEWISE graph, then its widest FULL one; narrower graphs
fit into what those leave, but for PIECEWISE ones that keep outputs.  Space belongs to the tensor whose request made the
pool grow, which is also what an allocator trace of a real capture says.
Sources: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture; every capture under
vllm/v1/worker/gpu/spec_decode/.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.graph_memory import CAPTURE_ORDER
from servespec.compiler.graphs.shape import Runner
from servespec.compiler.memory.caching_allocator import Allocator
from servespec.compiler.memory.draft_logits import LOGITS, draft_logits
from servespec.compiler.memory.expert_workspace import EXPERTS
from servespec.compiler.memory.forward_passes import ModelPass
from servespec.compiler.memory.graph_manager import Manager
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.compiler.memory.line import MemoryLine
from servespec.compiler.memory.model_pass import (
    ACCUMULATORS,
    ACTIVATIONS,
    CONVERTED_SCORES,
    SCORES,
    Attention,
)
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes, Tokens

_REMEMBERED_POOLS = 8
_SPREAD = {
    ACCUMULATORS: (0.5, 1.6),
    LOGITS: (0.85, 1.15),
    SCORES: (0.97, 1.05),
}
_USUAL_SPREAD = (0.7, 1.4)


def pool_lines(
    resolution: Resolution,
    managers: tuple[Manager, ...],
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
    manager: Manager,
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


def _keeps_aux(resolution: Resolution, manager: Manager, remedies: frozenset[GraphRemedy]) -> bool:
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


def _kept_lines(manager: Manager, reserved_bytes: Bytes) -> Iterator[MemoryLine]:
    tokens, layers = sum(shape.tokens for shape in manager.piecewise), len(manager.forward.aux_layers)
    size = Bytes(tokens * layers * manager.forward.hidden)
    because = f"{tokens} tokens of all sizes x {layers} layers x {manager.forward.hidden} bytes"
    yield manager.line("auxiliary hidden states kept of every PIECEWISE size", size, 0.95, 1.1, because)
    yield from _grown_lines(manager, CudaGraphMode.PIECEWISE, {ACTIVATIONS: max(reserved_bytes - size, 0)})


def _grown_lines(manager: Manager, mode: CudaGraphMode, grown_bytes: Mapping[str, int]) -> Iterator[MemoryLine]:
    tokens = manager.widest_full if mode is CudaGraphMode.FULL else manager.widest_piecewise
    because = f"grown while the widest {mode} graph of {tokens} tokens is captured"
    for owner, size in grown_bytes.items():
        low, high = _SPREAD.get(owner, _USUAL_SPREAD)
        experts = manager.forward.experts
        if owner == EXPERTS and experts is not None:
            high *= experts.most_growth(tokens)
        line = manager.line(f"{owner} in {mode} graphs", Bytes(size), low, high, because)
        yield _with_scores(line, owner, manager)


def _with_scores(line: MemoryLine, owner: str, manager: Manager) -> MemoryLine:
    """Whether converted scores have one segment or two turns on small things, in each capture anew."""
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
        line,
        low=Bytes(int(min(segment, line.size) * low)),
        high=Bytes(int(max(2 * segment, line.size) * high)),
        moves_estimate=False,
    )

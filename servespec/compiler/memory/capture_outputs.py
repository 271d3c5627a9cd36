"""The buffers that FULL graphs leave the target's outputs in, and what an eager run leaves in the allocator."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from servespec.compiler.facts.graph_memory import PROFILED_FULL_GRAPHS
from servespec.compiler.memory.auxiliary_states import aux_layers
from servespec.compiler.memory.caching_allocator import Allocator, CachingAllocator
from servespec.compiler.memory.graph_manager import Manager
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line
from servespec.compiler.memory.model_pass import Attention
from servespec.compiler.memory.stage import Stage
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes, Tokens

_OUTPUTS = "capture outputs"


def output_count(resolution: Resolution, target: Manager, stage: Stage) -> int:
    """Tensors as wide as the hidden state that FULL graphs leave, on the last stage for the sampler and the drafter.

    Source: vllm/v1/worker/gpu/cudagraph_utils.py: ModelCudaGraphManager.capture.
    """
    if stage.is_last or not target.forward.hidden:
        return 1 + aux_layers(resolution)
    return target.forward.handed_on + len(target.forward.aux_layers)


def output_lines(
    target: Manager, count: int, bound: Tokens, allocator: Callable[[], Allocator]
) -> Iterator[MemoryLine]:
    """The buffers that FULL graphs copy the target's outputs to, and the segments that they keep from being freed.

    They are made after the first eager run, before its tensors are given back, from whatever free block fits.  Which
    one that is turns on small things, so the widest that was free is the upper end, or a whole call's accumulators.
    """
    if not target.forward.hidden:
        return
    tokens = max(target.widest_piecewise, target.widest_full)
    size = Bytes(tokens * count * target.forward.hidden)
    because = f"{tokens} tokens x {count} tensors x {target.forward.hidden} bytes"
    yield exact_line(f"target: {_OUTPUTS}", Holder.TARGET, Part.GRAPHS, size, because)
    all_kept, widest = _kept_by_outputs(target, tokens, count, bound, allocator())
    kept = Bytes(max(all_kept - size, 0))
    because = f"rest of the segments that the first eager run of {tokens} tokens left, which the capture outputs share"
    line = target.line(f"memory kept by {_OUTPUTS}", kept, 0.0, 1.0, because)
    one_call = max(target.forward.accumulators, default=0) * tokens if tokens <= bound else 0
    yield replace(line, high=Bytes(max(kept, one_call, widest - size)), moves_estimate=False)


def _kept_by_outputs(
    target: Manager, tokens: Tokens, count: int, bound: Tokens, memory: Allocator
) -> tuple[Bytes, Bytes]:
    """What stays of the first eager run, of as many tokens as the widest graph has, and the widest block free in it."""
    live = target.forward.run(memory, tokens, eager_attention(tokens, bound, Attention.OF_SHORT_CONTEXT))
    widest_bytes = memory.widest_free_bytes
    for _ in range(count):
        memory.take(target.forward.hidden * tokens, _OUTPUTS)
    memory.give(*live.all)
    return memory.kept_bytes, widest_bytes


def eager_rest(target: Manager, count: int, bound: Tokens) -> Bytes:
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
        attention = eager_attention(tokens, bound, Attention.OF_ANY_CONTEXT)
        memory.give(*target.forward.run(memory, tokens, attention).all)
    return Bytes(memory.reserved_bytes - kept_bytes)


def eager_attention(tokens: int, bound: Tokens, attention: Attention) -> Attention:
    """Steps beyond the bound split no keys, so that what their attention takes for itself is little."""
    return attention if tokens <= bound else Attention.LEFT_OUT

"""What the driver keeps of captured graphs, outside of the allocator."""

from collections.abc import Iterator
from dataclasses import replace

from servespec.compiler.facts.graph_memory import EXPERT_LAYER_NODES, LAYER_NODES, PIECE, WIDE_LAYER_NODES
from servespec.compiler.graphs.shape import Runner
from servespec.compiler.memory.forward_passes import ModelPass
from servespec.compiler.memory.graph_manager import Manager
from servespec.compiler.memory.line import Holder, MemoryLine
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Sourced
from servespec.units import Bytes, size_words

_PIECEWISE_OBJECTS = "objects of PIECEWISE graphs"
_FULL_OBJECTS = "objects of FULL graphs"
_WIDE_EXPERTS_FROM = (10, 0)


def object_lines(resolution: Resolution, manager: Manager) -> Iterator[MemoryLine]:
    """Of every PIECEWISE size the kernels and a graph for each piece; of a FULL graph the kernels of all its passes."""
    full, layers = full_object(resolution, manager.forward), manager.forward.layers
    if manager.piecewise:
        pieces, count = layers + 1, len(manager.piecewise)
        because = f"{count} sizes x ({size_words(full)} of kernels + {pieces} pieces x {size_words(PIECE.value)})"
        size = Bytes(count * (full + pieces * PIECE.value))
        yield manager.line(_PIECEWISE_OBJECTS, size, 0.6, 1.7, because)
    if manager.full:
        count, each = len(manager.full), manager.passes * full
        because = f"{count} graphs x {size_words(each)} of kernels"
        line = manager.line(_FULL_OBJECTS, Bytes(count * each), 0.6, 1.7, because)
        # Of the target's the engine captures two for its estimate.
        yield replace(line, moves_estimate=manager.runner is not Runner.TARGET)


def full_object(resolution: Resolution, forward: ModelPass) -> Bytes:
    """The kernels of one pass in one graph."""
    return Bytes(forward.layers * _layer_nodes(resolution, forward).value)


def _layer_nodes(resolution: Resolution, forward: ModelPass) -> Sourced[Bytes]:
    """Compressed attention, and experts from compute capability 10.0 on, took seven times as much; why is not known."""
    is_compressed = forward.has_parallel_states or resolution.request.target.traits.uses_sparse_index
    if is_compressed or (forward.router and resolution.device.compute_capability >= _WIDE_EXPERTS_FROM):
        return WIDE_LAYER_NODES
    return EXPERT_LAYER_NODES if forward.router else LAYER_NODES


def is_profiled(line: MemoryLine) -> bool:
    """Whether the engine captures such graphs for its estimate first, so that the driver has their memory already."""
    of_full = line.owner.endswith(_FULL_OBJECTS) and line.holder is not Holder.TARGET
    return of_full or line.owner.endswith(_PIECEWISE_OBJECTS)

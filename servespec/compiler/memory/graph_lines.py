"""What captured graphs hold on the worst rank, before anything is launched."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

from servespec.compiler.facts.graph_memory import BLAS_WORKSPACE, OLDER_BLAS_WORKSPACE
from servespec.compiler.graphs.shape import Runner, Shape, widest_tokens
from servespec.compiler.list_effects import split_bound_tokens
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.caching_allocator import Allocator, CachingAllocator
from servespec.compiler.memory.capture_outputs import output_count, output_lines
from servespec.compiler.memory.graph_manager import HOLDERS, Manager, in_row_chunks, managers_of, splits_of
from servespec.compiler.memory.graph_objects import object_lines
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.compiler.memory.line import MemoryLine, Part, exact_line
from servespec.compiler.memory.pool_growth import pool_lines
from servespec.compiler.memory.stage import WHOLE_MODEL, Stage
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes, size_words

_WORKSPACE = "workspace of matrix products"


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
    managers = managers_of(resolution, shapes, splits_of(resolution, shapes, lowering), stage)
    if GraphRemedy.INDEXER_ROW_CHUNKS in remedies:
        managers = tuple(replace(manager, forward=in_row_chunks(manager.forward)) for manager in managers)
    of_target = (
        line
        for manager in managers
        if manager.runner is Runner.TARGET
        for line in output_lines(manager, output_count(resolution, manager, stage), bound, allocator)
    )
    return (
        *of_target,
        *pool_lines(resolution, managers, remedies, allocator),
        *(line for manager in managers for line in object_lines(resolution, manager)),
        *_workspace_lines(resolution, managers, remedies),
    )


def is_workspace(line: MemoryLine) -> bool:
    """Of a capture stream, which stays for the next capture on it."""
    return line.owner.endswith(_WORKSPACE)


def _workspace_lines(
    resolution: Resolution, managers: tuple[Manager, ...], remedies: frozenset[GraphRemedy]
) -> Iterator[MemoryLine]:
    capability = resolution.device.compute_capability
    each = BLAS_WORKSPACE.value if capability >= (9, 0) else OLDER_BLAS_WORKSPACE.value
    streams = managers[:1] if GraphRemedy.ONE_CAPTURE_STREAM in remedies else managers
    for runner, own in groupby(streams, key=lambda manager: manager.runner):
        count = len(tuple(own))
        size = Bytes(count * each)
        because = f"{count} capture streams x {size_words(each)}"
        yield exact_line(f"{runner}: {_WORKSPACE}", HOLDERS[runner], Part.GRAPHS, size, because)

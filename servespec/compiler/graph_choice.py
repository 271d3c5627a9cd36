"""What a bound on graph memory makes of the sizes that a spec leaves open.

The later stages are asked as functions: which graphs each choice gives under its lowering, and what those take by the
middle of each line's error bar.  High ends are half as much again for most plans, and to hold those would leave a third
of what was asked for unused; the finding that tells of the choice names both ends.
"""

from collections.abc import Callable
from dataclasses import replace

from servespec.compiler.captured import captured, choose_lowering
from servespec.compiler.extension import can_take_extension
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.graphs.extents import space_of
from servespec.compiler.graphs.split import CaptureFields, split_shapes
from servespec.compiler.graphs.stock import TokenList
from servespec.compiler.memory.caching_allocator import Allocator, CachingAllocator, PerfectAllocator
from servespec.compiler.memory.graph_lines import graph_lines
from servespec.compiler.memory.ledger import Ledger, with_most_graphs
from servespec.compiler.memory.line import Part
from servespec.compiler.memory.stage import stages_of
from servespec.compiler.memory.within_bound import Cost, GraphChoice, best_within
from servespec.compiler.remedies import graph_remedies
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Origin, Resolved
from servespec.units import Bytes, size_words


def graph_choice(resolution: Resolution, fields: CaptureFields, stock_list: TokenList) -> GraphChoice | None:
    """What the bound on graph memory makes of the sizes that ``fields`` leave open; None where it chooses nothing."""
    bound = resolution.request.spec.memory.max_cudagraph_memory
    named, is_v1 = resolution.request.spec.engine.lowering, resolution.runner is ModelRunner.V1
    if bound is None or is_v1 or is_cpu(resolution.device) or named == "none":
        return None
    has_own_sizes = resolution.engine.has_split_fields or can_take_extension(resolution)
    space = space_of(
        resolution.frame,
        fields,
        resolution.defaults,
        stock_list,
        one_list=named == "legacy" or not has_own_sizes,
    )
    if space is None:
        return None

    def cost_by(allocator: Callable[[], Allocator]) -> Cost:
        return lambda chosen: graph_bytes(replace(resolution, fields=chosen), stock_list, allocator)

    return best_within(space, Bytes(bound), cost_by(CachingAllocator), cost_by(PerfectAllocator))


def graph_bytes(resolution: Resolution, stock_list: TokenList, allocator: Callable[[], Allocator]) -> Bytes:
    """What the graphs of the fields take, by the middle of each line's error bar, on the stage where that is most."""
    asked = split_shapes(resolution.frame, resolution.fields, resolution.defaults, stock_list)
    lowering, token_list = choose_lowering(resolution, asked, stock_list)
    shapes = captured(resolution, lowering, asked, token_list)
    remedies = graph_remedies(resolution, asked, lowering)
    by_stage = (
        graph_lines(resolution, shapes, lowering, remedies, allocator, stage)
        for stage in stages_of(resolution.request.spec)
    )
    return Bytes(max(sum(line.size for line in lines) for lines in by_stage))


def alternative_choice(
    resolution: Resolution, stock_list: TokenList, choice: GraphChoice | None, stages: tuple[Ledger, ...]
) -> GraphChoice | None:
    """What the bound would make of a spec without any sizes, where with those that are written it is exceeded."""
    bound = resolution.request.spec.memory.max_cudagraph_memory
    is_within = not stages or bound is None or with_most_graphs(stages).of(Part.GRAPHS).size <= bound
    if is_within or (choice is not None and choice.fits):
        return None
    found = graph_choice(resolution, _without_sizes(resolution.fields), stock_list)
    return found if found is not None and found.fits else None


def with_choice(resolution: Resolution, choice: GraphChoice) -> Resolution:
    """A resolution with the chosen fields in force and among its values."""
    which = "the widest" if choice.fits else "the smallest, which is still not"
    because = f"{which} within `memory.max_cudagraph_memory`, {size_words(choice.bound_bytes)}"
    values = {
        f"compilation.{name}": Resolved(value, Origin.DERIVED, because) for name, value in choice.settings.items()
    }
    return replace(resolution, fields=choice.fields, values={**resolution.values, **values})


def _without_sizes(fields: CaptureFields) -> CaptureFields:
    """A kind that is switched off stays so."""
    return CaptureFields(
        prefill_sizes_tokens=() if fields.prefill_sizes_tokens == () else None,
        decode_sizes_requests=() if fields.decode_sizes_requests == () else None,
    )

"""What to change in a spec so that it fits: the smallest change of each of several fields.

Each is tried as a person would: the ledger is made anew for the spec with the change, so that what follows from it,
such as other graphs and another estimate of them, is in the answer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from servespec.compiler.memory.kv_cache import KvCache
from servespec.compiler.memory.ledger import Fit, Ledger, blocks_override, deciding
from servespec.compiler.memory.line import Part
from servespec.compiler.parallel_ranks import world_ranks
from servespec.compiler.resolve.request import max_model_len
from servespec.compiler.resolve.resolution import Resolution
from servespec.schema.capture_fields import LEGACY_FIELDS, NEW_FIELDS
from servespec.schema.spec import ServingSpec
from servespec.units import Bytes

LedgerOf = Callable[[ServingSpec], Ledger | None]
"""The ledger of the same request with another spec."""

# chosen: the driver and other processes need what is above, unless the spec itself goes beyond
_HIGHEST_HUNDREDTHS = 97
_MOST_RANKS = 64
# chosen: whoever asks for a context has no use for a 32nd of it
_SHORTEST_SHARE = 32
_MIB = 1 << 20
# chosen: the widest bound that fits is found to within a 64th of today's graph memory; each try is a search of its own
_GRAPH_EIGHTHS, _GRAPH_HALVINGS = (7, 6, 5, 4, 3, 2, 1), 3


@dataclass(frozen=True, slots=True)
class FittingChanges:
    """``changes`` that each make it fit, as the fields to write; ``helpless`` are fields that alone cannot."""

    changes: tuple[str, ...] = ()
    helpless: tuple[str, ...] = ()


NO_CHANGES = FittingChanges()


def fitting_changes(resolution: Resolution, stages: Sequence[Ledger], ledger_of: LedgerOf) -> FittingChanges:
    """Changes that make it fit at the high ends of the error bars too.

    ``stages`` are the ledgers of all pipeline stages, which have the budget and a set KV cache in common.
    """
    ledger = deciding(stages)
    size_field, sizes = _size_of_cache(resolution.request.spec, ledger, stages)
    found = {
        size_field: tuple(sizes),
        "model.max_model_len": tuple(_length(resolution, ledger, ledger_of)),
        "parallel.tensor_parallel_size": tuple(_tensor_parallel(resolution, ledger, ledger_of)),
        "memory.max_cudagraph_memory": tuple(_graph_bound(resolution, ledger, ledger_of)),
    }
    return FittingChanges(
        changes=tuple(change for changes in found.values() for change in changes),
        helpless=tuple(field for field, changes in found.items() if not changes),
    )


def _size_of_cache(spec: ServingSpec, ledger: Ledger, stages: Sequence[Ledger]) -> tuple[str, Iterator[str]]:
    """The field that says how large the KV cache is, and what to write there."""
    if ledger.pinned_bytes is None or ledger.is_short_by_share:
        return "memory.gpu_memory_utilization", _utilization(stages)
    if blocks_override(spec) is not None:
        return "memory.num_gpu_blocks_override", _blocks(stages)
    return "memory.kv_cache_memory_bytes", _pinned(stages)


def _is_safe(ledger: Ledger | None) -> bool:
    return ledger is not None and ledger.fits in (Fit.YES, Fit.UNKNOWN)


def _with(spec: ServingSpec, section: str, **fields: Any) -> ServingSpec:
    return spec.model_copy(update={section: getattr(spec, section).model_copy(update=fields)})


def _pinned(stages: Sequence[Ledger]) -> Iterator[str]:
    """The largest cache that the device holds, or the smallest that holds a request where less is asked for."""
    smallest = max(ledger.smallest_cache_bytes for ledger in stages)
    most = min(ledger.all_lines.left_of(ledger.device_bytes).low for ledger in stages)
    is_too_small = any((ledger.pinned_bytes or 0) < ledger.smallest_cache_bytes for ledger in stages)
    steps = ceil(smallest / _MIB) if is_too_small else most // _MIB
    if all(_is_safe(replace(ledger, pinned_bytes=Bytes(steps * _MIB))) for ledger in stages):
        yield f"`memory.kv_cache_memory_bytes: {steps}MiB`"


def _blocks(stages: Sequence[Ledger]) -> Iterator[str]:
    """The same in blocks, which every stage has as many of."""
    caches = [(ledger, ledger.kv) for ledger in stages if isinstance(ledger.kv, KvCache)]
    least = max((kv.request_blocks + 1 for _, kv in caches), default=0)
    rooms = (ledger.all_lines.left_of(ledger.device_bytes).low // kv.block_bytes for ledger, kv in caches)
    most = min(rooms, default=0)
    is_too_small = any((ledger.pinned_bytes or 0) < ledger.smallest_cache_bytes for ledger in stages)
    blocks = least if is_too_small else most
    if blocks and all(_is_safe(replace(one, pinned_bytes=Bytes(blocks * kv.block_bytes))) for one, kv in caches):
        yield f"`memory.num_gpu_blocks_override: {blocks}`"


def _utilization(stages: Sequence[Ledger]) -> Iterator[str]:
    """The smallest larger share that holds a request, or the largest smaller one that leaves room beside the budget.

    Beside a set KV cache it is only what the engine must find free.
    """
    device_bytes, budget_bytes = stages[0].device_bytes, stages[0].budget_bytes
    needed = max(ledger.spent.high + ledger.smallest_cache_bytes for ledger in stages)
    excess = max(ledger.whole.high for ledger in stages) - device_bytes
    free = min(ledger.free_at_start.low for ledger in stages)
    highest = max(_HIGHEST_HUNDREDTHS, 100 * budget_bytes // device_bytes)
    if stages[0].pinned_bytes is not None:
        hundredths = min(100 * free // device_bytes, highest)
    elif budget_bytes < needed:
        hundredths = ceil(100 * needed / device_bytes)
    else:
        hundredths = min(100 * min(budget_bytes - excess, free) // device_bytes, highest)
    changed = Bytes(ceil(device_bytes * (hundredths / 100)))
    if hundredths <= highest and all(_is_safe(replace(one, budget_bytes=changed)) for one in stages):
        yield f"`memory.gpu_memory_utilization: {hundredths / 100}`"


def _length(resolution: Resolution, _: Ledger, ledger_of: LedgerOf) -> Iterator[str]:
    request = resolution.request
    asked = max_model_len(request).value

    def holds(tokens: int) -> bool:
        return _is_safe(ledger_of(_with(request.spec, "model", max_model_len=tokens)))

    if asked is None or not holds(1):
        return
    longest = _largest(asked, holds)
    if asked // _SHORTEST_SHARE <= longest < asked:
        yield f"`model.max_model_len: {longest}`"


def _largest(limit: int, holds: Callable[[int], bool]) -> int:
    """A number up to a limit that the condition holds for and its successor not; the largest where it only falls."""
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _tensor_parallel(resolution: Resolution, _: Ledger, ledger_of: LedgerOf) -> Iterator[str]:
    spec, heads = resolution.request.spec, resolution.request.target.traits.num_attention_heads
    ranks = spec.parallel.tensor_parallel_size * 2
    while heads and heads % ranks == 0 and ranks <= _MOST_RANKS:
        wider = _with(spec, "parallel", tensor_parallel_size=ranks)
        devices = world_ranks(wider)
        wider = _with(wider, "hardware", count=max(devices, spec.hardware.count))
        if _is_safe(ledger_of(wider)):
            more = f" with `hardware.count: {devices}`" if devices > spec.hardware.count else ""
            yield f"`parallel.tensor_parallel_size: {ranks}`{more}"
            return
        ranks *= 2


def _graph_bound(resolution: Resolution, ledger: Ledger, ledger_of: LedgerOf) -> Iterator[str]:
    """A bound on graphs, where without any it would fit.

    Sizes that are written would be held, so they go; a kind that is switched off stays so.
    """
    others = tuple(line for line in ledger.lines if line.part is not Part.GRAPHS)
    spec, graphs = resolution.request.spec, ledger.of(Part.GRAPHS)
    if not graphs.size or not _is_safe(replace(ledger, lines=others, estimate=None)):
        return
    written = {name: getattr(spec.compilation, name) for name in (*NEW_FIELDS, *LEGACY_FIELDS)}
    sizes = [name for name, value in written.items() if value not in (None, ())]
    bare = _with(spec, "compilation", **dict.fromkeys(sizes))
    instead = f" in place of {' and '.join(f'`{name}`' for name in sizes)}" if sizes else ""

    def holds(bound_bytes: int) -> bool:
        narrower = ledger_of(_with(bare, "memory", max_cudagraph_memory=bound_bytes)) if bound_bytes else None
        return narrower is not None and _is_safe(narrower) and narrower.of(Part.GRAPHS).size <= bound_bytes

    bound_bytes = _widest_bound(graphs.size, holds)
    if bound_bytes:
        yield f"`memory.max_cudagraph_memory: {bound_bytes // _MIB}MiB`{instead}"


def _widest_bound(graph_bytes: int, holds: Callable[[int], bool]) -> int:
    """The first eighth that fits, then halfway to the one that does not, a few times; 0 where none fits."""
    steps = [graph_bytes * eighths // 8 // _MIB * _MIB for eighths in _GRAPH_EIGHTHS]
    found = next((step for step in steps if holds(step)), 0)
    if not found:
        return 0
    above = min(found + graph_bytes // 8, graph_bytes)
    for _ in range(_GRAPH_HALVINGS):
        middle = (found + above) // 2 // _MIB * _MIB
        found, above = (middle, above) if holds(middle) else (found, middle)
    return found

"""What to change in a spec so that it fits: the smallest change of each of several fields."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil

from servespec.compiler.memory.ledger import Fit, Ledger, ledger_of, with_spec
from servespec.compiler.memory.line import Part
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes

# chosen: the driver and other processes need what is above
_HIGHEST_SHARE = 0.97
_MOST_RANKS = 64
_PINNED_STEP_BYTES = 1 << 20


def fitting_changes(resolution: Resolution, ledger: Ledger) -> tuple[str, ...]:
    """Changes that each make it fit at the high ends of the error bars too, as the fields to write."""
    found = _pinned(ledger) if ledger.pinned_bytes is not None else (*_utilization(ledger), *_less_utilization(ledger))
    return (*found, *_length(ledger), *_tensor_parallel(resolution, ledger))


def _is_safe(ledger: Ledger) -> bool:
    return ledger.fits in (Fit.YES, Fit.UNKNOWN)


def _pinned(ledger: Ledger) -> Iterator[str]:
    """The largest cache that the device holds, or the smallest that holds a request where less is asked for."""
    least = ceil(ledger.smallest_cache_bytes / _PINNED_STEP_BYTES)
    most = ledger.all_lines.left_of(ledger.device_bytes).low // _PINNED_STEP_BYTES
    assert ledger.pinned_bytes is not None
    steps = least if ledger.pinned_bytes < ledger.smallest_cache_bytes else most
    if _is_safe(replace(ledger, pinned_bytes=Bytes(steps * _PINNED_STEP_BYTES))):
        yield f"`memory.kv_cache_memory_bytes: {steps}MiB`"


def _utilization(ledger: Ledger) -> Iterator[str]:
    needed = ledger.spent.high + ledger.smallest_cache_bytes
    share = ceil(100 * needed / ledger.device_bytes) / 100
    wider = replace(ledger, budget_bytes=Bytes(ceil(ledger.device_bytes * share)))
    if ledger.budget_bytes < needed and share <= _HIGHEST_SHARE and _is_safe(wider):
        yield f"`memory.gpu_memory_utilization: {share}`"


def _less_utilization(ledger: Ledger) -> Iterator[str]:
    """The largest share that leaves room for what the budget does not hold; the KV cache gives it."""
    excess = ledger.whole.high - ledger.device_bytes
    share = (100 * (ledger.budget_bytes - excess) // ledger.device_bytes) / 100
    narrower = replace(ledger, budget_bytes=Bytes(ceil(ledger.device_bytes * share)))
    if excess > 0 and _is_safe(narrower):
        yield f"`memory.gpu_memory_utilization: {share}`"


def _length(ledger: Ledger) -> Iterator[str]:
    kv = ledger.kv
    if isinstance(kv, str):
        return
    asked = kv.request.max_model_len_tokens
    longest = _largest(asked, lambda tokens: _is_safe(replace(ledger, kv=kv.at(tokens))))
    if 0 < longest < asked:
        yield f"`model.max_model_len: {longest}`"


def _largest(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to a limit that a falling condition holds for, 0 where none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _tensor_parallel(resolution: Resolution, ledger: Ledger) -> Iterator[str]:
    """Graphs are taken to be as large on more ranks."""
    spec, heads = resolution.request.spec, resolution.request.target.traits.num_attention_heads
    graphs = tuple(line for line in ledger.lines if line.part is Part.GRAPHS)
    ranks = spec.parallel.tensor_parallel_size * 2
    while heads and heads % ranks == 0 and ranks <= _MOST_RANKS:
        parallel = spec.parallel.model_copy(update={"tensor_parallel_size": ranks})
        wider = with_spec(resolution, spec.model_copy(update={"parallel": parallel}))
        made = ledger_of(wider, graphs, ledger.estimate)
        if made is not None and _is_safe(made):
            devices = ranks * parallel.pipeline_parallel_size * parallel.data_parallel_size
            more = f" with `hardware.count: {devices}`" if devices > spec.hardware.count else ""
            yield f"`parallel.tensor_parallel_size: {ranks}`{more}"
            return
        ranks *= 2

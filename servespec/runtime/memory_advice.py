"""The smallest change of the spec with which an engine that ran out of device memory fits, and what the change costs.

What the engine states itself is answered from a table of its messages; a failed allocation by the phase it fell in.
A change that the compiler would refuse is not named.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, floor
from pathlib import Path
from typing import Final

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.coverage import Ran
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.compiler.pipeline import CompileRequest, compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, SpecError
from servespec.runtime.engine_log import Phase, log_end
from servespec.runtime.run_rules import OUT_OF_MEMORY
from servespec.runtime.shortage import Shortage, read_shortage
from servespec.schema.capture_fields import LEGACY_FIELDS

_GIB: Final = 1 << 30
_STEP: Final = 0.01
"""Of `memory.gpu_memory_utilization`."""
_ROUNDING_GIB: Final = 0.005
"""The engine prints two decimals."""
_SPREAD: Final = "spread the model with `parallel.tensor_parallel_size`"
_WHOLE_BLOCKS: Final = 1.1
"""The engine cuts the cache to whole blocks, of which it keeps some; a small cache is short by one otherwise."""


def advised(finding: Diagnostic, plan: Plan, folder: Path, log_path: Path) -> Diagnostic:
    """An out-of-memory finding with the graph and the change in it; any other unchanged."""
    if finding.rule is not OUT_OF_MEMORY:
        return finding
    log = log_end(log_path)
    for pattern, answer in _STATED.items():
        if found := pattern.search(log):
            return replace(finding, help=answer(found, plan))
    if "out of memory" not in log:
        return finding
    shortage = read_shortage(plan, folder, log_path)
    message = f"out of device memory while {_where(shortage, plan)}: {finding.message}"
    return replace(finding, message=message, help=", or ".join(_changes(shortage, plan)))


# What the engine states


def _too_little_free(found: "re.Match[str]", plan: Plan) -> str:
    free, total = float(found["free"]), float(found["total"])
    share = _hundredths((free - _ROUNDING_GIB) / (total + _ROUNDING_GIB))
    stop = f"stop what else uses the device: {total - free:.1f} GiB of it were in use before the start"
    if _with_share(plan, share) is None:
        return stop
    return f"write `memory.gpu_memory_utilization: {share:.2f}` (now {found['share']}), or {stop}"


def _no_cache(_found: "re.Match[str]", plan: Plan) -> str:
    return (
        f"weights, activations and graphs leave nothing of {_share(plan):.2f} of the device for the KV cache: raise "
        f"`memory.gpu_memory_utilization`, lower `scheduler.max_num_batched_tokens` (now {_step_tokens(plan)}), or "
        "spread the model with `parallel.tensor_parallel_size`"
    )


def _cache_below_one_request(found: "re.Match[str]", plan: Plan) -> str:
    fitting = found["fitting"]
    shorter = f"write `model.max_model_len: {fitting}` (now {found['length']})" if fitting else None
    more = _more_cache(float(found["needed"]), float(found["available"]), plan)
    return ", or ".join(filter(None, (shorter, more))) or _SPREAD


def _more_cache(needed_gib: float, available_gib: float, plan: Plan) -> str | None:
    enough_gib = needed_gib * _WHOLE_BLOCKS + _ROUNDING_GIB
    pinned_bytes = plan.resolution.request.spec.memory.kv_cache_memory_bytes
    if pinned_bytes is not None:
        enough_bytes = ceil(enough_gib * _GIB)
        if _with_cache(plan, enough_bytes) is None:
            return None
        return f"write `memory.kv_cache_memory_bytes: {enough_bytes}` (now {pinned_bytes})"
    missing_gib = enough_gib - available_gib + _ROUNDING_GIB
    if missing_gib * _GIB > (1 - _share(plan)) * plan.resolution.device.total_memory_bytes:
        return None
    return f"give the KV cache {missing_gib:.2f} GiB more, with a higher `memory.gpu_memory_utilization`"


_STATED: Final[Mapping["re.Pattern[str]", Callable[["re.Match[str]", Plan], str]]] = {
    re.compile(
        r"Free memory on device \S+ \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than "
        r"desired GPU memory utilization \((?P<share>[\d.]+)"
    ): _too_little_free,
    re.compile("No available memory for the cache blocks"): _no_cache,
    re.compile(
        r"max seq len \((?P<length>\d+)\), \((?P<needed>[\d.]+) GiB KV cache is needed, which is larger than the "
        r"available KV cache memory \((?P<available>[\d.]+) GiB\)"
        r"(?:.*estimated maximum model length is (?P<fitting>\d+))?"
    ): _cache_below_one_request,
}
"""Source: vllm/v1/worker/utils.py: request_memory; vllm/v1/core/kv_cache_planning.py: _check_enough_kv_cache_memory."""


# What failed to be allocated


def _where(shortage: Shortage, plan: Plan) -> str:
    words = [str(shortage.phase)]
    if shortage.shape is not None:
        words.append(f"at {_name(shortage.shape)}")
    if shortage.captured_graphs is not None:
        words.append(f"graph {shortage.captured_graphs + 1} of {len(plan.graphs.shapes)}")
    if shortage.free_bytes is not None:
        words.append(f"{_gib(shortage.free_bytes)} of {_gib(shortage.total_bytes)} GiB were free")
    return ", ".join(words)


def _name(shape: Shape) -> str:
    requests = "" if shape.requests is None else f", {shape.requests} requests"
    return f"`{shape.runner} {shape.routine}` {shape.mode} of {shape.tokens} tokens{requests}"


def _changes(shortage: Shortage, plan: Plan) -> Iterator[str]:
    """The smallest first."""
    match shortage.phase:
        case Phase.STARTING | Phase.LOADING:
            yield "spread the weights with `parallel.tensor_parallel_size`, take a quantized model"
            yield "stop what else uses the device"
        case Phase.PROFILING | Phase.COMPILING:
            yield from _smaller_steps(plan)
            yield _SPREAD
        case _:
            changes = (*_less_cache(shortage, plan), *_fewer_graphs(shortage, plan))
            yield from changes or (_SPREAD, "stop what else uses the device")


def _smaller_steps(plan: Plan) -> Iterator[str]:
    tokens = _step_tokens(plan)
    if _changed(plan, "scheduler", max_num_batched_tokens=tokens // 2) is not None:
        yield f"write `scheduler.max_num_batched_tokens: {tokens // 2}` (now {tokens}): prompts take more steps"


def _less_cache(shortage: Shortage, plan: Plan) -> Iterator[str]:
    """The KV cache gives what the failed allocation lacked, or, where that is more, what the plan has too much.

    Nothing where that is more than it has.
    """
    missing_bytes = _missing_bytes(shortage, plan)
    pinned_bytes = plan.resolution.request.spec.memory.kv_cache_memory_bytes
    if pinned_bytes is not None:
        if _with_cache(plan, pinned_bytes - missing_bytes) is not None:
            yield f"write `memory.kv_cache_memory_bytes: {pinned_bytes - missing_bytes}` (now {pinned_bytes})"
        return
    steps = max(1, ceil(missing_bytes / shortage.total_bytes / _STEP))
    taken = _gib(round(steps * _STEP * shortage.total_bytes))
    now = _share(plan)
    lower = _hundredths(now - steps * _STEP)
    if _with_share(plan, lower) is not None:
        yield f"write `memory.gpu_memory_utilization: {lower:.2f}` (now {now:g}): {taken} GiB less KV cache"


def _missing_bytes(shortage: Shortage, plan: Plan) -> int:
    """What failed is seldom the last that is to come; the ledger has all of it, and the peak of a step."""
    lacking = max((shortage.wanted_bytes or 0) - (shortage.free_bytes or 0), 0)
    ledger = plan.ledger
    overdrawn = 0 if ledger is None else ledger.all_lines.size + ledger.cache.size - ledger.device_bytes
    return max(lacking, overdrawn)


def _fewer_graphs(shortage: Shortage, plan: Plan) -> Iterator[str]:
    """The highest cap with which the plan has no more graphs than were captured: the widest ones go, each as large."""
    if shortage.shape is None or not shortage.captured_graphs or _is_legacy(plan):
        return
    kinds = (_FULL, _PIECEWISE) if shortage.shape.mode is CudaGraphMode.FULL else (_PIECEWISE, _FULL)
    changes = (_lower_cap(plan, kind, shortage.captured_graphs) for kind in kinds)
    yield from [change for change in changes if change is not None][:1]


def _lower_cap(plan: Plan, kind: "_Kind", most_graphs: int) -> str | None:
    """The change to the highest cap of a kind with which the plan has ``most_graphs``; None where none is enough."""
    for limit in sorted({one.size for one in plan.graphs.shapes if one.routine is kind.routine}, reverse=True)[1:]:
        other = _limited(plan, kind, limit)
        if other is not None and len(other.graphs.shapes) <= most_graphs:
            return f"{_written(plan, kind, limit)}: {len(other.graphs.shapes)} graphs{kind.cost(other, limit)}"
    return None


def _written(plan: Plan, kind: "_Kind", limit: int) -> str:
    if getattr(plan.resolution.request.spec.compilation, kind.sizes_field):
        return f"take the sizes above {limit} out of `compilation.{kind.sizes_field}`"
    return f"write `compilation.{kind.cap_field}: {limit}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One kind of graph, the fields that size it, and what becomes of steps above a new cap."""

    routine: Routine
    cap_field: str
    sizes_field: str
    cost: Callable[[Plan, int], str]


def _decode_cost(plan: Plan, limit: int) -> str:
    ranges = [one for one in plan.graphs.coverage.decode if one.runner is Runner.TARGET and one.to_requests > limit]
    worse = (list(group) for ran, group in groupby(ranges, lambda one: one.ran) if ran in _WORSE)
    return "".join(
        f"; decode batches of {max(group[0].from_requests, limit + 1)}-{group[-1].to_requests} requests "
        f"{_WORSE[group[0].ran]}"
        for group in worse
    )


def _prefill_cost(plan: Plan, limit: int) -> str:
    above = [one for one in plan.graphs.coverage.prefill if one.to_tokens > limit and one.ran is Ran.EAGER]
    return f"; steps of {above[0].from_tokens}-{above[-1].to_tokens} tokens run eagerly" if above else ""


_WORSE: Final = {Ran.PIECEWISE: "run on PIECEWISE graphs", Ran.EAGER: "run eagerly"}
_FULL: Final = _Kind(
    routine=Routine.UNIFORM_DECODE,
    cap_field="max_decode_cudagraph_capture_requests",
    sizes_field="decode_cudagraph_capture_request_sizes",
    cost=_decode_cost,
)
_PIECEWISE: Final = _Kind(
    routine=Routine.PIECEWISE,
    cap_field="max_prefill_cudagraph_capture_tokens",
    sizes_field="prefill_cudagraph_capture_token_sizes",
    cost=_prefill_cost,
)


def _limited(plan: Plan, kind: _Kind, limit: int) -> Plan | None:
    """The plan of the same spec with its graphs of a kind up to ``limit``; None where the spec would be refused."""
    sizes = getattr(plan.resolution.request.spec.compilation, kind.sizes_field)
    change = {kind.sizes_field: tuple(one for one in sizes if one <= limit)} if sizes else {kind.cap_field: limit}
    return _changed(plan, "compilation", **change)


def _with_share(plan: Plan, share: float) -> Plan | None:
    """The plan with another `gpu_memory_utilization`; None where the spec would be refused."""
    return _changed(plan, "memory", gpu_memory_utilization=share) if share > 0 else None


def _with_cache(plan: Plan, size_bytes: int) -> Plan | None:
    """The plan with another pinned KV cache; None where the spec would be refused."""
    return _changed(plan, "memory", kv_cache_memory_bytes=size_bytes) if size_bytes > 0 else None


def _changed(plan: Plan, section: str, **fields: object) -> Plan | None:
    """The plan of the same spec with other values in a section; None where the spec would be refused."""
    request = plan.resolution.request
    assert isinstance(request, CompileRequest)
    changed = getattr(request.spec, section).model_copy(update=fields)
    try:
        return compile_spec(replace(request, spec=request.spec.model_copy(update={section: changed})))
    except SpecError:
        return None


def _is_legacy(plan: Plan) -> bool:
    section = plan.resolution.request.spec.compilation
    return any(getattr(section, name) is not None for name in LEGACY_FIELDS)


def _share(plan: Plan) -> float:
    written = plan.resolution.request.spec.memory.gpu_memory_utilization
    flag = plan.resolution.request.table.flag("gpu_memory_utilization")
    assert flag is not None
    return float(flag.default if written is None else written)


def _step_tokens(plan: Plan) -> int:
    return plan.resolution.frame.max_num_batched_tokens


def _hundredths(share: float) -> float:
    """Rounded down; the inner rounding takes 0.07 for seven hundredths, and not for a little less."""
    return round(floor(round(share / _STEP, 6)) * _STEP, 2)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f}"

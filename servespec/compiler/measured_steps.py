"""Graphs of a plan above the last size that gained anything by the step times of an earlier run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from servespec.compiler import plan_rules as rules
from servespec.compiler.curves.step_times import StepTimes, TimedSize
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.coverage import Ran
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Rule


@dataclass(frozen=True, slots=True)
class _Kind:
    """Graphs of the target that one cap reaches, and what that cap is in."""

    routine: Routine
    mode: CudaGraphMode
    cap: str
    sizes: str
    unit: str

    def is_of(self, one: TimedSize) -> bool:
        return one.mode is self.mode and (one.query_len is not None) == (self.routine is Routine.UNIFORM_DECODE)


_KINDS: Final = (
    _Kind(
        Routine.UNIFORM_DECODE,
        CudaGraphMode.FULL,
        "max_decode_cudagraph_capture_requests",
        "decode_cudagraph_capture_request_sizes",
        "requests",
    ),
    _Kind(
        Routine.PIECEWISE,
        CudaGraphMode.PIECEWISE,
        "max_prefill_cudagraph_capture_tokens",
        "prefill_cudagraph_capture_token_sizes",
        "tokens",
    ),
)


def idle_graph_findings(plan: Plan, times: StepTimes) -> Iterator[Diagnostic]:
    """Captured sizes above the last one that was faster as a graph, where a larger one was timed."""
    for kind in _KINDS:
        last, idle = _last_that_paid(kind, times)
        wider = [shape for shape in plan.graphs.shapes if _is_of(kind, shape) and shape.size > last]
        if idle and wider:
            yield _idle(plan, kind, last, idle[-1], len(wider), times.name)


def _last_that_paid(kind: _Kind, times: StepTimes) -> tuple[int, list[TimedSize]]:
    """The size, 0 for none, and those above it."""
    timed = sorted((one for one in times.sizes if kind.is_of(one)), key=lambda one: one.size)
    last = max((one.size for one in timed if one.pays), default=0)
    return last, [one for one in timed if one.size > last]


def settled_rules(plan: Plan, times: StepTimes) -> Iterator[Rule]:
    """Those whose advice is a graph for steps that run eagerly, all of them where graphs gained nothing."""
    decode, prefill = _KINDS
    coverage = plan.graphs.coverage
    last, idle = _last_that_paid(decode, times)
    if idle and all(one.from_requests > last for one in coverage.eager(decode.routine)):
        yield rules.P101
    last, idle = _last_that_paid(prefill, times)
    if idle and all(one.from_tokens > last for one in coverage.prefill if one.ran is Ran.EAGER):
        yield from (rules.P106, rules.P107)


def _is_of(kind: _Kind, shape: Shape) -> bool:
    return shape.runner is Runner.TARGET and shape.routine is kind.routine


def _idle(plan: Plan, kind: _Kind, last: int, seen: TimedSize, count: int, name: str) -> Diagnostic:
    message = (
        f"{count} {kind.mode} graphs of the target, of more than {last} {kind.unit}, gain nothing by `{name}`: at "
        f"{seen.size} {kind.unit} eager takes {seen.ratio:.3f} of their time ({seen.low_95:.3f} to {seen.high_95:.3f})"
    )
    place = plan.resolution.request.source.place_of(("compilation", kind.cap))
    change = f"`compilation.{kind.cap}: {last}`" if last else f"`compilation.{kind.sizes}: []`"
    return rules.P138.at(place, message, f"write {change}; their memory and capture time go")

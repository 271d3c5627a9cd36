"""Step times of an earlier run, and the graphs of a plan above the last size that gained anything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from servespec.compiler import plan_rules as rules
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic

PAYS: Final = "pays"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSize:
    """One size in the mode that serves it: ``ratio`` is eager over the graph, with the 95 % interval of its mean.

    ``size`` is in requests of a decode, and in tokens of a step with prompts; ``query_len`` is None of the latter.
    """

    mode: CudaGraphMode
    size: int
    query_len: int | None
    ratio: float
    low_95: float
    high_95: float
    pays: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """``identity`` is what the engine was started with, apart from memory, address and graphs."""

    name: str
    identity: Mapping[str, str]
    sizes: tuple[TimedSize, ...]


def step_times_of(document: Mapping[str, Any], name: str) -> StepTimes:
    """From the document that `servespec steps` writes."""
    return StepTimes(
        name=name, identity=document["identity"], sizes=tuple(size for one in document["sizes"] for size in _timed(one))
    )


def _timed(size: Mapping[str, Any]) -> Iterator[TimedSize]:
    is_decode = size["kind"] == "decode"
    wanted = CudaGraphMode.FULL if is_decode else CudaGraphMode.PIECEWISE
    for mode in size["modes"]:
        if mode["mode"] == wanted and mode["eager_over_graph"] is not None:
            yield TimedSize(
                mode=wanted,
                size=size["requests"] if is_decode else size["tokens"],
                query_len=size["query_len"],
                pays=mode["verdict"] == PAYS,
                **mode["eager_over_graph"],
            )


@dataclass(frozen=True, slots=True)
class _Kind:
    """Graphs of the target that one cap reaches, and what that cap is in."""

    routine: Routine
    mode: CudaGraphMode
    cap: str
    sizes: str
    unit: str


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
        timed = sorted((one for one in times.sizes if one.mode is kind.mode), key=lambda one: one.size)
        last = max((one.size for one in timed if one.pays), default=0)
        idle = [one for one in timed if one.size > last]
        wider = [shape for shape in plan.graphs.shapes if _is_of(kind, shape) and shape.size > last]
        if idle and wider:
            yield _idle(plan, kind, last, idle[-1], len(wider), times.name)


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

"""The order of compilation, in one place: checks of the spec, resolution, graphs, lowering, checks of the plan.

``plan`` and ``serve`` both call :func:`compile_spec`, so they cannot differ.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from typing import Any

from servespec import __version__
from servespec.compiler import plan_rules
from servespec.compiler.captured import captured, choose_lowering, engine_shapes, stock_list_of
from servespec.compiler.checks import Findable, findings_of
from servespec.compiler.curves.step_times import StepTimes
from servespec.compiler.engine_refusals import engine_refusals
from servespec.compiler.extension import extension_obstacles
from servespec.compiler.facts.command_lines import LONGEST_ARGUMENT
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import Device, is_cpu
from servespec.compiler.facts.graph_sizes import FULL_CAPTURE_SECONDS, PIECEWISE_CAPTURE_SECONDS
from servespec.compiler.graph_choice import alternative_choice, graph_choice, with_choice
from servespec.compiler.graphs.coverage import DispatcherOf, coverage_of
from servespec.compiler.graphs.dispatch import engine_dispatcher, split_dispatcher
from servespec.compiler.graphs.hand_off import Remedy, hand_off
from servespec.compiler.graphs.managers import GraphFrame
from servespec.compiler.graphs.shape import Runner, Shape
from servespec.compiler.graphs.split import split_shapes
from servespec.compiler.graphs.stock import TokenList
from servespec.compiler.lower import Launch, Lowered, Lowering, lower
from servespec.compiler.measured_curve import curve_findings
from servespec.compiler.measured_memory import by_measurement, kv_cache_memory_bytes, measured_findings
from servespec.compiler.measured_steps import settled_rules
from servespec.compiler.memory.engine_estimate import engine_estimate, left_by_profiling
from servespec.compiler.memory.fitting_changes import NO_CHANGES, FittingChanges, fitting_changes
from servespec.compiler.memory.graph_lines import graph_lines
from servespec.compiler.memory.ledger import Fit, Ledger, deciding, ledger_of
from servespec.compiler.memory.line import MemoryLine
from servespec.compiler.memory.measurement import Measurement
from servespec.compiler.memory.stage import Stage, stages_of
from servespec.compiler.memory.within_bound import GraphChoice
from servespec.compiler.plan import GraphPlan, Inputs, Plan, StockPlan
from servespec.compiler.remedies import graph_remedies, handed_remedies, remedies_in_force, with_remedies
from servespec.compiler.remedy_savings import remedy_savings
from servespec.compiler.resolve.graph_request import model_ceiling, written_fields
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.compiler.resolve.request import ResolveRequest
from servespec.compiler.resolve.resolution import Resolution, resolve
from servespec.compiler.spec_checks import spec_findings
from servespec.diagnostics import Diagnostic, Severity, SpecError, has_errors, in_file_order
from servespec.schema.capture_fields import LEGACY_FIELDS, NEW_FIELDS
from servespec.schema.capture_rules import capture_findings
from servespec.units import Requests, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest(ResolveRequest):
    """A parsed spec and everything about the world that compiling it depends on.

    ``with_stock`` asks for the unmodified engine's plan beside ours.
    ``model_input`` and ``draft_input`` are the digests of the configs that the traits were read from.  ``measurement``
    is a launch whose memory stands in place of formulas, and ``step_times`` are of steps with and without graphs.
    """

    model_input: Mapping[str, str | None]
    draft_input: Mapping[str, str | None] | None
    allow_code: bool = False
    with_stock: bool = False
    measurement: Measurement | None = None
    step_times: StepTimes | None = None
    found: tuple[Diagnostic, ...] = ()


def compile_spec(request: CompileRequest) -> Plan:
    """The plan of a spec.

    Raises :class:`SpecError` with every finding where the spec is refused.
    """
    early = (
        *request.found,
        *spec_findings(request.spec, request.source, request.table, allow_code=request.allow_code),
    )
    if has_errors(early):
        raise SpecError((*early, *engine_refusals(request.spec, request.source, request.table)))
    resolution = resolve(request)
    plan = _planned(request, resolution, early)
    plan = replace(
        plan,
        diagnostics=in_file_order(
            (
                *_unsettled(plan, request.step_times),
                *measured_findings(plan, request.measurement, request.step_times),
                *curve_findings(plan),
            )
        ),
    )
    if not plan.ok:
        raise SpecError(_about_the_spec(plan.diagnostics))
    return plan


def _unsettled(plan: Plan, times: StepTimes | None) -> Iterator[Diagnostic]:
    """Without advice to capture what was measured to gain nothing."""
    settled = frozenset() if times is None else frozenset(rule.code for rule in settled_rules(plan, times))
    return (one for one in plan.diagnostics if one.code not in settled)


def _about_the_spec(findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Advice about a plan that will not be made would only hide what refuses it."""
    return (finding for finding in findings if finding.severity is Severity.ERROR or not finding.code.startswith("P"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Captured:
    """What a resolution captures, with the fields that a bound on graph memory chose, and its ledgers."""

    resolution: Resolution
    choice: GraphChoice | None
    stock_list: TokenList
    asked: tuple[Shape, ...]
    lowering: Lowering
    remedies: tuple[Remedy, ...]
    token_list: tuple[Tokens, ...] | None
    shapes: tuple[Shape, ...]
    stages: tuple[Ledger, ...]

    @property
    def ledger(self) -> Ledger | None:
        return deciding(self.stages) if self.stages else None


def _captured_of(resolved: Resolution, measurement: Measurement | None = None) -> _Captured:
    stock_list = stock_list_of(resolved)
    choice = graph_choice(resolved, resolved.fields, stock_list)
    resolution = resolved if choice is None else with_choice(resolved, choice)
    asked = split_shapes(resolution.frame, resolution.fields, resolution.defaults, stock_list)
    lowering, token_list = choose_lowering(resolution, asked, stock_list)
    remedies = remedies_in_force(resolution, asked, lowering)
    resolution = with_remedies(resolution, remedies)
    shapes = captured(resolution, lowering, asked, token_list)
    stages = _ledgers(resolution, asked, shapes, lowering)
    if stages and measurement is not None:
        resolution, measured = by_measurement(resolution, deciding(stages), measurement, shapes, remedies)
        stages = (measured,)
    return _Captured(
        resolution=resolution,
        choice=choice,
        stock_list=stock_list,
        asked=asked,
        lowering=lowering,
        remedies=remedies,
        token_list=token_list,
        shapes=shapes,
        stages=stages,
    )


def _planned(request: CompileRequest, resolved: Resolution, early: tuple[Diagnostic, ...]) -> Plan:
    frame = resolved.frame
    limits = capture_findings(request.spec, request.source, frame.max_num_seqs, frame.max_num_batched_tokens)
    made = _captured_of(resolved, request.measurement)
    resolution, asked, lowering = made.resolution, made.asked, made.lowering
    graphs = _graph_plan(frame, made.shapes, lowering)
    findable = Findable(
        resolution=resolution,
        lowering=lowering,
        shapes=graphs.shapes,
        asked=asked,
        coverage=graphs.coverage,
        stock_list=made.stock_list,
        token_list=_resolved_list(resolution, made.token_list),
        engines_list=_engines_list(resolution).sizes,
        stages=made.stages,
        choice=made.choice,
        alternative=alternative_choice(resolved, made.stock_list, made.choice, made.stages),
        fitting_changes=_fitting_changes(request, resolved, made.stages),
    )
    lowered = lower(_launch(resolution, asked, lowering, made.remedies), lowering, made.token_list)
    return Plan(
        servespec_version=__version__,
        resolution=resolution,
        graphs=graphs,
        stock=_stock_plan(resolution) if request.with_stock else None,
        stages=made.stages,
        measurement=request.measurement if made.stages else None,
        step_times=request.step_times,
        savings=remedy_savings(resolution, asked, graphs.shapes, lowering) if made.stages else (),
        lowered=lowered,
        diagnostics=in_file_order(
            (*early, *limits, *resolution.findings, *findings_of(findable), *_lowering_findings(resolution, lowered))
        ),
        inputs=_inputs(request),
    )


# Graphs


def _engines_list(resolution: Resolution) -> TokenList:
    """The engine's list where the spec says nothing about sizes."""
    unsized = replace(resolution.token_list, sizes=None, max_size=model_ceiling(resolution.request))
    return stock_list_of(replace(resolution, token_list=unsized))


def _resolved_list(resolution: Resolution, token_list: tuple[Tokens, ...] | None) -> tuple[Tokens, ...]:
    """What the engine makes of the list that it is passed, and of the spec where it is passed none."""
    passed = resolution.token_list if token_list is None else replace(resolution.token_list, sizes=token_list)
    return stock_list_of(replace(resolution, token_list=passed)).sizes


def _stock_plan(resolution: Resolution) -> StockPlan:
    """The unmodified engine on the same spec without the five fields."""
    bare = _without_new_fields(resolution)
    frame = replace(bare.frame, adaptive_from_requests=Requests(1))
    shapes = engine_shapes(frame, stock_list_of(bare))
    return StockPlan(
        graphs=_graph_plan(frame, shapes, Lowering.NONE),
        stages=_ledgers(bare, shapes, shapes, Lowering.NONE),
    )


def _without_new_fields(resolution: Resolution) -> Resolution:
    request = resolution.request
    section = request.spec.compilation
    written = [name for name in NEW_FIELDS if getattr(section, name) is not None]
    if not written:
        return resolution
    bare = section.model_copy(update=dict.fromkeys((*NEW_FIELDS, *LEGACY_FIELDS)))
    spec = request.spec.model_copy(update={"compilation": bare})
    return resolve(replace(request, spec=spec))


def _graph_plan(frame: GraphFrame, shapes: tuple[Shape, ...], lowering: Lowering) -> GraphPlan:
    own_dispatch = lowering in (Lowering.EXTENSION, Lowering.NATIVE)
    dispatcher_of: DispatcherOf = split_dispatcher if own_dispatch else engine_dispatcher
    return GraphPlan(
        shapes=shapes,
        coverage=coverage_of(frame, shapes, dispatcher_of),
        capture_seconds=_capture_seconds(shapes),
        mode=frame.mode,
    )


def _capture_seconds(shapes: tuple[Shape, ...]) -> float:
    """About one second for each PIECEWISE size of the target and half of one for each of its FULL graphs."""
    target = [shape for shape in shapes if shape.runner is Runner.TARGET]
    full = sum(shape.mode is CudaGraphMode.FULL for shape in target)
    return (len(target) - full) * PIECEWISE_CAPTURE_SECONDS.value + full * FULL_CAPTURE_SECONDS.value


# Memory


def _ledgers(
    resolution: Resolution, asked: tuple[Shape, ...], shapes: tuple[Shape, ...], lowering: Lowering
) -> tuple[Ledger, ...]:
    """Of each pipeline stage; none on a CPU."""
    found = (
        ledger_of(resolution, *_graph_memory(resolution, asked, shapes, lowering, stage), stage)
        for stage in stages_of(resolution.request.spec)
    )
    return tuple(ledger for ledger in found if ledger is not None)


def _fitting_changes(request: CompileRequest, resolved: Resolution, stages: tuple[Ledger, ...]) -> FittingChanges:
    if not stages or deciding(stages).fits in (Fit.YES, Fit.UNKNOWN):
        return NO_CHANGES
    return fitting_changes(resolved, stages, lambda spec: _captured_of(resolve(replace(request, spec=spec))).ledger)


def _graph_memory(
    resolution: Resolution, asked: tuple[Shape, ...], shapes: tuple[Shape, ...], lowering: Lowering, stage: Stage
) -> tuple[tuple[MemoryLine, ...], MemoryLine | None]:
    """What the graphs take and profiling them leaves, and the engine's own estimate of them.

    Nothing on V1, which pools otherwise.
    """
    if resolution.runner is ModelRunner.V1:
        return (), None
    remedies = graph_remedies(resolution, asked, lowering)
    lines = graph_lines(resolution, shapes, lowering, remedies, stage=stage)
    estimate = engine_estimate(resolution, shapes, lines, lowering, stage)
    return (*lines, *left_by_profiling(resolution, lines, remedies)), estimate


# Lowering


def _lowering_findings(resolution: Resolution, lowered: Lowered) -> Iterator[Diagnostic]:
    engine, lowering = resolution.engine, lowered.lowering
    place = resolution.request.source.place_of(("engine", "lowering"))
    if lowering is Lowering.NATIVE and not engine.has_split_fields:
        message = f"vLLM {engine.version} does not have the five fields"
        yield plan_rules.R116.at(place, message, "write `lowering: auto`, or `legacy`")
    if lowering is Lowering.EXTENSION:
        for obstacle in extension_obstacles(resolution):
            place = resolution.request.source.place_of(obstacle.path)
            yield plan_rules.R116.at(place, obstacle.message, obstacle.help)
    # Without full graphs no lowering would do, which is told where the mode is.
    follows_load = resolution.frame.follows_load and resolution.frame.mode.has_full()
    if follows_load and lowering is not Lowering.EXTENSION:
        place = resolution.request.source.place_of_key(("speculative", "load_aware"))
        message = f"verification follows the load inside the engine's workers, and the plan is lowered by `{lowering}`"
        yield plan_rules.R116.at(place, message, "write `engine.lowering: extension`, or delete `load_aware`")
    yield from _too_long_arguments(resolution, lowered.argv)


def _too_long_arguments(resolution: Resolution, argv: tuple[str, ...]) -> Iterator[Diagnostic]:
    for flag, word in pairwise(argv):
        size_bytes = len(word.encode()) + 1
        if size_bytes > LONGEST_ARGUMENT.value:
            message = f"`{flag}` needs an argument of {size_bytes} bytes, and Linux takes {LONGEST_ARGUMENT.value}"
            place = resolution.request.source.place_of(("compilation",))
            yield plan_rules.R116.at(place, message, "list fewer capture sizes, or write caps instead of lists")


def _hand_off(resolution: Resolution, asked: tuple[Shape, ...], remedies: tuple[Remedy, ...]) -> dict[str, Any]:
    handed = handed_remedies(remedies, resolution.request.spec)
    return hand_off(resolution.frame, asked, resolution.engine.facts_version, handed)


def _launch(
    resolution: Resolution, asked: tuple[Shape, ...], lowering: Lowering, remedies: tuple[Remedy, ...]
) -> Launch:
    request, drafting = resolution.request, resolution.drafting
    spec, extends = request.spec, lowering is Lowering.EXTENSION
    frame = resolution.frame
    fields = resolution.fields
    return Launch(
        spec=spec,
        table=request.table,
        program=(*request.engine.program, spec.model.id),
        # With `[]` applied; what the engine makes of it is the plan's own mode.
        mode=resolution.config_mode,
        asks_for_graphs=resolution.asked_mode is not None
        or () in (fields.prefill_sizes_tokens, fields.decode_sizes_requests),
        max_num_seqs=frame.max_num_seqs,
        max_num_batched_tokens=frame.max_num_batched_tokens,
        tiers=drafting.schedule(frame.max_num_seqs),
        num_speculative_tokens=drafting.num_speculative_tokens.value if spec.speculative else None,
        method=drafting.method.value,
        pinned_backend=_pinned_backend(resolution),
        capture_fields=written_fields(resolution.fields),
        hand_off=_hand_off(resolution, asked, remedies) if extends else None,
        remedies=remedies,
        kv_cache_memory_bytes=kv_cache_memory_bytes(resolution),
    )


def _pinned_backend(resolution: Resolution) -> str | None:
    """What the plan assumed; where it assumed nothing, what the spec asks for is still the engine's to judge."""
    if is_cpu(resolution.device) or not resolution.candidates:
        written = resolution.request.spec.attention.backend
        return None if written == "auto" else written
    return resolution.candidates[0].backend


# Inputs


def _inputs(request: CompileRequest) -> Inputs:
    text = request.source.text.encode("utf-8")
    return Inputs(
        spec_sha256=hashlib.sha256(text).hexdigest(),
        model=request.model_input,
        draft=request.draft_input,
        facts_sha256=_facts_sha256(request.engine.facts_version, request.device),
        curve_sha256=None if request.profile is None else hashlib.sha256(repr(request.profile).encode()).hexdigest(),
    )


def _facts_sha256(version: str, device: Device) -> str:
    """Over the engine's generated table and the device, which every number of a plan comes from."""
    table: Any = resources.files("servespec.compiler.facts").joinpath("vllm").joinpath(f"{version}.json")
    digest = hashlib.sha256(table.read_bytes())
    digest.update(repr(device).encode("utf-8"))
    return digest.hexdigest()

"""What resolution decided: refusals of the engine, a changed mode or runner, an open backend."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable
from servespec.compiler.engine_refusals import engine_refusals
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.graphs.split import CaptureFields
from servespec.compiler.memory.split import PARTITION_VARIABLE, layer_partition, split_of
from servespec.compiler.resolve.compiled_parts import uncompiled_target
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.compiler.resolve.resolution import Resolution
from servespec.compiler.resolve.step import Refusal, Step, Weight
from servespec.compiler.resolve.worker_mode import NOTHING_CUT
from servespec.diagnostics import Diagnostic
from servespec.schema.source import SpecPath

_WEIGHT_RULES = {Weight.REFUSED: rules.R101, Weight.WARNED: rules.R102, Weight.UNKNOWN: rules.R103}


def _engine_refuses(subject: Findable) -> Iterator[Diagnostic]:
    """What the spec alone tells is told once, with both places; both take its words from one function."""
    request = subject.resolution.request
    by_spec = tuple(engine_refusals(request.spec, request.source, request.table))
    yield from by_spec
    told = {(finding.code, finding.message) for finding in by_spec}
    found = (refusal_finding(refusal, subject) for refusal in subject.resolution.refusals)
    yield from (finding for finding in found if (finding.code, finding.message) not in told)


def refusal_finding(refusal: Refusal, subject: Findable) -> Diagnostic:
    path: SpecPath = tuple(refusal.field.split("."))
    rule = f"the rule is {refusal.source}"
    way = refusal.help.format(*(subject.line(*field) for field in refusal.typed))
    help_text = f"{way}; {rule}" if way else rule
    return _WEIGHT_RULES[refusal.weight].at(subject.place(*path), refusal.message, help_text)


def _mode_changed(subject: Findable) -> Iterator[Diagnostic]:
    resolution = subject.resolution
    asked, got = resolution.asked_mode, resolution.frame.mode
    disabled = () in (subject.fields.prefill_sizes_tokens, subject.fields.decode_sizes_requests)
    if asked is None or asked is got or disabled or not resolution.steps:
        return
    message = f"`cudagraph_mode: {asked}` becomes `{got}`: {_reasons(resolution)}"
    help_text = f"write `{got}` to say so yourself"
    if _loses_pieces(resolution):
        help_text = f"{_cut_at_run_time(subject)}; or {help_text}"
    yield rules.R104.at(subject.place("compilation", "cudagraph_mode"), message, help_text)


def _default_mode_lost(subject: Findable) -> Iterator[Diagnostic]:
    """A default that speculation or a backend takes away is worth a line too."""
    resolution = subject.resolution
    lost = resolution.asked_mode is None and resolution.config_mode.has_full() and not resolution.frame.mode.has_full()
    if not lost or not resolution.steps or resolution.request.spec.model.enforce_eager:
        return
    if is_cpu(resolution.device):
        return
    step = _last_loss_of_full(resolution) or resolution.steps[-1]
    backends = [c.backend for c in resolution.candidates[1:]]
    help_text = f"`attention: {{backend: {backends[0]}}}` may keep them" if backends else ""
    message = f"FULL decode graphs are lost: {step.because}"
    yield rules.R104.at(subject.place("attention", "backend"), message, help_text)


def _default_pieces_lost(subject: Findable) -> Iterator[Diagnostic]:
    """The PIECEWISE graphs of the default mode, of a model that nothing compiles."""
    resolution = subject.resolution
    model = uncompiled_target(resolution.request)
    if model is None or resolution.asked_mode is not None or not _loses_pieces(resolution):
        return
    message = f"PIECEWISE graphs are lost: torch.compile takes no part of `{model}`"
    yield rules.R104.at(subject.place("model", "id"), message, _cut_at_run_time(subject))


_WITH_FULL: Final = frozenset(str(mode) for mode in CudaGraphMode if mode.has_full())


def _last_loss_of_full(resolution: Resolution) -> Step | None:
    """What took FULL graphs away, which pieces may have followed."""
    steps = reversed(resolution.steps)
    return next((one for one in steps if one.before in _WITH_FULL and one.after not in _WITH_FULL), None)


def _reasons(resolution: Resolution) -> str:
    """Why the mode is what it is, of FULL graphs and of pieces where both are lost."""
    last, full = resolution.steps[-1], _last_loss_of_full(resolution)
    if full is None or full is last or not _loses_pieces(resolution):
        return last.because
    return f"{full.because}, and {last.because}"


def _loses_pieces(resolution: Resolution) -> bool:
    """Whether the last of what changed the mode is that nothing cuts the model."""
    return bool(resolution.steps) and resolution.steps[-1].because == NOTHING_CUT


def _cut_at_run_time(subject: Findable) -> str:
    return f"write {subject.line('compilation', 'breakable_cudagraph', 'true')}, which cuts graphs at run time"


def _runner_v1(subject: Findable) -> Iterator[Diagnostic]:
    resolution = subject.resolution
    if resolution.runner is ModelRunner.V2 or is_cpu(resolution.device):
        return
    because = resolution.values["engine.model_runner"].because
    place = subject.place("engine", "model_runner")
    if _asks_new_fields(subject.fields):
        yield rules.R106.at(place, f"the spec gets Model Runner V1: {because}", "use the legacy fields")
    else:
        yield rules.R105.at(place, f"the spec gets Model Runner V1: {because}", "graphs are sized by the engine's list")


def _asks_new_fields(fields: CaptureFields) -> bool:
    written = (
        fields.prefill_cap_tokens,
        fields.prefill_sizes_tokens,
        fields.decode_cap_requests,
        fields.decode_sizes_requests,
        fields.decode_budget_tokens,
    )
    return fields.unlimited_budget or any(value is not None for value in written)


def _backend_ambiguous(subject: Findable) -> Iterator[Diagnostic]:
    candidates = subject.resolution.candidates
    if len(candidates) < 2:
        return
    outcomes = "; ".join(
        f"`{c.backend}` (graphs: {c.cg_support.name}){f' {c.condition}' if c.condition else ''}" for c in candidates
    )
    message = f"the engine would take {outcomes}"
    help_text = f"the plan assumes and pins `{candidates[0].backend}`; name another under `attention.backend`"
    yield rules.R112.at(subject.place("attention", "backend"), message, help_text)


def _layer_partition(subject: Findable) -> Iterator[Diagnostic]:
    spec, layers = subject.resolution.request.spec, subject.resolution.request.target.traits.num_hidden_layers
    if PARTITION_VARIABLE not in spec.engine.env or layers is None:
        return
    counts, stages = layer_partition(spec), spec.parallel.pipeline_parallel_size
    if counts is not None and len(counts) == stages and sum(counts) == layers and min(counts) >= 0:
        return
    even = ",".join(map(str, replace(split_of(spec), partition=()).layers(layers)))
    message = f"the model's {layers} layers do not divide into {stages} {'stage' if stages == 1 else 'stages'} by it"
    help_text = f'write `{PARTITION_VARIABLE}: "{even}"`, or leave it out' if stages > 1 else "leave it out"
    yield rules.R121.at(subject.place("engine", "env", PARTITION_VARIABLE), message, help_text)


CHECKS: tuple[Check, ...] = (
    _engine_refuses,
    _mode_changed,
    _default_mode_lost,
    _default_pieces_lost,
    _runner_v1,
    _backend_ambiguous,
    _layer_partition,
)

"""Every blank of a spec filled in: what the engine would run with, who decided it, and why.

One function decides each value: drafting, batch limits, model runner, attention backend, graph mode; here they are
called in the order in which they depend on each other, and their answers become one frozen value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler.engine import Engine
from servespec.compiler.facts.cudagraph_mode import CompilationMode, CudaGraphMode
from servespec.compiler.facts.devices import Device
from servespec.compiler.graphs.managers import DrafterKind, GraphFrame
from servespec.compiler.graphs.shape import Runner
from servespec.compiler.graphs.split import CaptureFields, SizeDefaults
from servespec.compiler.graphs.stock import TokenListRequest
from servespec.compiler.resolve.attention import Candidate
from servespec.compiler.resolve.attention_needs import AttentionQuestion
from servespec.compiler.resolve.backends import (
    DraftAttention,
    draft_attention,
    drafter_of,
    support_of,
    target_candidates,
    verification_refusals,
)
from servespec.compiler.resolve.batch_limits import BatchLimits, resolve_batch_limits
from servespec.compiler.resolve.compiled_parts import runners_that_compile
from servespec.compiler.resolve.config_mode import ModeResolution
from servespec.compiler.resolve.cudagraph_mode import resolve_mode
from servespec.compiler.resolve.curve_tiers import TierChoice, with_curve_tiers
from servespec.compiler.resolve.drafting import Drafting, resolve_drafting
from servespec.compiler.resolve.graph_request import (
    capture_fields,
    lora_cases,
    microbatching,
    recovers_state,
    size_defaults,
    token_list_request,
    verify_limit,
)
from servespec.compiler.resolve.load_aware import LoadAware, named_as_written, resolve_load_aware
from servespec.compiler.resolve.model_runner import ModelRunner, resolve_model_runner
from servespec.compiler.resolve.mtp_refusals import mtp_refusals
from servespec.compiler.resolve.questions import (
    attention_question,
    batch_request,
    config_mode,
    mode_request,
    runner_request,
    with_kinds,
)
from servespec.compiler.resolve.request import (
    ResolveRequest,
    asked_mode,
    context_refusals,
    max_model_len,
    verifies_adaptively,
)
from servespec.compiler.resolve.step import Refusal, Step
from servespec.compiler.resolve.written_in import written_in
from servespec.diagnostics import Diagnostic
from servespec.provenance import Origin, Resolved
from servespec.schema.spec import ServingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A resolved spec. ``frame`` is what the graphs depend on; ``values`` the values with their origins.

    ``compiled`` are the runners whose models torch.compile cuts into pieces.
    ``question`` is what the target's attention was resolved for, None where its config does not tell; ``candidates``
    are the attention backends that the engine may end with, the assumed one first; ``steps`` every change of the graph
    mode on its way to the workers.  ``tier_choice`` is None where no curve chose the tiers.
    """

    request: ResolveRequest
    frame: GraphFrame
    fields: CaptureFields
    defaults: SizeDefaults
    token_list: TokenListRequest
    limits: BatchLimits
    drafting: Drafting
    tier_choice: TierChoice | None
    runner: ModelRunner
    question: AttentionQuestion | None
    candidates: tuple[Candidate, ...]
    draft_attention: DraftAttention
    asked_mode: CudaGraphMode | None
    config_mode: CudaGraphMode
    compiled: frozenset[Runner]
    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]
    findings: tuple[Diagnostic, ...]
    values: Mapping[str, Resolved[Any]]
    complete: bool

    @property
    def engine(self) -> Engine:
        return self.request.engine

    @property
    def device(self) -> Device:
        return self.request.device

    @property
    def device_count(self) -> int:
        return self.request.spec.hardware.count

    @property
    def drafter_without_graphs(self) -> str:
        """Why a drafter owns no graphs, '' where it does or there is none."""
        if self.drafting.kind is not DrafterKind.EAGER:
            return ""
        return f"the `{self.drafting.method.value}` drafter runs eagerly and owns no graphs"


def resolve(request: ResolveRequest) -> Resolution:
    """Fills every blank; what the engine would refuse is in ``refusals``, what servespec found in ``findings``."""
    spec = request.spec
    untiered = resolve_drafting(spec.speculative, request.draft, request.source)
    limits = resolve_batch_limits(batch_request(request, untiered))
    drafting, tier_choice = with_curve_tiers(
        untiered, spec.speculative, request.profile, limits.max_num_seqs.value, request.source
    )
    load_aware = resolve_load_aware(
        spec.speculative,
        request.profile,
        drafting.num_speculative_tokens.value,
        limits.max_num_seqs.value,
        request.source,
    )
    runner = resolve_model_runner(runner_request(request, drafting))
    fields = capture_fields(spec)
    asked = with_kinds(mode_request(request, drafting, runner.runner.value), fields)
    question = attention_question(request, request.target, drafting)
    candidates, backend_refusals = target_candidates(request, question)
    draft = draft_attention(request, drafting, question, candidates)
    support = min(support_of(candidates, question), draft.support, key=lambda found: found[0])
    supporting = runners_that_compile(request, drafting)
    query_len, supports_compile = 1 + drafting.num_speculative_tokens.value, Runner.TARGET in supporting
    mode = resolve_mode(asked, *support, query_len, supports_compile=supports_compile)
    compiled = supporting if mode.compilation_mode is CompilationMode.VLLM_COMPILE else frozenset[Runner]()
    frame = GraphFrame(
        max_num_seqs=limits.max_num_seqs.value,
        max_num_batched_tokens=limits.max_num_batched_tokens.value,
        num_speculative_tokens=drafting.num_speculative_tokens.value,
        mode=mode.mode,
        tiers=drafting.tiers(limits.max_num_seqs.value) if mode.keeps_tiers else (),
        adaptive_verification=verifies_adaptively(spec),
        drafter=drafter_of(drafting, mode, draft, request.engine.facts_version, is_compiled=Runner.DRAFTER in compiled),
        lora_cases=lora_cases(spec),
        microbatching=microbatching(spec, request.table),
        mixed_within_decode_width=recovers_state(request, drafting),
        verify_limit_tokens=verify_limit(request) if verifies_adaptively(spec) else None,
        adaptive_from_requests=load_aware.from_requests,
    )
    return Resolution(
        request=request,
        frame=frame,
        fields=fields,
        defaults=size_defaults(request),
        token_list=token_list_request(request, frame, fields),
        limits=limits,
        drafting=drafting,
        tier_choice=tier_choice,
        runner=runner.runner.value,
        question=question,
        candidates=candidates,
        draft_attention=draft,
        asked_mode=asked_mode(spec),
        config_mode=config_mode(asked),
        compiled=compiled,
        steps=mode.steps,
        refusals=named_as_written(
            (
                *context_refusals(request),
                *mtp_refusals(request, drafting),
                *limits.findings,
                *runner.findings,
                *mode.findings,
                *backend_refusals,
                *verification_refusals(frame, candidates, question),
            ),
            spec.speculative,
        ),
        findings=(*drafting.findings, *load_aware.findings),
        values={
            path: written_in(request.source, path, value)
            for path, value in _values(request, drafting, limits, runner.runner, mode, candidates, tier_choice)
        }
        | _load_aware_value(request, load_aware),
        complete=runner.runner.value is ModelRunner.V2 or frame.mode is CudaGraphMode.NONE,
    )


def _load_aware_value(request: ResolveRequest, found: LoadAware) -> dict[str, Resolved[Any]]:
    path = "speculative.load_aware.from_requests"
    return {} if found.value is None else {path: written_in(request.source, path, found.value)}


def _values(
    request: ResolveRequest,
    drafting: Drafting,
    limits: BatchLimits,
    runner: Resolved[ModelRunner],
    mode: ModeResolution,
    candidates: tuple[Candidate, ...],
    tier_choice: TierChoice | None,
) -> Iterator[tuple[str, Resolved[Any]]]:
    spec = request.spec
    yield "scheduler.max_num_seqs", limits.max_num_seqs
    yield "scheduler.max_num_batched_tokens", limits.max_num_batched_tokens
    yield "model.max_model_len", max_model_len(request)
    yield "engine.model_runner", Resolved(str(runner.value), runner.origin, runner.because)
    yield "compilation.cudagraph_mode", _mode_value(spec, mode)
    yield "compilation.breakable_cudagraph", mode.breakable
    if candidates:
        chosen = candidates[0]
        origin = Origin.SPEC if spec.attention.backend not in (None, "auto") else Origin.DERIVED
        yield "attention.backend", Resolved(chosen.backend, origin, chosen.because)
    if spec.speculative is not None:
        yield "speculative.method", drafting.method
        yield "speculative.num_speculative_tokens", drafting.num_speculative_tokens
        if tier_choice is not None:
            because = f"`{tier_choice.profile.name}`, within {tier_choice.tolerance:.0%} of the best K"
            yield "speculative.dynamic", Resolved(list(map(list, tier_choice.ranges)), Origin.DERIVED, because)


def _mode_value(spec: ServingSpec, mode: ModeResolution) -> Resolved[str]:
    asked = spec.compilation.cudagraph_mode
    if asked == str(mode.mode):
        return Resolved(asked, Origin.SPEC, "set in the spec")
    because = mode.steps[-1].because if mode.steps else "the engine's default"
    origin = Origin.DERIVED if mode.steps else Origin.ENGINE_DEFAULT
    return Resolved(str(mode.mode), origin, because)

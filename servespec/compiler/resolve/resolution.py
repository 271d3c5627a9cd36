"""Every blank of a spec filled in: what the engine would run with, who decided it, and why.

One function decides each value: drafting, batch limits, model runner, attention backend, graph mode; here they are
called in the order in which they depend on each other, and their answers become one frozen value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from servespec.compiler.engine import Engine
from servespec.compiler.facts.architectures import kv_cache_dtype_hook, largest_graph_hook
from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport, CudaGraphMode, connector_needs_piecewise
from servespec.compiler.facts.devices import Device, is_cpu, is_sm100
from servespec.compiler.facts.engine_fields import EngineTable
from servespec.compiler.facts.model_traits import limited_to_draft
from servespec.compiler.graphs.managers import Drafter, DrafterKind, GraphFrame, Microbatching
from servespec.compiler.graphs.split import CaptureFields, SizeDefaults, resolved_kinds
from servespec.compiler.graphs.stock import TokenListRequest
from servespec.compiler.model import Model
from servespec.compiler.resolve.attention import (
    Candidate,
    adaptive_verification_refusals,
    all_update_in_place,
    attention_candidates,
    least_support,
    named_backend,
)
from servespec.compiler.resolve.attention_needs import AttentionNeeds, AttentionQuestion
from servespec.compiler.resolve.batch_limits import BatchLimits, BatchRequest, resolve_batch_limits
from servespec.compiler.resolve.batch_limits import Drafting as BatchDrafting
from servespec.compiler.resolve.cudagraph_mode import (
    DrafterRoutine,
    ModeRequest,
    ModeResolution,
    drafter_mode,
    resolve_config_mode,
    resolve_mode,
)
from servespec.compiler.resolve.drafting import Drafting, resolve_drafting
from servespec.compiler.resolve.model_runner import ModelRunner, RunnerRequest, resolve_model_runner
from servespec.compiler.resolve.step import Refusal, Step
from servespec.diagnostics import Diagnostic
from servespec.provenance import Origin, Resolved
from servespec.schema.capture_rules import legacy_in_force
from servespec.schema.source import SpecSource
from servespec.schema.spec import ServingSpec
from servespec.units import Requests, Tokens

_MAX_LOGITS_BYTES = 1 << 30
"""Bound of one chunk of fp32 logits; vllm/v1/worker/gpu/sample/rejection_sampler.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """All that resolution depends on; nothing is looked up from the machine."""

    spec: ServingSpec
    source: SpecSource
    engine: Engine
    table: EngineTable
    device: Device
    target: Model
    draft: Model | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A resolved spec. ``frame`` is what the graphs depend on; ``values`` the values with their origins.

    ``candidates`` are the attention backends that the engine may end with, the assumed one first; ``steps`` every
    change of the graph mode on its way to the workers.
    """

    request: ResolveRequest
    frame: GraphFrame
    fields: CaptureFields
    defaults: SizeDefaults
    token_list: TokenListRequest
    limits: BatchLimits
    drafting: Drafting
    runner: ModelRunner
    candidates: tuple[Candidate, ...]
    asked_mode: CudaGraphMode | None
    config_mode: CudaGraphMode
    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]
    findings: tuple[Diagnostic, ...]
    values: Mapping[str, Resolved[Any]]
    verify_limit_tokens: Tokens | None
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
    drafting = resolve_drafting(spec.speculative, request.draft, request.source, request.table)
    limits = resolve_batch_limits(_batch_request(request, drafting))
    runner = resolve_model_runner(_runner_request(request, drafting))
    fields = capture_fields(spec)
    mode_request = _with_kinds(_mode_request(request, drafting, runner.runner.value), fields)
    question = _attention_question(request, request.target, drafting)
    candidates, backend_refusals = _candidates(request, question)
    draft_attention = _draft_attention(request, drafting, question, candidates)
    support = min(_support(candidates, question), draft_attention.support, key=lambda found: found[0])
    mode = resolve_mode(mode_request, *support, 1 + drafting.num_speculative_tokens.value)
    tiers = drafting.tiers(limits.max_num_seqs.value) if mode.keeps_tiers else ()
    frame = GraphFrame(
        max_num_seqs=limits.max_num_seqs.value,
        max_num_batched_tokens=limits.max_num_batched_tokens.value,
        num_speculative_tokens=drafting.num_speculative_tokens.value,
        mode=mode.mode,
        tiers=tiers,
        adaptive_verification=_verifies_adaptively(spec),
        drafter=_drafter(drafting, mode, draft_attention, request.engine.facts_version),
        lora_cases=_lora_cases(spec),
        microbatching=_microbatching(spec, request.table),
        mixed_within_decode_width=_recovers_state(request, drafting),
    )
    return Resolution(
        request=request,
        frame=frame,
        fields=fields,
        defaults=_size_defaults(request),
        token_list=_token_list(request, frame, fields),
        limits=limits,
        drafting=drafting,
        runner=runner.runner.value,
        candidates=candidates,
        asked_mode=_asked_mode(spec),
        config_mode=_config_mode(mode_request),
        steps=mode.steps,
        refusals=(
            *limits.findings,
            *runner.findings,
            *mode.findings,
            *backend_refusals,
            *_verification(frame, candidates, question),
        ),
        findings=drafting.findings,
        values=dict(_values(request, drafting, limits, runner.runner, mode, candidates)),
        verify_limit_tokens=_verify_limit(request) if _verifies_adaptively(spec) else None,
        complete=runner.runner.value is ModelRunner.V2 or frame.mode is CudaGraphMode.NONE,
    )


def capture_fields(spec: ServingSpec) -> CaptureFields:
    """The capture fields as asked; a record beside new fields decides nothing."""
    section = spec.compilation
    budget = section.max_decode_cudagraph_capture_tokens
    legacy = legacy_in_force(section)
    return CaptureFields(
        prefill_cap_tokens=_tokens(section.max_prefill_cudagraph_capture_tokens),
        prefill_sizes_tokens=_all_tokens(section.prefill_cudagraph_capture_token_sizes),
        decode_cap_requests=_requests(section.max_decode_cudagraph_capture_requests),
        decode_sizes_requests=_all_requests(section.decode_cudagraph_capture_request_sizes),
        decode_budget_tokens=Tokens(budget) if isinstance(budget, int) else None,
        unlimited_budget=budget == "unlimited",
        legacy_sizes_tokens=_all_tokens(section.cudagraph_capture_sizes) if legacy else None,
        legacy_max_tokens=_tokens(section.max_cudagraph_capture_size) if legacy else None,
    )


def _tokens(value: int | None) -> Tokens | None:
    return None if value is None else Tokens(value)


def _requests(value: int | None) -> Requests | None:
    return None if value is None else Requests(value)


def _all_tokens(values: tuple[int, ...] | None) -> tuple[Tokens, ...] | None:
    return None if values is None else tuple(Tokens(value) for value in values)


def _all_requests(values: tuple[int, ...] | None) -> tuple[Requests, ...] | None:
    return None if values is None else tuple(Requests(value) for value in values)


def _engine_field(spec: ServingSpec, section: str, name: str, default: Any) -> Any:
    """A field of the engine as an open section has it, else the engine's default."""
    part = getattr(spec, section)
    return default if part is None else part.engine_fields.get(name, default)


def _batch_request(request: ResolveRequest, drafting: Drafting) -> BatchRequest:
    spec, target = request.spec, request.target.traits
    return BatchRequest(
        device=request.device,
        version=request.engine.facts_version,
        max_num_seqs=spec.scheduler.max_num_seqs,
        max_num_batched_tokens=spec.scheduler.max_num_batched_tokens,
        max_num_active_seqs=_engine_field(spec, "scheduler", "max_num_active_seqs", None),
        max_num_scheduled_tokens=_engine_field(spec, "scheduler", "max_num_scheduled_tokens", None),
        max_model_len_tokens=_max_model_len(request).value,
        pipeline_parallel_size=spec.parallel.pipeline_parallel_size,
        tensor_parallel_size=spec.parallel.tensor_parallel_size,
        data_parallel_size=spec.parallel.data_parallel_size,
        enable_expert_parallel=spec.parallel.enable_expert_parallel,
        all2all_backend=_all2all(spec),
        performance_mode=spec.performance_mode or "balanced",
        enable_chunked_prefill=_engine_field(spec, "scheduler", "enable_chunked_prefill", True) is not False,
        is_multimodal_prefix_lm=target.is_multimodal_prefix_lm,
        drafting=_batch_drafting(drafting, spec),
        has_lora=spec.lora is not None,
    )


def _batch_drafting(drafting: Drafting, spec: ServingSpec) -> BatchDrafting | None:
    method = drafting.method.value
    if method is None:
        return None
    return BatchDrafting(
        method=method,
        num_speculative_tokens=drafting.num_speculative_tokens.value,
        sample_from_anchor=drafting.sample_from_anchor,
        parallel_drafting=_engine_field(spec, "speculative", "parallel_drafting", False),
    )


def _all2all(spec: ServingSpec) -> str:
    return str(_engine_field(spec, "parallel", "all2all_backend", "allgather_reducescatter"))


def _max_model_len(request: ResolveRequest) -> Resolved[Tokens | None]:
    written = request.spec.model.max_model_len
    own = request.target.max_model_len
    if written is not None:
        own = Resolved(Tokens(written), Origin.SPEC, "set in the spec")
    speculative, draft = request.spec.speculative, request.draft
    if speculative is None or speculative.method != _OWN_POSITIONS or draft is None or own.value is None:
        return own
    limited = limited_to_draft(own.value, draft.max_model_len.value)
    return own if limited == own.value else Resolved(limited, Origin.DERIVED, "the draft model follows no further")


_OWN_POSITIONS = "draft_model"
"""The method whose draft keeps its own longest context; the others take on the target's.

Source: vllm/config/speculative.py: SpeculativeConfig.draft_shares_target_positions.
"""


def _runner_request(request: ResolveRequest, drafting: Drafting) -> RunnerRequest:
    spec, target = request.spec, request.target.traits
    draft = request.draft.traits if request.draft else None
    variable = {"auto": None, "v1": False, "v2": True}[spec.engine.model_runner]
    return RunnerRequest(
        version=request.engine.facts_version,
        variable=variable,
        has_triton=not is_cpu(request.device),
        has_hisparse=_engine_field(spec, "attention", "hisparse_config", None) is not None,
        architectures=target.architectures,
        is_multimodal=target.is_multimodal,
        is_encoder_decoder=target.is_encoder_decoder,
        is_hybrid=target.is_hybrid,
        is_diffusion=target.is_diffusion,
        has_lora=spec.lora is not None,
        distributed_executor_backend=_engine_field(spec, "parallel", "distributed_executor_backend", None),
        pipeline_parallel_size=spec.parallel.pipeline_parallel_size,
        prefill_context_parallel_size=_engine_field(spec, "parallel", "prefill_context_parallel_size", 1),
        decode_context_parallel_size=_engine_field(spec, "parallel", "decode_context_parallel_size", 1),
        enable_batch_sharded_sampling=bool(_engine_field(spec, "parallel", "enable_batch_sharded_sampling", False)),
        uses_microbatches=_uses_microbatches(spec),
        async_scheduling=_engine_field(spec, "scheduler", "async_scheduling", None),
        mode=_asked_mode(spec),
        method=drafting.method.value,
        parallel_drafting=_engine_field(spec, "speculative", "parallel_drafting", False),
        use_heterogeneous_vocab=_engine_field(spec, "speculative", "use_heterogeneous_vocab", False),
        enable_adaptive_verification=_verifies_adaptively(spec),
        draft_lm_head_quantization=bool(_engine_field(spec, "speculative", "draft_lm_head_quantization", None)),
        draft_architectures=draft.architectures if draft else (),
        draft_layer_types=(draft.layer_types or ()) if draft else (),
    )


def _asked_mode(spec: ServingSpec) -> CudaGraphMode | None:
    mode = spec.compilation.cudagraph_mode
    return None if mode is None else CudaGraphMode(mode)


def _verifies_adaptively(spec: ServingSpec) -> bool:
    return spec.speculative is not None and spec.speculative.enable_adaptive_verification


def _uses_microbatches(spec: ServingSpec) -> bool:
    dbo = _engine_field(spec, "parallel", "enable_dbo", False)
    return bool(dbo) or _engine_field(spec, "parallel", "ubatch_size", 0) > 1


def _mode_request(request: ResolveRequest, drafting: Drafting, runner: ModelRunner) -> ModeRequest:
    spec, target = request.spec, request.target.traits
    breakable = spec.compilation.breakable_cudagraph
    data = spec.parallel.data_parallel_size
    optimization = spec.optimization_level
    return ModeRequest(
        version=request.engine.facts_version,
        mode=_asked_mode(spec),
        optimization_level=2 if optimization is None else optimization,
        enforce_eager=spec.model.enforce_eager,
        architectures=target.architectures,
        breakable_variable=None if breakable == "auto" else breakable,
        on_cpu=is_cpu(request.device),
        is_v2_runner=runner is ModelRunner.V2,
        method=drafting.method.value,
        has_tiers=bool(drafting.ranges),
        data_parallel_size=data,
        expert_data_parallel_size=data if target.is_mixture_of_experts else 1,
        pipeline_parallel_size=spec.parallel.pipeline_parallel_size,
        uses_all2all=_uses_all2all(spec),
        all2all_backend=_all2all(spec),
        has_hisparse=_engine_field(spec, "attention", "hisparse_config", None) is not None,
        is_pooling=target.is_pooling,
        is_encoder_decoder=target.is_encoder_decoder,
        connector_needs_piecewise=_connector(spec),
        enable_adaptive_verification=_verifies_adaptively(spec),
        has_lora=spec.lora is not None,
    )


def _uses_all2all(spec: ServingSpec) -> bool:
    """Source: vllm/config/parallel.py: ParallelConfig.use_all2all; its sequence parallelism needs data parallelism."""
    parallel = spec.parallel
    context = _engine_field(spec, "parallel", "prefill_context_parallel_size", 1)
    return parallel.data_parallel_size > 1 or (parallel.enable_expert_parallel and context > 1)


def _connector(spec: ServingSpec) -> bool:
    connector = _engine_field(spec, "kv_transfer", "kv_connector", None)
    extra = _engine_field(spec, "kv_transfer", "kv_connector_extra_config", {})
    return connector_needs_piecewise(connector, extra if isinstance(extra, dict) else {})


def _with_kinds(request: ModeRequest, fields: CaptureFields) -> ModeRequest:
    """`[]` takes its kind out of the mode; the engine has no other way to say so."""
    disabled = () in (fields.prefill_sizes_tokens, fields.decode_sizes_requests)
    if not disabled:
        return request
    return replace(request, mode=resolved_kinds(_config_mode(request), fields))


def _config_mode(request: ModeRequest) -> CudaGraphMode:
    """The mode as configured, before a platform or a model changes it."""
    if request.mode is not None:
        return request.mode
    return resolve_config_mode(request).mode_at_sizing


def _candidates(
    request: ResolveRequest, question: AttentionQuestion | None
) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """The backends that the target may end with; none where the config does not tell what its attention needs."""
    name = request.spec.attention.backend
    if question is None:
        return (), ()
    if name is None or name == "auto":
        return attention_candidates(question), ()
    return named_backend(name, question)


def _attention_question(request: ResolveRequest, model: Model, drafting: Drafting) -> AttentionQuestion | None:
    spec, traits = request.spec, model.traits
    if traits.head_size is None or traits.is_attention_free:
        return None
    ranks = spec.parallel.tensor_parallel_size
    needs = AttentionNeeds(
        head_size=traits.head_size,
        architectures=traits.architectures,
        dtype=_dtype(spec.model.dtype, traits.dtype),
        kv_cache_dtype=_kv_cache_dtype(request, model),
        block_size_tokens=spec.memory.block_size,
        use_mla=traits.is_mla,
        use_sparse=traits.uses_sparse_index,
        has_sink=traits.has_attention_sinks,
        is_mm_prefix=traits.is_multimodal_prefix_lm,
        has_sliding_window=traits.sliding_window is not None,
        has_logits_softcap=traits.attn_logit_softcapping is not None,
        is_non_causal=model is not request.target and drafting.method.value == "dflash",
        enable_adaptive_verification=_verifies_adaptively(spec),
        query_len_tokens_per_request=1 + drafting.num_speculative_tokens.value,
        num_heads_per_rank=_per_rank(traits.num_attention_heads, ranks),
        num_kv_heads_per_rank=_per_rank(traits.num_key_value_heads, ranks),
        decode_context_parallel_size=_engine_field(spec, "parallel", "decode_context_parallel_size", 1),
        prefill_context_parallel_size=_engine_field(spec, "parallel", "prefill_context_parallel_size", 1),
        has_hisparse=_engine_field(spec, "attention", "hisparse_config", None) is not None,
        qk_nope_head_dim=traits.qk_nope_head_dim,
        qk_rope_head_dim=traits.qk_rope_head_dim,
        v_head_dim=traits.v_head_dim,
        kv_lora_rank=traits.kv_lora_rank,
        index_topk=traits.index_topk,
        state_backends=traits.state_backends or (),
        flash_attn_version=_engine_field(spec, "attention", "flash_attn_version", None),
        use_trtllm_attention=_engine_field(spec, "attention", "use_trtllm_attention", None),
    )
    return AttentionQuestion(
        device=request.device, needs=needs, version=request.engine.facts_version, kernels=request.engine.kernels
    )


def _kv_cache_dtype(request: ResolveRequest, model: Model) -> str:
    """The type of the spec, else what the model's hook or its checkpoint makes of `auto`."""
    written = request.spec.memory.kv_cache_dtype
    if written not in (None, "auto"):
        return str(written)
    hook = kv_cache_dtype_hook(model.traits.architectures, is_sm100(request.device), request.engine.facts_version)
    return hook or model.traits.checkpoint_kv_cache_dtype or "auto"


def _dtype(written: str | None, config: str | None) -> str:
    if written not in (None, "auto"):
        return str(written)
    return config if config in ("float16", "bfloat16") else "bfloat16"


def _per_rank(heads: int | None, ranks: int) -> int | None:
    return None if heads is None else max(1, heads // ranks)


_Support = tuple[AttentionCgSupport, str]


def _support(candidates: tuple[Candidate, ...], question: AttentionQuestion | None) -> _Support:
    """What the assumed backend can be captured in; ALWAYS where the model hard-wires one that is not known."""
    if not candidates or question is None:
        return AttentionCgSupport.ALWAYS, "the model's own backend"
    return least_support(candidates[0], question)


@dataclass(frozen=True, slots=True)
class _DraftAttention:
    """The drafter's attention: what it can be captured in, and whether its metadata is refreshed in a graph."""

    support: _Support
    updates_in_place: bool


def _draft_attention(
    request: ResolveRequest,
    drafting: Drafting,
    target: AttentionQuestion | None,
    target_candidates: tuple[Candidate, ...],
) -> _DraftAttention:
    """From the draft model's own config where it is known, else as the target's."""
    question, candidates = target, target_candidates
    if request.draft is not None and request.draft is not request.target:
        question = _attention_question(request, request.draft, drafting)
        candidates = attention_candidates(question) if question is not None else ()
    in_place = question is None or all_update_in_place(candidates[:1], question)
    return _DraftAttention(_support(candidates, question), in_place)


def _verification(
    frame: GraphFrame, candidates: tuple[Candidate, ...], question: AttentionQuestion | None
) -> tuple[Refusal, ...]:
    if not frame.adaptive_verification or not candidates or question is None:
        return ()
    return adaptive_verification_refusals(candidates[0], question)


def _drafter(drafting: Drafting, mode: ModeResolution, attention: _DraftAttention, version: str) -> Drafter:
    routines = {
        DrafterKind.BLOCK: DrafterRoutine.BLOCK,
        DrafterKind.MULTI_MODULE_MTP: DrafterRoutine.MULTI_MODULE_MTP,
    }
    routine = routines.get(drafting.kind)
    block_mode = CudaGraphMode.NONE
    if routine is not None:
        block_mode = drafter_mode(routine, mode.mode, attention.support[0], mode.breakable.value, version).value
    return Drafter(
        kind=drafting.kind,
        mode=block_mode,
        query_len=drafting.query_len,
        fused_later_steps=attention.updates_in_place,
    )


def _lora_cases(spec: ServingSpec) -> tuple[int, ...]:
    """Numbers of active adapters that get graphs; 0 is the case without.

    Source: vllm/v1/worker/gpu/lora_utils.py: get_lora_capture_cases; vllm/lora/utils.py: get_captured_lora_counts.
    """
    lora = spec.lora
    if lora is None:
        return (0,)
    most = lora.max_loras + 1
    if not (lora.cudagraph_specialize_lora and lora.specialize_active_lora):
        return (0, most)
    return (0, *(n for n in range(1, most + 1) if n & (n - 1) == 0 or n == most))


def _microbatching(spec: ServingSpec, table: EngineTable) -> Microbatching | None:
    """Dual batch overlap needs more than one data-parallel rank.

    Source: vllm/v1/worker/gpu/ubatch_utils.py: maybe_build_ubatch_runner; vllm/config/parallel.py: num_ubatches.
    """
    if not _uses_microbatches(spec) or spec.parallel.data_parallel_size <= 1:
        return None
    dbo = _engine_field(spec, "parallel", "enable_dbo", False)
    count = 2 if dbo else _engine_field(spec, "parallel", "ubatch_size", 0)
    default = table.config("ParallelConfig")["dbo_decode_token_threshold"].default
    threshold = _engine_field(spec, "parallel", "dbo_decode_token_threshold", default)
    return Microbatching(count, Tokens(threshold))


_STATE_RECOVERY_ARCHITECTURES = ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration")


def _recovers_state(request: ResolveRequest, drafting: Drafting) -> bool:
    """Source: vllm/config/vllm.py: VllmConfig.validate_mamba_cached_kernel."""
    asked = _engine_field(request.spec, "memory", "use_replayssm", False)
    known = not set(request.target.traits.architectures).isdisjoint(_STATE_RECOVERY_ARCHITECTURES)
    return bool(asked) and known and drafting.num_speculative_tokens.value > 0


def _size_defaults(request: ResolveRequest) -> SizeDefaults:
    return SizeDefaults(
        wide=is_sm100(request.device),
        decode_grid_off_wide=model_ceiling(request) is not None,
        every_small_count=request.spec.performance_mode == "interactivity",
    )


def model_ceiling(request: ResolveRequest) -> Tokens | None:
    """The list maximum that a model's own hook sets where the user sets none."""
    hook = largest_graph_hook(request.target.traits.architectures, request.engine.facts_version)
    return None if hook is None else hook.value


_WIDE_CEILING_TOKENS, _CEILING_TOKENS = Tokens(1024), Tokens(512)
"""Source: vllm/config/vllm.py: VllmConfig._set_cudagraph_sizes, default_max_graph_size."""


def _token_list(request: ResolveRequest, frame: GraphFrame, fields: CaptureFields) -> TokenListRequest:
    maximum = fields.legacy_max_tokens if fields.legacy else model_ceiling(request)
    return TokenListRequest(
        max_num_seqs=frame.max_num_seqs,
        max_num_batched_tokens=frame.max_num_batched_tokens,
        query_len=frame.query_len,
        widest_batch=frame.widest_batch,
        default_ceiling_tokens=_WIDE_CEILING_TOKENS if is_sm100(request.device) else _CEILING_TOKENS,
        every_small_count=request.spec.performance_mode == "interactivity",
        sizes=fields.legacy_sizes_tokens,
        max_size=maximum,
    )


def _verify_limit(request: ResolveRequest) -> Tokens | None:
    """Most rows of fp32 logits in one chunk, which bounds a verification step.

    Source: vllm/v1/worker/gpu/spec_decode/rejection_sampler.py: get_max_chunk_logits.
    """
    vocabulary = request.target.traits.vocab_size
    return None if vocabulary is None else Tokens(_MAX_LOGITS_BYTES // (4 * vocabulary))


def _values(
    request: ResolveRequest,
    drafting: Drafting,
    limits: BatchLimits,
    runner: Resolved[ModelRunner],
    mode: ModeResolution,
    candidates: tuple[Candidate, ...],
) -> Iterator[tuple[str, Resolved[Any]]]:
    spec = request.spec
    yield "scheduler.max_num_seqs", limits.max_num_seqs
    yield "scheduler.max_num_batched_tokens", limits.max_num_batched_tokens
    yield "model.max_model_len", _max_model_len(request)
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


def _mode_value(spec: ServingSpec, mode: ModeResolution) -> Resolved[str]:
    asked = spec.compilation.cudagraph_mode
    if asked == str(mode.mode):
        return Resolved(asked, Origin.SPEC, "set in the spec")
    because = mode.steps[-1].because if mode.steps else "the engine's default"
    origin = Origin.DERIVED if mode.steps else Origin.ENGINE_DEFAULT
    return Resolved(str(mode.mode), origin, because)

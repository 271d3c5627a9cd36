"""A spec in the terms of each resolver: the question about limits, runner, mode and attention."""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode, connector_needs_piecewise
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.graphs.split import CaptureFields, resolved_kinds
from servespec.compiler.model import Model
from servespec.compiler.resolve.attention_needs import AttentionNeeds, AttentionQuestion
from servespec.compiler.resolve.batch_limits import BatchRequest
from servespec.compiler.resolve.batch_limits import Drafting as BatchDrafting
from servespec.compiler.resolve.cache_dtype import draft_kv_cache_dtype, kv_cache_dtype
from servespec.compiler.resolve.config_mode import ModeRequest, resolve_config_mode
from servespec.compiler.resolve.drafting import Drafting
from servespec.compiler.resolve.model_runner import ModelRunner, RunnerRequest
from servespec.compiler.resolve.request import (
    ResolveRequest,
    all2all_backend,
    asked_compilation,
    asked_mode,
    engine_field,
    max_model_len,
    uses_microbatches,
    verifies_adaptively,
)
from servespec.schema.spec import ServingSpec


def batch_request(request: ResolveRequest, drafting: Drafting) -> BatchRequest:
    spec, target = request.spec, request.target.traits
    return BatchRequest(
        device=request.device,
        version=request.engine.facts_version,
        max_num_seqs=spec.scheduler.max_num_seqs,
        max_num_batched_tokens=spec.scheduler.max_num_batched_tokens,
        max_num_active_seqs=engine_field(spec, "scheduler", "max_num_active_seqs", None),
        max_num_scheduled_tokens=engine_field(spec, "scheduler", "max_num_scheduled_tokens", None),
        max_model_len_tokens=max_model_len(request).value,
        pipeline_parallel_size=spec.parallel.pipeline_parallel_size,
        tensor_parallel_size=spec.parallel.tensor_parallel_size,
        data_parallel_size=spec.parallel.data_parallel_size,
        enable_expert_parallel=spec.parallel.enable_expert_parallel,
        all2all_backend=all2all_backend(spec),
        performance_mode=spec.performance_mode or "balanced",
        enable_chunked_prefill=engine_field(spec, "scheduler", "enable_chunked_prefill", True) is not False,
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
        parallel_drafting=engine_field(spec, "speculative", "parallel_drafting", False),
    )


def runner_request(request: ResolveRequest, drafting: Drafting) -> RunnerRequest:
    spec, target = request.spec, request.target.traits
    draft = request.draft.traits if request.draft else None
    variable = {"auto": None, "v1": False, "v2": True}[spec.engine.model_runner]
    return RunnerRequest(
        version=request.engine.facts_version,
        variable=variable,
        has_triton=not is_cpu(request.device),
        has_hisparse=engine_field(spec, "attention", "hisparse_config", None) is not None,
        architectures=target.architectures,
        is_multimodal=target.is_multimodal,
        is_encoder_decoder=target.is_encoder_decoder,
        is_hybrid=target.is_hybrid,
        is_diffusion=target.is_diffusion,
        has_lora=spec.lora is not None,
        distributed_executor_backend=engine_field(spec, "parallel", "distributed_executor_backend", None),
        pipeline_parallel_size=spec.parallel.pipeline_parallel_size,
        prefill_context_parallel_size=engine_field(spec, "parallel", "prefill_context_parallel_size", 1),
        decode_context_parallel_size=engine_field(spec, "parallel", "decode_context_parallel_size", 1),
        enable_batch_sharded_sampling=bool(engine_field(spec, "parallel", "enable_batch_sharded_sampling", False)),
        uses_microbatches=uses_microbatches(spec),
        async_scheduling=engine_field(spec, "scheduler", "async_scheduling", None),
        mode=asked_mode(spec),
        method=drafting.method.value,
        parallel_drafting=engine_field(spec, "speculative", "parallel_drafting", False),
        use_heterogeneous_vocab=engine_field(spec, "speculative", "use_heterogeneous_vocab", False),
        enable_adaptive_verification=verifies_adaptively(spec),
        draft_lm_head_quantization=bool(engine_field(spec, "speculative", "draft_lm_head_quantization", None)),
        draft_architectures=draft.architectures if draft else (),
        draft_layer_types=(draft.layer_types or ()) if draft else (),
    )


def mode_request(request: ResolveRequest, drafting: Drafting, runner: ModelRunner) -> ModeRequest:
    spec, target = request.spec, request.target.traits
    breakable = spec.compilation.breakable_cudagraph
    data = spec.parallel.data_parallel_size
    optimization, splitting = spec.optimization_level, engine_field(spec, "compilation", "splitting_ops", None)
    return ModeRequest(
        version=request.engine.facts_version,
        mode=asked_mode(spec),
        compilation_mode=asked_compilation(spec),
        torch_compile_disabled=str(spec.engine.env.get("TORCH_COMPILE_DISABLE", "0")) == "1",
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
        all2all_backend=all2all_backend(spec),
        has_hisparse=engine_field(spec, "attention", "hisparse_config", None) is not None,
        is_pooling=target.is_pooling,
        is_encoder_decoder=target.is_encoder_decoder,
        connector_needs_piecewise=_connector(spec),
        enable_adaptive_verification=verifies_adaptively(spec),
        has_lora=spec.lora is not None,
        splitting_ops=None if splitting is None else tuple(splitting),
        use_inductor_graph_partition=bool(engine_field(spec, "compilation", "use_inductor_graph_partition", False)),
    )


def _uses_all2all(spec: ServingSpec) -> bool:
    """Source: vllm/config/parallel.py: ParallelConfig.use_all2all; its sequence parallelism needs data parallelism."""
    parallel = spec.parallel
    context = engine_field(spec, "parallel", "prefill_context_parallel_size", 1)
    return parallel.data_parallel_size > 1 or (parallel.enable_expert_parallel and context > 1)


def _connector(spec: ServingSpec) -> bool:
    connector = engine_field(spec, "kv_transfer", "kv_connector", None)
    extra = engine_field(spec, "kv_transfer", "kv_connector_extra_config", {})
    return connector_needs_piecewise(connector, extra if isinstance(extra, dict) else {})


def with_kinds(request: ModeRequest, fields: CaptureFields) -> ModeRequest:
    """`[]` takes its kind out of the mode; the engine has no other way to say so."""
    disabled = () in (fields.prefill_sizes_tokens, fields.decode_sizes_requests)
    if not disabled:
        return request
    return replace(request, mode=resolved_kinds(config_mode(request), fields))


def config_mode(request: ModeRequest) -> CudaGraphMode:
    """The mode as configured, before a platform or a model changes it."""
    if request.mode is not None:
        return request.mode
    return resolve_config_mode(request).mode_at_sizing


def attention_question(request: ResolveRequest, model: Model, drafting: Drafting) -> AttentionQuestion | None:
    spec, traits = request.spec, model.traits
    if traits.head_size is None or traits.is_attention_free:
        return None
    ranks = spec.parallel.tensor_parallel_size
    needs = AttentionNeeds(
        head_size=traits.head_size,
        architectures=traits.architectures,
        dtype=_dtype(spec.model.dtype, traits.dtype),
        kv_cache_dtype=kv_cache_dtype(request)
        if model is request.target
        else draft_kv_cache_dtype(request, drafting.method.value),
        block_size_tokens=spec.memory.block_size,
        use_mla=traits.is_mla,
        use_sparse=traits.uses_sparse_index,
        has_sink=traits.has_attention_sinks,
        is_mm_prefix=traits.is_multimodal_prefix_lm,
        has_sliding_window=traits.sliding_window is not None,
        has_logits_softcap=traits.attn_logit_softcapping is not None,
        is_non_causal=model is not request.target and drafting.method.value == "dflash",
        enable_adaptive_verification=verifies_adaptively(spec),
        query_len_tokens_per_request=1 + drafting.num_speculative_tokens.value,
        num_heads_per_rank=_per_rank(traits.num_attention_heads, ranks),
        num_kv_heads_per_rank=_per_rank(traits.num_key_value_heads, ranks),
        decode_context_parallel_size=engine_field(spec, "parallel", "decode_context_parallel_size", 1),
        prefill_context_parallel_size=engine_field(spec, "parallel", "prefill_context_parallel_size", 1),
        has_hisparse=engine_field(spec, "attention", "hisparse_config", None) is not None,
        qk_nope_head_dim=traits.qk_nope_head_dim,
        qk_rope_head_dim=traits.qk_rope_head_dim,
        v_head_dim=traits.v_head_dim,
        kv_lora_rank=traits.kv_lora_rank,
        index_topk=traits.index_topk,
        state_backends=traits.state_backends or (),
        flash_attn_version=engine_field(spec, "attention", "flash_attn_version", None),
        use_trtllm_attention=engine_field(spec, "attention", "use_trtllm_attention", None),
    )
    return AttentionQuestion(
        device=request.device, needs=needs, version=request.engine.facts_version, kernels=request.engine.kernels
    )


def _dtype(written: str | None, config: str | None) -> str:
    if written is not None and written != "auto":
        return _SHORT_DTYPES.get(written, written)
    return config if config in ("float16", "bfloat16") else "bfloat16"


_SHORT_DTYPES: Final = MappingProxyType({"half": "float16", "float": "float32"})
"""Source: vllm/config/model.py: _STR_DTYPE_TO_TORCH_DTYPE."""


def _per_rank(heads: int | None, ranks: int) -> int | None:
    return None if heads is None else max(1, heads // ranks)

"""What a spec says about graphs, in the compiler's units: fields, LoRA cases, microbatches, list and defaults."""

from typing import Any

from servespec.compiler.facts.architectures import largest_graph_hook
from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.facts.engine_fields import EngineTable
from servespec.compiler.facts.graph_sizes import LOGIT, LOGITS_CHUNK, STATE_RECOVERY_ARCHITECTURES, ceiling_tokens
from servespec.compiler.graphs.managers import GraphFrame, Microbatching
from servespec.compiler.graphs.split import CaptureFields, SizeDefaults, VerificationGrid
from servespec.compiler.graphs.stock import TokenListRequest
from servespec.compiler.resolve.drafting import Drafting
from servespec.compiler.resolve.request import ResolveRequest, engine_field, uses_microbatches
from servespec.schema.capture_fields import (
    DECODE_BUDGET,
    DECODE_CAP,
    DECODE_SIZES,
    PREFILL_CAP,
    PREFILL_SIZES,
    legacy_in_force,
)
from servespec.schema.spec import ServingSpec
from servespec.units import Requests, Tokens


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
        verification_grid=VerificationGrid(section.adaptive_verification_grid or VerificationGrid.DENSE),
    )


def written_fields(fields: CaptureFields) -> dict[str, Any]:
    """The new fields that are set, as a spec writes them: what :func:`capture_fields` reads."""
    budget = "unlimited" if fields.unlimited_budget else fields.decode_budget_tokens
    values = {
        PREFILL_CAP: fields.prefill_cap_tokens,
        PREFILL_SIZES: fields.prefill_sizes_tokens,
        DECODE_CAP: fields.decode_cap_requests,
        DECODE_SIZES: fields.decode_sizes_requests,
        DECODE_BUDGET: budget,
    }
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value is not None
    }


def _tokens(value: int | None) -> Tokens | None:
    return None if value is None else Tokens(value)


def _requests(value: int | None) -> Requests | None:
    return None if value is None else Requests(value)


def _all_tokens(values: tuple[int, ...] | None) -> tuple[Tokens, ...] | None:
    return None if values is None else tuple(Tokens(value) for value in values)


def _all_requests(values: tuple[int, ...] | None) -> tuple[Requests, ...] | None:
    return None if values is None else tuple(Requests(value) for value in values)


def lora_cases(spec: ServingSpec) -> tuple[int, ...]:
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


def microbatching(spec: ServingSpec, table: EngineTable) -> Microbatching | None:
    """Dual batch overlap needs more than one data-parallel rank.

    Source: vllm/v1/worker/gpu/ubatch_utils.py: maybe_build_ubatch_runner; vllm/config/parallel.py: num_ubatches.
    """
    if not uses_microbatches(spec) or spec.parallel.data_parallel_size <= 1:
        return None
    dbo = engine_field(spec, "parallel", "enable_dbo", False)
    count = 2 if dbo else engine_field(spec, "parallel", "ubatch_size", 0)
    default = table.config("ParallelConfig")["dbo_decode_token_threshold"].default
    threshold = engine_field(spec, "parallel", "dbo_decode_token_threshold", default)
    return Microbatching(count, Tokens(threshold))


def recovers_state(request: ResolveRequest, drafting: Drafting) -> bool:
    """Source: vllm/config/vllm.py: VllmConfig.validate_mamba_cached_kernel."""
    asked = engine_field(request.spec, "memory", "use_replayssm", False)
    known = not set(request.target.traits.architectures).isdisjoint(STATE_RECOVERY_ARCHITECTURES.value)
    return bool(asked) and known and drafting.num_speculative_tokens.value > 0


def size_defaults(request: ResolveRequest) -> SizeDefaults:
    return SizeDefaults(
        wide=is_sm100(request.device),
        decode_grid_off_wide=model_ceiling(request) is not None,
        every_small_count=request.spec.performance_mode == "interactivity",
    )


def model_ceiling(request: ResolveRequest) -> Tokens | None:
    """The list maximum that a model's own hook sets where the user sets none."""
    hook = largest_graph_hook(request.target.traits.architectures, request.engine.facts_version)
    return None if hook is None else hook.value


def token_list_request(request: ResolveRequest, frame: GraphFrame, fields: CaptureFields) -> TokenListRequest:
    maximum = fields.legacy_max_tokens if fields.legacy else model_ceiling(request)
    return TokenListRequest(
        max_num_seqs=frame.max_num_seqs,
        max_num_batched_tokens=frame.max_num_batched_tokens,
        query_len=frame.query_len,
        widest_batch=frame.widest_batch,
        default_ceiling_tokens=ceiling_tokens(is_sm100(request.device)),
        every_small_count=request.spec.performance_mode == "interactivity",
        sizes=fields.legacy_sizes_tokens,
        max_size=maximum,
    )


def verify_limit(request: ResolveRequest) -> Tokens | None:
    """Most rows of fp32 logits in one chunk, which bounds a verification step.

    Source: vllm/v1/worker/gpu/spec_decode/rejection_sampler.py: get_max_chunk_logits.
    """
    vocabulary = request.target.traits.vocab_size
    return None if vocabulary is None else Tokens(max(1, LOGITS_CHUNK.value // (LOGIT.value * vocabulary)))

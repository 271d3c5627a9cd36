"""Which type the KV cache has: the spec's, or what becomes of `auto`."""

from servespec.compiler.facts.architectures import BFLOAT16_CACHE_IS_AUTO, kv_cache_dtype_hook
from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.resolve.request import ResolveRequest, engine_field

_SHARES_THE_LAYOUT = "mtp"


def kv_cache_dtype(request: ResolveRequest) -> str:
    """Of the target: the type of the spec, else of the checkpoint, else what the model's hook makes of `auto`.

    Source: vllm/engine/arg_utils.py: EngineArgs.create_engine_config.
    """
    written, traits = request.spec.memory.kv_cache_dtype, request.target.traits
    if written == "bfloat16" and not set(BFLOAT16_CACHE_IS_AUTO.value).isdisjoint(traits.architectures):
        return "auto"
    if written not in (None, "auto"):
        return str(written)
    return traits.checkpoint_kv_cache_dtype or _hook(request) or "auto"


def draft_kv_cache_dtype(request: ResolveRequest, method: str | None) -> str:
    """Of what drafts: its own where the spec has one, else the target's, but for a type that only a hook chose.

    Sources: vllm/config/speculative.py: SpeculativeConfig.apply_draft_overrides; load_draft_model and its like under
    vllm/v1/worker/gpu/spec_decode; vllm/model_executor/models/config.py: GlmMoeDsaForCausalLM.verify_and_update_config.
    """
    written = engine_field(request.spec, "speculative", "kv_cache_dtype", None)
    if written is not None:
        return str(written)
    return "auto" if _is_hooked(request) and method != _SHARES_THE_LAYOUT else kv_cache_dtype(request)


def _is_hooked(request: ResolveRequest) -> bool:
    is_written = request.spec.memory.kv_cache_dtype not in (None, "auto")
    return not is_written and request.target.traits.checkpoint_kv_cache_dtype is None and _hook(request) is not None


def _hook(request: ResolveRequest) -> str | None:
    traits = request.target.traits
    has_index = traits.index_topk is not None
    return kv_cache_dtype_hook(
        traits.architectures, is_sm100(request.device), request.engine.facts_version, has_index=has_index
    )

"""Which type the KV cache has: the spec's, or what becomes of `auto`."""

from servespec.compiler.facts.architectures import BFLOAT16_CACHE_IS_AUTO, kv_cache_dtype_hook
from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.resolve.request import ResolveRequest, engine_field

_SHARES_THE_LAYOUT = "mtp"
_OVERRIDDEN = ("eagle", "eagle3", "mtp")
"""Methods whose loader reads what the spec has for the drafter.

Source: vllm/v1/worker/gpu/spec_decode/eagle/utils.py: load_eagle_model.
"""


def kv_cache_dtype(request: ResolveRequest) -> str:
    """Of the target: the type of the spec, else what the model's hook or its checkpoint makes of `auto`."""
    written, architectures = request.spec.memory.kv_cache_dtype, request.target.traits.architectures
    if written == "bfloat16" and not set(BFLOAT16_CACHE_IS_AUTO.value).isdisjoint(architectures):
        return "auto"
    if written not in (None, "auto"):
        return str(written)
    return _hook(request) or request.target.traits.checkpoint_kv_cache_dtype or "auto"


def draft_kv_cache_dtype(request: ResolveRequest, method: str | None) -> str:
    """Of what drafts: its own where the spec has one, else the target's, but for a type that only a hook chose.

    Sources: vllm/config/speculative.py: SpeculativeConfig.apply_draft_overrides;
    vllm/model_executor/models/config.py: GlmMoeDsaForCausalLM.verify_and_update_config.
    """
    written = engine_field(request.spec, "speculative", "kv_cache_dtype", None)
    if written is not None and method in _OVERRIDDEN:
        return str(written)
    is_hooked = request.spec.memory.kv_cache_dtype in (None, "auto") and _hook(request) is not None
    return "auto" if is_hooked and method != _SHARES_THE_LAYOUT else kv_cache_dtype(request)


def _hook(request: ResolveRequest) -> str | None:
    architectures = request.target.traits.architectures
    return kv_cache_dtype_hook(architectures, is_sm100(request.device), request.engine.facts_version)

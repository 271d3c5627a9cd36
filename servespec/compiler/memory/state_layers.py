"""Recurrent states: their bytes, the blocks of one request, and the blocks of attention that they share a pool with."""

from collections.abc import Mapping
from math import ceil, lcm

from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.facts.state_layers import (
    CHECKPOINT_TOKENS,
    LATENT_HYBRID_BLOCK_TOKENS,
    StateFacts,
    StateFamily,
)
from servespec.compiler.memory.cache_terms import CacheTerms
from servespec.compiler.memory.config_sizes import size_of
from servespec.compiler.memory.kv_cache import KvLayer, LayerKind
from servespec.compiler.memory.line import Holder
from servespec.compiler.memory.recurrent_sizes import conv_width, recurrent_elements, state_sizes
from servespec.compiler.memory.storage import dtype_bytes
from servespec.compiler.model import Model
from servespec.units import Bytes


def state_bytes(model: Model, facts: StateFacts, terms: CacheTerms) -> Bytes | str:
    """One layer's state of one request on one rank, which it may have several blocks of."""
    sizes = state_sizes(model, facts)
    if isinstance(sizes, str):
        return sizes
    ranks, family = terms.split.tensor, facts.family
    channels, recurrent = conv_width(sizes, family, ranks), recurrent_elements(sizes, family)
    if channels % ranks or sizes.heads % ranks:
        return f"{ranks} ranks do not divide the states of this model"
    is_drafted = family in (StateFamily.GATED_DELTA_NET, StateFamily.KDA, StateFamily.MAMBA2)
    kept_tokens = sizes.kernel - 1 + (terms.drafts if is_drafted else 0)
    conv_bytes = terms.model_bytes if terms.states.conv == "auto" else dtype_bytes(terms.states.conv)
    own_bytes = _recurrent_bytes(model, facts, terms, conv_bytes)
    return Bytes(channels // ranks * kept_tokens * conv_bytes + recurrent // ranks * own_bytes)


def _recurrent_bytes(model: Model, facts: StateFacts, terms: CacheTerms, conv_bytes: int) -> int:
    """Source: vllm/model_executor/layers/mamba/mamba_utils.py: MambaStateDtypeCalculator."""
    if terms.states.recurrent != "auto":
        return dtype_bytes(terms.states.recurrent)
    named = text_config(model.config).get(facts.recurrent_type_key) if facts.recurrent_type_key else None
    name = named or facts.recurrent_type
    return dtype_bytes(name) if name else conv_bytes


# Blocks


def state_layer(
    model: Model, facts: StateFacts, terms: CacheTerms, own_bytes: Bytes, page_bytes: Bytes | None
) -> KvLayer:
    """A state of ``own_bytes``, padded to a page of attention where there is one."""
    return KvLayer(
        holder=Holder.TARGET,
        kind=LayerKind.STATE,
        block_tokens=terms.block_tokens if terms.keeps_prefixes else terms.context_tokens,
        page_bytes=own_bytes if page_bytes is None else page_bytes,
        state_blocks=_request_blocks(model, facts, terms),
        content=(own_bytes,),
    )


def _request_blocks(model: Model, facts: StateFacts, terms: CacheTerms) -> int:
    """One for each draft, and with cached prefixes one for the last block boundary and one for a prefill's.

    Source: vllm/v1/kv_cache_interface.py: MambaSpec.max_memory_usage_bytes.
    """
    if not keeps_boundaries(model, terms):
        return 1 + terms.drafts
    return 2 + terms.drafts + int(_exports_checkpoints(model, facts, terms))


def keeps_boundaries(model: Model, terms: CacheTerms) -> bool:
    """Whether states are kept at block boundaries; models without attention cache no prefixes.

    Source: vllm/model_executor/models/config.py: MambaModelConfig.verify_and_update_config.
    """
    return terms.keeps_prefixes and not model.traits.is_attention_free


def _exports_checkpoints(model: Model, facts: StateFacts, terms: CacheTerms) -> bool:
    if facts.family is StateFamily.MAMBA2:
        return True
    if facts.family is StateFamily.GATED_DELTA_NET:
        return _delta_net_exports(model, facts, terms)
    return facts.family is StateFamily.KDA and _kda_exports(model, facts)


def _delta_net_exports(model: Model, facts: StateFacts, terms: CacheTerms) -> bool:
    """FlashInfer's prefill is chosen on these devices.

    Source: vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py: _resolve_gdn_prefill_backend.
    """
    major = terms.compute_capability[0]
    return major == 9 or (major in (10, 12) and size_of(text_config(model.config), facts.key_width) == 128)


def _kda_exports(model: Model, facts: StateFacts) -> bool:
    """FlashKDA needs a bounded gate.

    Source: vllm/models/kimi_k3/nvidia/kda.py: is_flashkda_supported.
    """
    section = text_config(model.config).get(facts.section)
    bound = section.get("gate_lower_bound") if isinstance(section, Mapping) else None
    return isinstance(bound, int | float) and bound < 0


def hybrid_block_tokens(
    model: Model, facts: StateFacts, terms: CacheTerms, token_bytes: Bytes, own_bytes: Bytes
) -> int:
    """Tokens of a block of attention, wide enough that its page holds a state.

    Source: vllm/platforms/interface.py: Platform._align_hybrid_block_size.
    """
    unit = max(terms.block_tokens, LATENT_HYBRID_BLOCK_TOKENS.value) if model.traits.is_mla else terms.block_tokens
    if keeps_boundaries(model, terms) and facts.family is StateFamily.GATED_DELTA_NET:
        unit = lcm(unit, CHECKPOINT_TOKENS.value if _delta_net_exports(model, facts, terms) else 1)
    return max(terms.block_tokens, unit * ceil(own_bytes / (unit * token_bytes)))

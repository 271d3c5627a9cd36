"""Recurrent states: their bytes, the blocks of one request, and the blocks of attention that they share a pool with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, lcm, prod
from typing import Any

from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.facts.state_layers import (
    ATTENTION_INTERVAL,
    CHECKPOINT_TOKENS,
    LATENT_HYBRID_BLOCK_TOKENS,
    STATE_LAYERS,
    LayerOrder,
    StateFacts,
    StateFamily,
)
from servespec.compiler.memory.cache_terms import CacheTerms
from servespec.compiler.memory.dimensions import is_size
from servespec.compiler.memory.kv_cache import KvLayer, LayerKind
from servespec.compiler.memory.line import Holder
from servespec.compiler.memory.storage import dtype_bytes
from servespec.compiler.model import Model
from servespec.units import Bytes

_ATTENTION_TYPES = ("attention", "full_attention", "hybrid")
_STATE_TYPES = ("mamba", "linear_attention", "conv", "hybrid")


@dataclass(frozen=True, slots=True)
class LayerStates:
    """Whether each layer has attention, and whether it has a state; a layer may have neither."""

    attends: tuple[bool, ...]
    recurs: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSizes:
    """Sizes of one layer's state over all ranks, before it is split. A family leaves what it has not at 0."""

    inner: int
    heads: int
    width: int
    key_heads: int
    key_width: int
    groups: int
    state: int
    kernel: int


def has_states(model: Model) -> bool:
    return model.traits.is_hybrid or model.traits.is_attention_free


def state_facts(model: Model) -> StateFacts | None:
    found = (STATE_LAYERS.get(name) for name in model.traits.architectures)
    return next((one.value for one in found if one is not None), None)


# Which layers


def layer_states(model: Model, facts: StateFacts) -> LayerStates | str:
    """The kinds of all layers, or which key of the config does not tell them."""
    layers = model.traits.num_hidden_layers
    if facts.order is LayerOrder.PATTERN and isinstance(model.config.get("hybrid_override_pattern"), str):
        return _by_names(model.config["hybrid_override_pattern"], ("*",), ("M",))
    if not is_size(layers):
        return "config.json names no `num_hidden_layers`"
    if facts.order is LayerOrder.LISTS:
        return _by_lists(text_config(model.config), layers)
    if facts.order in (LayerOrder.BOTH, LayerOrder.STATES):
        return LayerStates((facts.order is LayerOrder.BOTH,) * layers, (True,) * layers)
    names = _names(model) or _by_interval(text_config(model.config), facts, layers)
    if names is None:
        return "config.json does not name the kinds of its layers"
    return _by_names(names, _ATTENTION_TYPES, _STATE_TYPES)


def _names(model: Model) -> tuple[str, ...] | None:
    listed = text_config(model.config).get("layers_block_type")
    return tuple(map(str, listed)) if isinstance(listed, list) else model.traits.layer_types


def _by_names(names: Iterable[str], attention: tuple[str, ...], states: tuple[str, ...]) -> LayerStates:
    listed = tuple(names)
    return LayerStates(tuple(name in attention for name in listed), tuple(name in states for name in listed))


def _by_interval(text: Mapping[str, Any], facts: StateFacts, layers: int) -> tuple[str, ...] | None:
    if facts.order is LayerOrder.INTERVAL:
        every = _count(text, "full_attention_interval") or ATTENTION_INTERVAL.value
        return tuple("linear_attention" if (index + 1) % every else "full_attention" for index in range(layers))
    period, offset = _count(text, "attn_layer_period"), text.get("attn_layer_offset")
    if facts.order is not LayerOrder.PERIOD or not period:
        return None
    return tuple("attention" if index % period == offset else "mamba" for index in range(layers))


def _by_lists(text: Mapping[str, Any], layers: int) -> LayerStates | str:
    section = text.get("linear_attn_config")
    listed = section.get("kda_layers") if isinstance(section, Mapping) else None
    if not isinstance(listed, list):
        return "config.json names no `linear_attn_config.kda_layers`"
    recurs = tuple(index + 1 in listed for index in range(layers))
    return LayerStates(tuple(not one for one in recurs), recurs)


# Bytes of one state


def state_sizes(model: Model, facts: StateFacts) -> StateSizes | str:
    """The sizes that the family's formulas need, or the keys that the config lacks."""
    text = text_config(model.config)
    section = text.get(facts.section) if facts.section else text
    named: Mapping[str, Any] = section if isinstance(section, Mapping) else {}
    single = (facts.heads, facts.width, facts.key_heads, facts.key_width, facts.groups, facts.state, facts.kernel)
    missing = [key for key in (*facts.inner, *single) if key and not _count(named, key)]
    if missing:
        place = f"{facts.section}." if facts.section else ""
        return f"config.json names no {', '.join(f'`{place}{key}`' for key in missing)}"
    heads, width, key_heads, key_width, groups, state, kernel = (_count(named, key) for key in single)
    return StateSizes(
        inner=prod(_count(named, key) for key in facts.inner),
        heads=heads,
        width=width,
        key_heads=key_heads,
        key_width=key_width,
        groups=groups,
        state=state,
        kernel=kernel,
    )


def _count(section: Mapping[str, Any], key: str) -> int:
    value = section.get(key)
    return value if is_size(value) else 0


def conv_width(sizes: StateSizes, family: StateFamily, ranks: int) -> int:
    """Channels of the convolution over all ranks; groups that ranks do not divide are copied, one a rank.

    Source: vllm/model_executor/layers/mamba/mamba_utils.py: MambaStateShapeCalculator.
    """
    if family is StateFamily.GATED_DELTA_NET:
        return 2 * sizes.key_heads * sizes.key_width + sizes.heads * sizes.width
    if family is StateFamily.KDA:
        return 3 * sizes.heads * sizes.width
    if family is StateFamily.MAMBA2:
        groups = sizes.groups if sizes.groups % ranks == 0 else ranks
        return sizes.inner + 2 * groups * sizes.state
    return sizes.inner


def _recurrent_elements(sizes: StateSizes, family: StateFamily) -> int:
    """Over all ranks."""
    if family is StateFamily.GATED_DELTA_NET:
        return sizes.heads * sizes.width * sizes.key_width
    if family is StateFamily.KDA:
        return sizes.heads * sizes.width * sizes.width
    if family is StateFamily.MAMBA2:
        return sizes.heads * sizes.width * sizes.state
    return sizes.inner * sizes.state


def state_bytes(model: Model, facts: StateFacts, terms: CacheTerms) -> Bytes | str:
    """One layer's state of one request on one rank, which it may have several blocks of."""
    sizes = state_sizes(model, facts)
    if isinstance(sizes, str):
        return sizes
    ranks, family = terms.split.tensor, facts.family
    channels, recurrent = conv_width(sizes, family, ranks), _recurrent_elements(sizes, family)
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
    return major == 9 or (major in (10, 12) and _count(text_config(model.config), facts.key_width) == 128)


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

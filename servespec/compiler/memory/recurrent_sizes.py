"""Which layers of a model are recurrent, and the sizes of their states, read from its config.json."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.facts.state_layers import (
    ATTENTION_INTERVAL,
    STATE_LAYERS,
    LayerOrder,
    StateFacts,
    StateFamily,
)
from servespec.compiler.memory.config_sizes import is_size, size_of
from servespec.compiler.model import Model

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
    if facts.order is LayerOrder.PATTERN:
        # The config's class counts layers by the list.
        return _by_names(names, _ATTENTION_TYPES, _STATE_TYPES)
    if len(names) < layers:
        return f"config.json names the kinds of {len(names)} of {layers} layers"
    # An override of `num_hidden_layers` leaves the list as it is.
    return _by_names(names[:layers], _ATTENTION_TYPES, _STATE_TYPES)


def _names(model: Model) -> tuple[str, ...] | None:
    listed = text_config(model.config).get("layers_block_type")
    return tuple(map(str, listed)) if isinstance(listed, list) else model.traits.layer_types


def _by_names(names: Iterable[str], attention: tuple[str, ...], states: tuple[str, ...]) -> LayerStates:
    listed = tuple(names)
    return LayerStates(tuple(name in attention for name in listed), tuple(name in states for name in listed))


def _by_interval(text: Mapping[str, Any], facts: StateFacts, layers: int) -> tuple[str, ...] | None:
    if facts.order is LayerOrder.INTERVAL:
        every = size_of(text, "full_attention_interval") or ATTENTION_INTERVAL.value
        return tuple("linear_attention" if (index + 1) % every else "full_attention" for index in range(layers))
    period, offset = size_of(text, "attn_layer_period"), text.get("attn_layer_offset")
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
    missing = [key for key in (*facts.inner, *single) if key and not size_of(named, key)]
    if missing:
        place = f"{facts.section}." if facts.section else ""
        return f"config.json names no {', '.join(f'`{place}{key}`' for key in missing)}"
    heads, width, key_heads, key_width, groups, state, kernel = (size_of(named, key) for key in single)
    return StateSizes(
        inner=prod(size_of(named, key) for key in facts.inner),
        heads=heads,
        width=width,
        key_heads=key_heads,
        key_width=key_width,
        groups=groups,
        state=state,
        kernel=kernel,
    )


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


def recurrent_elements(sizes: StateSizes, family: StateFamily) -> int:
    """Elements of the recurrent state over all ranks."""
    if family is StateFamily.GATED_DELTA_NET:
        return sizes.heads * sizes.width * sizes.key_width
    if family is StateFamily.KDA:
        return sizes.heads * sizes.width * sizes.width
    if family is StateFamily.MAMBA2:
        return sizes.heads * sizes.width * sizes.state
    return sizes.inner * sizes.state

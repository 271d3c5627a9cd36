"""The sizes of a decoder as the weight formulas need them, read from its config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from servespec.compiler.facts.decoder_layers import (
    TIED_MODEL_TYPES,
    DenseLayers,
    LayerFacts,
    Presence,
    Router,
    SharedExperts,
)
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.facts.state_layers import StateFamily
from servespec.compiler.memory.compress_ratios import compress_ratios
from servespec.compiler.memory.config_sizes import is_size
from servespec.compiler.memory.matrix import FP32_ELEMENTS
from servespec.compiler.memory.recurrent_sizes import StateSizes, layer_states, state_facts, state_sizes
from servespec.compiler.memory.sparse_index import layers_with_index
from servespec.compiler.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentDimensions:
    """Widths of multi-head latent attention; the index is DeepSeek's sparse one, which some layers may be without."""

    query_rank: int
    kv_rank: int
    plain_width: int
    rotated_width: int
    value_width: int
    index_heads: int
    index_width: int
    has_index: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedDimensions:
    """DeepSeek V4's attention: ratios by layer, projections of the output by group, and parallel hidden states."""

    query_rank: int
    output_groups: int
    output_rank: int
    ratios: tuple[int, ...]
    index_heads: int
    index_width: int
    hidden_states: int
    hash_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentDimensions:
    """Recurrent layers, and which of the layers they are."""

    family: StateFamily
    sizes: StateSizes
    recurs: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class IndexBranch:
    """An index beside the keys and values of some layers."""

    width: int
    has_index: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertDimensions:
    """Routed experts of a layer, their width, and the width of what every token takes.

    ``has_router_bias`` and ``has_wide_router`` are of the router, whose matrix may be in fp32.
    """

    count: int
    per_token: int
    width: int
    shared_width: int
    has_shared_gate: bool
    has_bias: bool
    has_router_bias: bool
    has_wide_router: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """``expert_layers`` says for each layer whether its MLP is a mixture; ``is_tied`` is None where the config's class
    decides."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    vocabulary: int
    positions: int
    rotated_width: int
    is_tied: bool | None
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    has_qk_norm: bool
    has_output_gate: bool
    latent: LatentDimensions | None
    compressed: CompressedDimensions | None
    recurrent: RecurrentDimensions | None
    index_branch: IndexBranch | None
    experts: ExpertDimensions | None
    expert_layers: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Keys that the config.json does not have and a formula needs."""

    keys: tuple[str, ...]

    @property
    def because(self) -> str:
        return f"config.json names no {', '.join(f'`{key}`' for key in self.keys)}"


class _Reading:
    """Integers of a config by key; what is not there is remembered, so that all of it is told at once."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.missing: list[str] = []

    def count(self, key: str) -> int:
        """A number that may be 0, which null stands for too."""
        value = self._config.get(key, -1)
        if value is None:
            return 0
        return value if _is_integer(value) and value >= 0 else self.known(key, None)

    def known(self, key: str, value: int | None) -> int:
        """A size, which is at least 1."""
        if value is None or value < 1:
            self.missing.append(key)
            return 1
        return value

    def size(self, key: str) -> int:
        value = self._config.get(key)
        return self.known(key, value if _is_integer(value) else None)

    def has_gate(self, facts: LayerFacts) -> bool:
        return facts.gate_flag is not None and self._config.get(facts.gate_flag, facts.has_gate) is True

    def first(self, *keys: str) -> str:
        """The first key that is there, else the first of all."""
        return next((key for key in keys if key in self._config), keys[0])

    def flag(self, *keys: str) -> bool:
        return any(self._config.get(key) is True for key in keys)

    def has_qkv_bias(self, facts: LayerFacts) -> bool:
        decides = facts.qkv_bias_key
        keys = (decides,) if decides is not None and decides in self._config else facts.bias_keys
        return self.is_there(facts.qkv_bias, *keys)

    def is_there(self, presence: Presence, *keys: str) -> bool:
        return presence is Presence.ALWAYS or (presence is Presence.CONFIG and self.flag(*keys))


def _is_tied(model: Model, facts: LayerFacts) -> bool | None:
    """What the config says, else what its class does where that is known."""
    traits = model.traits
    if not facts.can_tie:
        return False
    by_class = not TIED_MODEL_TYPES.value.isdisjoint({traits.text_model_type, traits.model_type})
    return True if traits.tie_word_embeddings is None and by_class else traits.tie_word_embeddings


def dimensions_of(model: Model, facts: LayerFacts) -> Dimensions | Missing:
    """The sizes of a model whose layers are such, or what its config.json lacks."""
    read = _Reading(text_config(model.config))
    found = _read(model, facts, read)
    return Missing(tuple(dict.fromkeys(read.missing))) if read.missing else found


def _read(model: Model, facts: LayerFacts, read: _Reading) -> Dimensions:
    traits = model.traits
    layers = read.known("num_hidden_layers", traits.num_hidden_layers)
    experts = _experts(model, facts, read)
    expert_layers = _expert_layers(model.config, facts, layers, read) if experts else (False,) * layers
    needs_mlp = not all(expert_layers)
    heads = read.known("num_attention_heads", traits.num_attention_heads)
    hidden = read.known("hidden_size", traits.hidden_size)
    latent = _latent(model, layers, read) if facts.is_latent else None
    compressed = _compressed(model, read) if facts.is_compressed else None
    head = read.known("head_dim", traits.head_dim or max(1, hidden // heads))
    return Dimensions(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=read.known("num_key_value_heads", traits.num_key_value_heads),
        head=head,
        mlp=read.size(facts.mlp_width) if needs_mlp else 0,
        vocabulary=read.known("vocab_size", traits.vocab_size),
        positions=traits.max_position_embeddings or 0,
        rotated_width=_rotated_width(model, facts, latent, head),
        is_tied=_is_tied(model, facts),
        qkv_bias=read.has_qkv_bias(facts),
        output_bias=read.is_there(facts.output_bias, *facts.bias_keys),
        mlp_bias=read.is_there(facts.mlp_bias, "mlp_bias"),
        has_qk_norm=facts.qk_norm_flag is None or read.flag(facts.qk_norm_flag),
        has_output_gate=read.has_gate(facts),
        latent=latent,
        compressed=compressed,
        recurrent=_recurrent(model, layers, read),
        index_branch=_index_branch(model, layers, read),
        experts=experts,
        expert_layers=expert_layers,
    )


def _latent(model: Model, layers: int, read: _Reading) -> LatentDimensions:
    traits = model.traits
    has_index = traits.uses_sparse_index
    return LatentDimensions(
        query_rank=traits.q_lora_rank or 0,
        kv_rank=read.known("kv_lora_rank", traits.kv_lora_rank),
        plain_width=read.known("qk_nope_head_dim", traits.qk_nope_head_dim),
        rotated_width=read.known("qk_rope_head_dim", traits.qk_rope_head_dim),
        value_width=read.known("v_head_dim", traits.v_head_dim),
        index_heads=read.count("index_n_heads") if has_index else 0,
        index_width=read.count("index_head_dim") if has_index else 0,
        has_index=layers_with_index(model, layers),
    )


_ROTARY_TABLES = 2
"""DeepSeek V4 rotates windows and compressed contexts by different tables."""


def _rotated_width(model: Model, facts: LayerFacts, latent: LatentDimensions | None, head: int) -> int:
    """Elements of a half type that a position takes in the tables of all layers."""
    if latent is not None:
        return latent.rotated_width
    if facts.is_compressed:
        return _ROTARY_TABLES * FP32_ELEMENTS * (model.traits.qk_rope_head_dim or 0)
    return int(head * _rotated_share(model.config, facts))


def _compressed(model: Model, read: _Reading) -> CompressedDimensions:
    text = text_config(model.config)
    written = text.get("num_hash_layers", 0)
    return CompressedDimensions(
        query_rank=read.size("q_lora_rank"),
        output_groups=read.size("o_groups"),
        output_rank=read.size("o_lora_rank"),
        ratios=compress_ratios(model),
        index_heads=read.size("index_n_heads"),
        index_width=read.size("index_head_dim"),
        hidden_states=read.size("hc_mult"),
        hash_layers=written if is_size(written) else 0,
    )


def _recurrent(model: Model, layers: int, read: _Reading) -> RecurrentDimensions | None:
    facts = state_facts(model) if model.traits.is_hybrid else None
    if facts is None:
        return None
    kinds, sizes = layer_states(model, facts), state_sizes(model, facts)
    if isinstance(kinds, str) or isinstance(sizes, str) or len(kinds.recurs) != layers:
        read.missing.append("layer_types")
        return None
    return RecurrentDimensions(family=facts.family, sizes=sizes, recurs=kinds.recurs)


def _index_branch(model: Model, layers: int, read: _Reading) -> IndexBranch | None:
    section = text_config(model.config).get("sparse_attention_config")
    if not isinstance(section, Mapping):
        return None
    width, listed = section.get("sparse_index_dim"), section.get("sparse_attention_freq")
    if not is_size(width) or not isinstance(listed, list) or len(listed) < layers:
        read.missing.append("sparse_attention_config")
        return None
    return IndexBranch(width, tuple(bool(one) for one in listed))


def _experts(model: Model, facts: LayerFacts, read: _Reading) -> ExpertDimensions | None:
    traits = model.traits
    if facts.expert_width is None or not traits.num_experts:
        return None
    width = read.count(facts.expert_width)
    return ExpertDimensions(
        count=read.known("num_experts", traits.num_experts),
        per_token=read.known("num_experts_per_tok", traits.num_experts_per_token),
        width=width,
        shared_width=_shared_width(facts, width, read),
        has_shared_gate=facts.shared_experts is SharedExperts.WIDTH,
        has_bias=facts.expert_bias,
        has_router_bias=_has_router_bias(facts, read, text_config(model.config).get("topk_method")),
        has_wide_router=facts.router in (Router.WIDE, Router.FLAGGED),
    )


def _has_router_bias(facts: LayerFacts, read: _Reading, method: object) -> bool:
    if facts.router is Router.PLAIN:
        return method == "noaux_tc"
    return facts.router is not Router.FLAGGED or read.flag("use_routing_bias")


def _shared_width(facts: LayerFacts, width: int, read: _Reading) -> int:
    if facts.shared_experts is SharedExperts.NONE:
        return 0
    if facts.shared_experts is SharedExperts.WIDTH:
        return read.count("shared_expert_intermediate_size")
    return width * read.count(read.first("n_shared_experts", "num_shared_experts"))


def _expert_layers(config: Mapping[str, Any], facts: LayerFacts, layers: int, read: _Reading) -> tuple[bool, ...]:
    if facts.dense_layers is DenseLayers.NONE:
        return (True,) * layers
    if facts.dense_layers in (DenseLayers.FIRST, DenseLayers.FIRST_AND_STEP):
        dense, written = read.count("first_k_dense_replace"), text_config(config).get("moe_layer_freq")
        step = written if facts.dense_layers is DenseLayers.FIRST_AND_STEP and is_size(written) else 1
        return tuple(layer >= dense and layer % step == 0 for layer in range(layers))
    if facts.dense_layers is DenseLayers.LISTED:
        return _listed(text_config(config).get("moe_layer_freq"), layers, read)
    has_experts = _every_step(text_config(config))
    return tuple(has_experts(layer) for layer in range(layers))


def _listed(listed: object, layers: int, read: _Reading) -> tuple[bool, ...]:
    if listed is None:
        return (True,) * layers
    if not isinstance(listed, list) or len(listed) < layers:
        read.missing.append("moe_layer_freq")
        return (True,) * layers
    return tuple(bool(one) for one in listed[:layers])


def _every_step(text: Mapping[str, Any]) -> Callable[[int], bool]:
    written, listed = text.get("decoder_sparse_step"), text.get("mlp_only_layers")
    step = written if _is_integer(written) and written > 0 else 1
    dense = listed if isinstance(listed, list) else []
    return lambda layer: layer not in dense and (layer + 1) % step == 0


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _rotated_share(config: Mapping[str, Any], facts: LayerFacts) -> float:
    text = text_config(config)
    rope = text.get("rope_parameters")
    places = (rope if isinstance(rope, Mapping) else {}, text)
    shares = (place.get("partial_rotary_factor") for place in places)
    return next((share for share in shares if isinstance(share, float)), facts.rotated_share)

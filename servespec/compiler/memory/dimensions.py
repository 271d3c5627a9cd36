"""The sizes of a decoder as the weight formulas need them, read from its config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from servespec.compiler.facts.decoder_layers import DenseLayers, LayerFacts, Presence, SharedExperts
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentDimensions:
    """Widths of multi-head latent attention; the index is DeepSeek's sparse one, 0 heads without."""

    query_rank: int
    kv_rank: int
    plain_width: int
    rotated_width: int
    value_width: int
    index_heads: int
    index_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertDimensions:
    """Routed experts of a layer, their width, and the width of what every token takes."""

    count: int
    per_token: int
    width: int
    shared_width: int
    has_shared_gate: bool
    has_bias: bool


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
    latent: LatentDimensions | None
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

    def flag(self, *keys: str) -> bool:
        return any(self._config.get(key) is True for key in keys)

    def is_there(self, presence: Presence, *keys: str) -> bool:
        return presence is Presence.ALWAYS or (presence is Presence.CONFIG and self.flag(*keys))


def is_size(value: object) -> TypeGuard[int]:
    """Whether a value of a config.json can be a size."""
    return _is_integer(value) and value > 0


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
    latent = _latent(model, read) if facts.is_latent else None
    head = read.known("head_dim", traits.head_dim or max(1, hidden // heads))
    return Dimensions(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=read.known("num_key_value_heads", traits.num_key_value_heads),
        head=head,
        mlp=read.known("intermediate_size", traits.intermediate_size) if needs_mlp else 0,
        vocabulary=read.known("vocab_size", traits.vocab_size),
        positions=traits.max_position_embeddings or 0,
        rotated_width=latent.rotated_width if latent else int(head * _rotated_share(model.config, facts)),
        is_tied=traits.tie_word_embeddings,
        qkv_bias=read.is_there(facts.qkv_bias, "attention_bias", "qkv_bias"),
        output_bias=read.is_there(facts.output_bias, "attention_bias"),
        mlp_bias=read.is_there(facts.mlp_bias, "mlp_bias"),
        has_qk_norm=facts.qk_norm_flag is None or read.flag(facts.qk_norm_flag),
        latent=latent,
        experts=experts,
        expert_layers=expert_layers,
    )


def _latent(model: Model, read: _Reading) -> LatentDimensions:
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
    )


def _experts(model: Model, facts: LayerFacts, read: _Reading) -> ExpertDimensions | None:
    traits = model.traits
    if facts.expert_width is None or not traits.num_experts:
        return None
    width = read.count(facts.expert_width)
    return ExpertDimensions(
        count=traits.num_experts,
        per_token=read.known("num_experts_per_tok", traits.num_experts_per_token),
        width=width,
        shared_width=_shared_width(facts, width, read),
        has_shared_gate=facts.shared_experts is SharedExperts.WIDTH,
        has_bias=facts.expert_bias,
    )


def _shared_width(facts: LayerFacts, width: int, read: _Reading) -> int:
    if facts.shared_experts is SharedExperts.NONE:
        return 0
    if facts.shared_experts is SharedExperts.WIDTH:
        return read.count("shared_expert_intermediate_size")
    return width * read.count("n_shared_experts")


def _expert_layers(config: Mapping[str, Any], facts: LayerFacts, layers: int, read: _Reading) -> tuple[bool, ...]:
    if facts.dense_layers is DenseLayers.NONE:
        return (True,) * layers
    if facts.dense_layers is DenseLayers.FIRST:
        dense = read.count("first_k_dense_replace")
        return tuple(layer >= dense for layer in range(layers))
    has_experts = _every_step(text_config(config))
    return tuple(has_experts(layer) for layer in range(layers))


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

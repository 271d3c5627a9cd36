"""Bytes of the target's and the drafter's weights on the rank that holds most, by formula from config.json."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from servespec.compiler.facts.architectures import BREAKABLE_ARCHITECTURES
from servespec.compiler.facts.decoder_layers import (
    DECODER_LAYERS,
    WHOLE_EMBEDDINGS,
    DenseLayers,
    LayerFacts,
    SharedExperts,
)
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.memory.compressed_matrices import joined_states
from servespec.compiler.memory.dimensions import Dimensions, Missing, dimensions_of
from servespec.compiler.memory.line import Holder, MemoryLine, Part, line_within
from servespec.compiler.memory.matrices import layer, rotary_table, unpacked_latent, vocabulary
from servespec.compiler.memory.matrix import Matrix, Role
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.stage import Stage
from servespec.compiler.memory.storage import ModelStorage, storage_of
from servespec.compiler.model import Model
from servespec.units import Bytes

# chosen: wide enough for layers of another kind among those that the formula counts
UNKNOWN_LAYERS_SHARE = 0.35
_OTHER_TENSORS = ("hidden_size_per_layer_input", "H_cycles", "per_layer_config")
"""Keys of embeddings for every layer, of layers run many times, and of layers with sizes of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Bytes that no formula is known for."""

    owner: str
    holder: Holder
    part: Part
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A model that its weights can be counted of; ``share`` is how far its layers may be from the formula."""

    name: str
    dimensions: Dimensions
    facts: LayerFacts
    storage: ModelStorage
    share: float


def decoder_of(model: Model, dtype: str | None, quantization: str | None) -> Decoder | str:
    """What to count, or why that cannot be."""
    name = next(iter(model.traits.architectures), "")
    known = DECODER_LAYERS.get(name)
    if known is None and _has_other_layers(model):
        return f"no formula is known for `{name or 'a model without architectures'}`"
    facts = known.value if known else _guessed_layers(model)
    dimensions = dimensions_of(model, facts)
    if isinstance(dimensions, Missing):
        return dimensions.because
    storage = storage_of(model, dtype, quantization)
    if not storage.is_known:
        return f"no formula is known for weights quantized by `{storage.name}`"
    share = 0.0 if known else UNKNOWN_LAYERS_SHARE
    found = Decoder(name=name, dimensions=dimensions, facts=facts, storage=storage, share=share)
    return replace(found, storage=_in_doubt(found)) if _misses(found) else found


def _misses(decoder: Decoder) -> bool:
    """Whether the checkpoint leaves modules plain by names that the formulas do not know."""

    def modules_of(index: int) -> Iterator[str]:
        for matrix in layer(decoder.dimensions, decoder.facts, Split(), index):
            yield from matrix.modules

    return bool(decoder.storage.left_plain.misses(decoder.dimensions.layers, modules_of))


def _in_doubt(decoder: Decoder) -> ModelStorage:
    """Error bars that reach up to what plain matrices would take."""
    storage = decoder.storage
    widened = (
        replace(stored, slack=max(stored.slack, storage.plain.bits / stored.bits - 1))
        for stored in (storage.linear, storage.expert)
    )
    linear, expert = widened
    return replace(storage, linear=linear, expert=expert)


def _has_other_layers(model: Model) -> bool:
    """Whether a guess by the usual keys would leave out whole kinds of tensors."""
    traits = model.traits
    names = set(traits.architectures)
    has_own_model = any(names & listed.value for listed in BREAKABLE_ARCHITECTURES.values())
    text = text_config(model.config)
    has_own_model |= any(text.get(key) for key in _OTHER_TENSORS)
    return has_own_model or traits.is_mla or traits.is_hybrid or traits.is_attention_free or traits.is_encoder_decoder


def _guessed_layers(model: Model) -> LayerFacts:
    """Of an architecture that is not in the table: what its config's keys suggest."""
    traits, text = model.traits, text_config(model.config)
    width = "intermediate_size" if traits.moe_intermediate_size is None else "moe_intermediate_size"
    has_dense = text.get("first_k_dense_replace") is not None
    has_shared = bool(text.get("n_shared_experts"))
    return LayerFacts(
        qkv_bias_key="qkv_bias",
        expert_width=width if traits.is_mixture_of_experts else None,
        dense_layers=DenseLayers.FIRST if has_dense else DenseLayers.NONE,
        shared_experts=SharedExperts.COUNT if has_shared else SharedExperts.NONE,
    )


def stage_lines(decoder: Decoder, split: Split, holder: Holder) -> tuple[tuple[MemoryLine, ...], ...]:
    """The lines of each pipeline stage, one a role."""
    counts = split.layers(decoder.dimensions.layers)
    stages = (Stage(index, split.pipeline) for index in range(split.pipeline))
    return tuple(role_lines(decoder, _stage(decoder, split, stage, stage.of(counts)), holder) for stage in stages)


def _stage(decoder: Decoder, split: Split, stage: Stage, layers: range) -> Iterator[Matrix]:
    """A stage may hold no layer; the first has the embedding and the last the head all the same."""
    dimensions = decoder.dimensions
    if layers:
        yield rotary_table(dimensions)
    if stage.is_first or (stage.is_last and dimensions.is_tied):
        is_whole = split.has_whole_embedding and decoder.name in WHOLE_EMBEDDINGS.value
        yield vocabulary(dimensions, Split() if is_whole else split)
    if stage.is_last:
        yield Matrix(role=Role.SMALL, rows=1, columns=dimensions.hidden)
        if dimensions.compressed is not None:
            yield joined_states(dimensions, dimensions.compressed)
        if not dimensions.is_tied:
            yield vocabulary(dimensions, split)
    for index in layers:
        yield from decoder_layer(decoder, split, index)


def decoder_layer(decoder: Decoder, split: Split, index: int) -> Iterator[Matrix]:
    """A layer as it is stored, with what a quantized one keeps unpacked."""
    skipped = decoder.storage.left_plain
    for matrix in layer(decoder.dimensions, decoder.facts, split, index):
        yield replace(matrix, is_plain=True) if skipped.has(matrix.modules, index) else matrix
    recurrent = decoder.dimensions.recurrent
    if recurrent is not None and recurrent.recurs[index]:
        return
    unpacked = unpacked_latent(decoder.dimensions, split)
    if unpacked is not None and decoder.storage.linear != decoder.storage.plain:
        yield unpacked


def role_lines(decoder: Decoder, matrices: Iterable[Matrix], holder: Holder) -> tuple[MemoryLine, ...]:
    """One line for each role that there is."""
    sizes: dict[Role, int] = {}
    for matrix in matrices:
        sizes[matrix.role] = sizes.get(matrix.role, 0) + matrix.size_bytes(decoder.storage)
    return tuple(_role_line(decoder, role, Bytes(sizes[role]), holder) for role in Role if sizes.get(role))


def _role_line(decoder: Decoder, role: Role, size: Bytes, holder: Holder) -> MemoryLine:
    storage, dimensions = decoder.storage, decoder.dimensions
    stored = storage.plain
    if role in (Role.ATTENTION, Role.MLP):
        stored = storage.linear
    elif role is Role.EXPERTS:
        stored = storage.expert
    because = f"{dimensions.layers} layers of `{decoder.name}`, {storage.name}"
    return line_within(
        owner=str(role),
        holder=holder,
        part=Part.WEIGHTS,
        size=size,
        low_share=max(decoder.share, min(stored.slack, 0.01)),
        high_share=max(decoder.share, stored.slack),
        because=because,
    )

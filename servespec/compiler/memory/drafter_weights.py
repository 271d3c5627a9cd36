"""Bytes of what drafts, beside the target's weights: a head, MTP layers, a block drafter, or a model of its own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from servespec.compiler.facts.decoder_layers import EAGLE3_ARCHITECTURES, EAGLE3_HIDDEN_STATES, EAGLE3_LAYER
from servespec.compiler.memory.compress_ratios import block_draft_layers
from servespec.compiler.memory.compressed_matrices import joined_states
from servespec.compiler.memory.dimensions import Dimensions, Missing, dimensions_of
from servespec.compiler.memory.line import Holder, MemoryLine, Part, line_within
from servespec.compiler.memory.matrices import grouped_attention, mlp, rotary_table, vocabulary
from servespec.compiler.memory.matrix import Matrix, Role
from servespec.compiler.memory.split import Split, drafter_split_of, split_of
from servespec.compiler.memory.storage import storage_of
from servespec.compiler.memory.weights import (
    UNKNOWN_LAYERS_SHARE,
    Decoder,
    Unknown,
    decoder_layer,
    decoder_of,
    stage_lines,
)
from servespec.compiler.model import Model
from servespec.compiler.resolve.request import engine_field
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes

_WITHOUT_WEIGHTS = (None, "ngram", "ngram_gpu", "suffix", "extract_hidden_states")
# chosen: norms and gates of MTP layers differ by architecture
_MTP_SHARE = 0.05
# chosen: a block drafter's own small heads are not counted
_BLOCK_SHARE = 0.25


def drafter_lines(resolution: Resolution, target: Decoder | str) -> tuple[MemoryLine | Unknown, ...]:
    """The drafter's weights on the last stage."""
    method, draft = resolution.drafting.method.value, resolution.request.draft
    if method in _WITHOUT_WEIGHTS:
        return ()
    if draft is None:
        return (_unknown("the draft model's config.json is not known"),)
    if isinstance(target, str) and method != "draft_model":
        return (_unknown("it shares parts of a target whose sizes are not known"),)
    spec = resolution.request.spec
    if method == "draft_model":
        return _own_model(draft, drafter_split_of(spec), spec.model.dtype)
    assert isinstance(target, Decoder)
    split = split_of(spec)
    if draft is resolution.request.target:
        return _own_lines(draft, target, split, method)
    if _is_eagle3(draft):
        return _eagle3_lines(resolution, draft, target, split)
    return _other_lines(resolution, draft, target, split)


def _unknown(because: str) -> Unknown:
    return Unknown(owner="weights", holder=Holder.DRAFTER, part=Part.WEIGHTS, because=because)


def _is_eagle3(draft: Model) -> bool:
    return not set(EAGLE3_ARCHITECTURES.value).isdisjoint(draft.traits.architectures)


def _own_model(draft: Model, split: Split, dtype: str | None) -> tuple[MemoryLine | Unknown, ...]:
    decoder = decoder_of(draft, dtype, None)
    if isinstance(decoder, str):
        return (_unknown(decoder),)
    return stage_lines(decoder, split, Holder.DRAFTER)[0]


# Layers in the target's own files


def _own_lines(draft: Model, target: Decoder, split: Split, method: str) -> tuple[MemoryLine | Unknown, ...]:
    if method == "mtp":
        return _mtp_lines(draft, _uncompressed(target), split)
    if method == "dspark" and target.dimensions.compressed is not None:
        return (_block_line(draft, _uncompressed(target), split),)
    return (_unknown("its layers are in the target's files"),)


def _uncompressed(target: Decoder) -> Decoder:
    """The target as its drafter's layers are: they compress nothing, and look no experts up by token."""
    dimensions = target.dimensions
    if dimensions.compressed is None:
        return target
    plain = replace(dimensions.compressed, ratios=(0,) * dimensions.layers, hash_layers=0)
    return replace(target, dimensions=replace(dimensions, compressed=plain))


def _block_line(draft: Model, target: Decoder, split: Split) -> MemoryLine:
    """A block drafter of layers like the target's, its projections and its Markov head.

    Source: vllm/models/deepseek_v4/nvidia/dspark.py: DSparkDeepseekV4Model.
    """
    dimensions, layers = target.dimensions, block_draft_layers(draft)
    states, rank = draft.config.get("dspark_target_layer_ids"), _named(draft, "dspark_markov_rank") or 0
    inputs = len(states) if isinstance(states, list) and states else EAGLE3_HIDDEN_STATES.value
    own = [
        Matrix(role=Role.ATTENTION, rows=dimensions.hidden, columns=inputs * dimensions.hidden),
        Matrix(role=Role.ATTENTION, rows=layers * dimensions.head, columns=dimensions.hidden),
        Matrix(role=Role.VOCABULARY, rows=2 * dimensions.vocabulary, columns=rank),
    ]
    if dimensions.compressed is not None:
        own.append(joined_states(dimensions, dimensions.compressed))
    for _ in range(layers):
        own += decoder_layer(target, split, dimensions.layers - 1)
    because = f"{layers} layers like the target's; the embedding and the output head are the target's"
    return _line("block drafter", _size(target, own), max(_MTP_SHARE, target.share), because)


# MTP layers


def _mtp_lines(draft: Model, target: Decoder, split: Split) -> tuple[MemoryLine | Unknown, ...]:
    """Whole layers of the target's last kind, each behind a projection of two hidden states.

    They share the target's embedding and head.  Source: vllm/model_executor/models/deepseek_mtp.py:
    DeepSeekMultiTokenPredictorLayer; vllm/v1/worker/gpu/spec_decode/eagle/utils.py: load_eagle_model.
    """
    layers = draft.draft_tokens
    if not layers:
        return (_unknown("config.json does not say how many MTP layers there are"),)
    hidden = target.dimensions.hidden
    own = [
        Matrix(role=Role.SMALL, rows=hidden, columns=2 * hidden),
        Matrix(role=Role.SMALL, rows=3, columns=hidden),
        *decoder_layer(target, split, target.dimensions.layers - 1),
    ]
    size = layers * _size(target, own)
    because = f"{layers} MTP {'layer' if layers == 1 else 'layers'}; the embedding and the output head are the target's"
    return (_line("MTP layers", size, max(_MTP_SHARE, target.share), because),)


def _size(decoder: Decoder, matrices: list[Matrix]) -> int:
    return sum(matrix.size_bytes(decoder.storage) for matrix in matrices)


def _line(owner: str, size: int, share: float, because: str, may_add: int = 0) -> MemoryLine:
    high_share = share + (may_add / size if size else 0.0)
    return line_within(
        owner=owner,
        holder=Holder.DRAFTER,
        part=Part.WEIGHTS,
        size=Bytes(size),
        low_share=share,
        high_share=high_share,
        because=because,
    )


# EAGLE3 heads


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vocabulary:
    """An embedding and an output head: bytes that are stored for certain, and bytes that may be."""

    certain: int
    possible: int
    because: str


def _eagle3_lines(
    resolution: Resolution, draft: Model, target: Decoder, split: Split
) -> tuple[MemoryLine | Unknown, ...]:
    dimensions = dimensions_of(draft, EAGLE3_LAYER.value)
    if isinstance(dimensions, Missing):
        return (_unknown(dimensions.because),)
    storage = storage_of(draft, resolution.request.spec.model.dtype, None)
    decoder = Decoder(
        name="eagle3", dimensions=dimensions, facts=EAGLE3_LAYER.value, storage=storage, share=storage.linear.slack
    )
    kept = _kept_vocabulary(resolution, draft, decoder, target, split)
    own = _size(decoder, list(_eagle3_matrices(draft, decoder, target, split)))
    because = f"{dimensions.layers} layer of `eagle3` and the projection of the target's hidden states; {kept.because}"
    possible = _room(resolution, draft, own + kept.certain, kept.possible)
    return (_line("EAGLE3 head", own + kept.certain, decoder.share, because, possible),)


def _eagle3_matrices(draft: Model, decoder: Decoder, target: Decoder, split: Split) -> Iterator[Matrix]:
    """Source: vllm/model_executor/models/llama_eagle3.py: LlamaModel."""
    dimensions = decoder.dimensions
    hidden = dimensions.hidden
    for index in range(dimensions.layers):
        yield Matrix(role=Role.SMALL, rows=3, columns=hidden)
        yield from grouped_attention(dimensions, decoder.facts, split, hidden if index else 2 * hidden)
        yield from mlp(hidden, dimensions.mlp, split, has_bias=dimensions.mlp_bias)
    yield Matrix(role=Role.SMALL, rows=1, columns=hidden)
    yield from _projection(draft, hidden)
    if (dimensions.positions, dimensions.rotated_width) != (
        target.dimensions.positions,
        target.dimensions.rotated_width,
    ):
        yield rotary_table(dimensions)


def _projection(draft: Model, hidden: int) -> Iterator[Matrix]:
    """What joins the target's hidden states, with a norm of all of them, or of each."""
    section = draft.config.get("eagle_config")
    own = section if isinstance(section, dict) else {}
    if own.get("use_aux_hidden_state", True) is False:
        return
    inputs = _hidden_states(draft) * (_named(draft, "target_hidden_size") or hidden)
    yield Matrix(role=Role.MLP, rows=hidden, columns=inputs)
    if own.get("norm_before_fc", draft.config.get("norm_before_fc")) is True:
        yield Matrix(role=Role.SMALL, rows=1, columns=inputs)
    if draft.config.get("fc_norm") is True:
        yield Matrix(role=Role.SMALL, rows=1, columns=inputs)


def _hidden_states(draft: Model) -> int:
    named = _named(draft, "num_aux_hidden_states")
    if named:
        return named
    section = draft.config.get("eagle_config")
    layers = section.get("eagle_aux_hidden_state_layer_ids") if isinstance(section, dict) else None
    return len(layers) if isinstance(layers, list) and layers else EAGLE3_HIDDEN_STATES.value


def _named(draft: Model, key: str) -> int | None:
    value = draft.config.get(key)
    return value if isinstance(value, int) and value > 0 else None


def _kept_vocabulary(
    resolution: Resolution, draft: Model, decoder: Decoder, target: Decoder, split: Split
) -> _Vocabulary:
    """What the drafter does not share: a part of its checkpoint that differs from the target's, or has another shape.

    Source: vllm/v1/worker/gpu/spec_decode/eagle/utils.py: load_eagle_model.
    """
    own, other = decoder.dimensions, target.dimensions
    smaller = _named(draft, "draft_vocab_size") or own.vocabulary
    head_size = _size(decoder, [vocabulary(replace(own, vocabulary=smaller), split)])
    embedding_size = _size(decoder, [vocabulary(own, split)])
    ids = 8 * smaller if smaller != other.vocabulary else 0
    keeps_embedding = own.hidden != other.hidden or split.pipeline > 1
    certain = ids + (embedding_size if keeps_embedding else 0)
    if _is_dummy(resolution):
        return _Vocabulary(certain=certain, possible=0, because="dummy weights share the target's vocabulary")
    if smaller != other.vocabulary:
        possible = 0 if keeps_embedding else embedding_size
        because = f"an output head of its own for {smaller} tokens"
        return _Vocabulary(certain=certain + head_size, possible=possible, because=because)
    possible = head_size + (0 if keeps_embedding else embedding_size)
    return _Vocabulary(certain=certain, possible=possible, because="the vocabulary is shared unless its own differs")


def _is_dummy(resolution: Resolution) -> bool:
    spec = resolution.request.spec
    own = engine_field(spec, "speculative", "draft_load_config", None)
    named = own.get("load_format") if isinstance(own, dict) else None
    return (named or spec.model.load_format) == "dummy"


def _room(resolution: Resolution, draft: Model, certain: int, possible: int) -> int:
    """What a drafter may hold beside what is certain: no more than its files have, where those are at hand."""
    if draft.checkpoint is None or split_of(resolution.request.spec).tensor > 1:
        return possible
    return max(0, min(possible, draft.checkpoint.size - certain))


# Other drafters


def _other_lines(
    resolution: Resolution, draft: Model, target: Decoder, split: Split
) -> tuple[MemoryLine | Unknown, ...]:
    """Layers by the formula of a dense model, behind a projection; the vocabulary is the target's unless it is not."""
    decoder = decoder_of(draft, resolution.request.spec.model.dtype, None)
    if isinstance(decoder, str):
        return (_unknown(decoder),)
    dimensions = decoder.dimensions
    matrices = list(_layers_with_projection(decoder, target, split))
    shared = _size(decoder, [vocabulary(dimensions, split)])
    own = _size(decoder, matrices)
    share = max(_BLOCK_SHARE, UNKNOWN_LAYERS_SHARE if decoder.share else 0.0)
    because = f"{dimensions.layers} layers and a projection; the vocabulary is shared unless its own differs"
    possible = 0 if _is_dummy(resolution) else _room(resolution, draft, own, 2 * shared)
    return (_line("drafter", own, share, because, possible),)


def _layers_with_projection(decoder: Decoder, target: Decoder, split: Split) -> Iterator[Matrix]:
    dimensions: Dimensions = decoder.dimensions
    for index in range(dimensions.layers):
        yield from decoder_layer(decoder, split, index)
    states = max(2, dimensions.layers)
    yield Matrix(role=Role.MLP, rows=dimensions.hidden, columns=states * target.dimensions.hidden)

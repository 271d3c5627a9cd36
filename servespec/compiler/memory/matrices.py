"""The tensors that one rank stores of a decoder."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from servespec.compiler.facts.decoder_layers import VOCABULARY_PADDING, LayerFacts, QkNorm
from servespec.compiler.memory.dimensions import Dimensions, ExpertDimensions, LatentDimensions
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.storage import ModelStorage
from servespec.units import Bytes


class Role(StrEnum):
    """What a matrix belongs to, the owner of its bytes."""

    VOCABULARY = "embedding and output head"
    ATTENTION = "attention"
    MLP = "MLP"
    EXPERTS = "routed experts"
    SMALL = "norms, routers and biases"


_LINEAR = (Role.ATTENTION, Role.MLP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """``copies`` equal matrices of one rank; ``is_plain`` ones are never quantized."""

    role: Role
    rows: int
    columns: int
    copies: int = 1
    is_plain: bool = False

    def size_bytes(self, storage: ModelStorage) -> Bytes:
        stored = storage.plain
        if not self.is_plain and self.role is Role.EXPERTS:
            stored = storage.expert
        elif not self.is_plain and self.role in _LINEAR:
            stored = storage.linear
        return Bytes(self.copies * stored.size_bytes(self.rows, self.columns))


def _small(elements: int) -> Matrix:
    return Matrix(role=Role.SMALL, rows=1, columns=elements)


def vocabulary(dimensions: Dimensions, split: Split) -> Matrix:
    """An embedding or an output head: rows padded, then shared by the ranks.

    Source: vllm/model_executor/layers/vocab_parallel_embedding.py: VocabParallelEmbedding.
    """
    padding = VOCABULARY_PADDING.value
    padded = ceil(dimensions.vocabulary / padding) * padding
    return Matrix(role=Role.VOCABULARY, rows=ceil(padded / split.tensor), columns=dimensions.hidden)


def rotary_table(dimensions: Dimensions) -> Matrix:
    """Cosines and sines of every position, one table for all layers."""
    return _small(dimensions.positions * dimensions.rotated_width)


def layer(dimensions: Dimensions, facts: LayerFacts, split: Split, index: int) -> Iterator[Matrix]:
    """One decoder layer on one rank."""
    yield _small(2 * dimensions.hidden)
    if dimensions.latent is None:
        yield from grouped_attention(dimensions, facts, split, dimensions.hidden)
    else:
        yield from _latent_attention(dimensions, dimensions.latent, split)
    if dimensions.experts is not None and dimensions.expert_layers[index]:
        yield from _experts(dimensions, dimensions.experts, split)
    else:
        yield from mlp(dimensions.hidden, dimensions.mlp, split, has_bias=dimensions.mlp_bias)


def grouped_attention(dimensions: Dimensions, facts: LayerFacts, split: Split, inputs: int) -> Iterator[Matrix]:
    """Projections of queries, keys and values from ``inputs`` elements, and the output projection.

    Source: vllm/model_executor/layers/linear.py: QKVParallelLinear.
    """
    heads, kv_heads = split.heads(dimensions.heads), split.kv_heads(dimensions.kv_heads)
    qkv = (heads + 2 * kv_heads) * dimensions.head
    yield Matrix(role=Role.ATTENTION, rows=qkv, columns=inputs)
    yield Matrix(role=Role.ATTENTION, rows=dimensions.hidden, columns=heads * dimensions.head)
    if dimensions.qkv_bias:
        yield _small(qkv)
    if dimensions.output_bias:
        yield _small(dimensions.hidden)
    if facts.has_sinks:
        yield _small(heads)
    if facts.qk_norm is QkNorm.HEAD and dimensions.has_qk_norm:
        yield _small(2 * dimensions.head)
    if facts.qk_norm is QkNorm.ALL_HEADS:
        yield _small((heads + kv_heads) * dimensions.head)


def _latent_attention(dimensions: Dimensions, latent: LatentDimensions, split: Split) -> Iterator[Matrix]:
    """Source: vllm/model_executor/models/deepseek_v2.py: DeepseekV2MLAAttention."""
    heads, hidden = split.heads(dimensions.heads), dimensions.hidden
    query = heads * (latent.plain_width + latent.rotated_width)
    yield Matrix(role=Role.ATTENTION, rows=latent.query_rank + latent.kv_rank + latent.rotated_width, columns=hidden)
    yield Matrix(role=Role.ATTENTION, rows=query, columns=latent.query_rank or hidden)
    yield Matrix(role=Role.ATTENTION, rows=heads * (latent.plain_width + latent.value_width), columns=latent.kv_rank)
    yield Matrix(role=Role.ATTENTION, rows=hidden, columns=heads * latent.value_width)
    yield _small(latent.query_rank + latent.kv_rank)
    if latent.index_heads:
        yield Matrix(role=Role.ATTENTION, rows=latent.index_heads * latent.index_width, columns=latent.query_rank)
        yield Matrix(role=Role.ATTENTION, rows=latent.index_heads + latent.index_width, columns=hidden, is_plain=True)


def unpacked_latent(dimensions: Dimensions, split: Split) -> Matrix | None:
    """What a quantized latent layer keeps of its up-projection in the model's own type, beside the packed one.

    Source: vllm/model_executor/layers/attention/mla_attention.py: split_kv_b_proj.
    """
    latent = dimensions.latent
    if latent is None:
        return None
    rows = split.heads(dimensions.heads) * (latent.plain_width + latent.value_width)
    return Matrix(role=Role.ATTENTION, rows=rows, columns=latent.kv_rank, is_plain=True)


def mlp(hidden: int, width: int, split: Split, *, has_bias: bool = False) -> Iterator[Matrix]:
    own = ceil(width / split.tensor)
    yield Matrix(role=Role.MLP, rows=own, columns=hidden, copies=2)
    yield Matrix(role=Role.MLP, rows=hidden, columns=own)
    if has_bias:
        yield _small(2 * own + hidden)


def _experts(dimensions: Dimensions, experts: ExpertDimensions, split: Split) -> Iterator[Matrix]:
    """Routed experts are sliced over the ranks, or spread over them; the router is on each."""
    hidden, own = dimensions.hidden, split.local_experts(experts.count)
    width = ceil(experts.width / split.expert_width)
    yield Matrix(role=Role.EXPERTS, rows=width, columns=hidden, copies=2 * own)
    yield Matrix(role=Role.EXPERTS, rows=hidden, columns=width, copies=own)
    yield _small(experts.count * hidden)
    if experts.has_bias:
        yield _small(own * (2 * width + hidden) + experts.count)
    if experts.shared_width:
        yield from mlp(hidden, experts.shared_width, split)
    if experts.has_shared_gate:
        yield _small(hidden)

"""The tensors that one rank stores of a decoder."""

from collections.abc import Iterator
from math import ceil

from servespec.compiler.facts.decoder_layers import VOCABULARY_PADDING, LayerFacts, QkNorm
from servespec.compiler.memory.compressed_matrices import compressed_attention
from servespec.compiler.memory.dimensions import Dimensions, ExpertDimensions, LatentDimensions
from servespec.compiler.memory.matrix import FP32_ELEMENTS, Matrix, Role, small
from servespec.compiler.memory.recurrent_matrices import recurrent_layer
from servespec.compiler.memory.split import Split

_EXPERTS = ("mlp.experts",)


def vocabulary(dimensions: Dimensions, split: Split) -> Matrix:
    """An embedding or an output head: rows padded, then shared by the ranks.

    Source: vllm/model_executor/layers/vocab_parallel_embedding.py: VocabParallelEmbedding.
    """
    padding = VOCABULARY_PADDING.value
    padded = ceil(dimensions.vocabulary / padding) * padding
    return Matrix(role=Role.VOCABULARY, rows=ceil(padded / split.tensor), columns=dimensions.hidden)


def rotary_table(dimensions: Dimensions) -> Matrix:
    """Cosines and sines of every position, one table for all layers."""
    return small(dimensions.positions * dimensions.rotated_width)


def layer(dimensions: Dimensions, facts: LayerFacts, split: Split, index: int) -> Iterator[Matrix]:
    """One decoder layer on one rank."""
    yield small(2 * dimensions.hidden)
    yield from _mixer(dimensions, facts, split, index)
    if dimensions.experts is not None and dimensions.expert_layers[index]:
        yield from _experts(dimensions, dimensions.experts, split)
        yield from _router_bias(dimensions, dimensions.experts, index)
    else:
        yield from mlp(dimensions.hidden, dimensions.mlp, split, has_bias=dimensions.mlp_bias)


def _mixer(dimensions: Dimensions, facts: LayerFacts, split: Split, index: int) -> Iterator[Matrix]:
    """Attention of the layer's kind, or its recurrent layer."""
    recurrent = dimensions.recurrent
    if recurrent is not None and recurrent.recurs[index]:
        yield from recurrent_layer(recurrent, dimensions.hidden, split)
    elif dimensions.compressed is not None:
        yield from compressed_attention(dimensions, dimensions.compressed, split, index)
    elif dimensions.latent is not None:
        yield from _latent_attention(dimensions, dimensions.latent, split, index)
    else:
        yield from grouped_attention(dimensions, facts, split, dimensions.hidden)
        yield from _index_branch(dimensions, split, index)


def _index_branch(dimensions: Dimensions, split: Split, index: int) -> Iterator[Matrix]:
    """MiniMax M3: queries of the index for each KV head, and its keys, one head on every rank.

    Source: vllm/models/minimax_m3/nvidia/model.py: MiniMaxM3SparseAttention.
    """
    branch = dimensions.index_branch
    if branch is None or not branch.has_index[index]:
        return
    rows = (split.kv_heads(dimensions.kv_heads) + 1) * branch.width
    modules = ("self_attn.index_q_proj", "self_attn.index_k_proj")
    yield Matrix(role=Role.ATTENTION, rows=rows, columns=dimensions.hidden, modules=modules)
    yield small(2 * branch.width)


def grouped_attention(dimensions: Dimensions, facts: LayerFacts, split: Split, inputs: int) -> Iterator[Matrix]:
    """Projections of queries, keys and values from ``inputs`` elements, and the output projection.

    Source: vllm/model_executor/layers/linear.py: QKVParallelLinear.
    """
    heads, kv_heads = split.heads(dimensions.heads), split.kv_heads(dimensions.kv_heads)
    gates = heads if dimensions.has_output_gate else 0
    qkv = (heads + gates + 2 * kv_heads) * dimensions.head
    inner = tuple(f"self_attn.{name}_proj" for name in "qkv")
    yield Matrix(role=Role.ATTENTION, rows=qkv, columns=inputs, modules=inner)
    outputs = heads * dimensions.head
    yield Matrix(role=Role.ATTENTION, rows=dimensions.hidden, columns=outputs, modules=("self_attn.o_proj",))
    if dimensions.qkv_bias:
        yield small(qkv)
    if dimensions.output_bias:
        yield small(dimensions.hidden)
    if facts.has_sinks:
        yield small(heads)
    if facts.qk_norm is QkNorm.HEAD and dimensions.has_qk_norm:
        yield small(2 * dimensions.head)
    if facts.qk_norm is QkNorm.ALL_HEADS:
        yield small((heads + kv_heads) * dimensions.head)


def _latent_attention(dimensions: Dimensions, latent: LatentDimensions, split: Split, index: int) -> Iterator[Matrix]:
    """Source: vllm/model_executor/models/deepseek_v2.py: DeepseekV2MLAAttention."""
    heads, hidden = split.heads(dimensions.heads), dimensions.hidden
    query = heads * (latent.plain_width + latent.rotated_width)
    down = latent.query_rank + latent.kv_rank + latent.rotated_width
    up = heads * (latent.plain_width + latent.value_width)
    kv, named = ("kv_a_proj_with_mqa",), "q_b_proj" if latent.query_rank else "q_proj"
    yield _attention(down, hidden, *(("q_a_proj", *kv) if latent.query_rank else kv))
    yield _attention(query, latent.query_rank or hidden, named)
    yield _attention(up, latent.kv_rank, "kv_b_proj")
    yield _attention(hidden, heads * latent.value_width, "o_proj")
    yield small(latent.query_rank + latent.kv_rank)
    if latent.index_heads and latent.has_index[index]:
        yield _attention(latent.index_heads * latent.index_width, latent.query_rank, "indexer.wq_b")
        yield Matrix(role=Role.ATTENTION, rows=latent.index_heads + latent.index_width, columns=hidden, is_plain=True)


def _attention(rows: int, columns: int, *names: str) -> Matrix:
    """A matrix of attention by the checkpoint's names of what is joined in it."""
    return Matrix(role=Role.ATTENTION, rows=rows, columns=columns, modules=tuple(f"self_attn.{name}" for name in names))


def unpacked_latent(dimensions: Dimensions, split: Split) -> Matrix | None:
    """What a quantized latent layer keeps of its up-projection in the model's own type, beside the packed one.

    Source: vllm/model_executor/layers/attention/mla_attention.py: split_kv_b_proj.
    """
    latent = dimensions.latent
    if latent is None:
        return None
    rows = split.heads(dimensions.heads) * (latent.plain_width + latent.value_width)
    return Matrix(role=Role.ATTENTION, rows=rows, columns=latent.kv_rank, is_plain=True)


def mlp(hidden: int, width: int, split: Split, *, has_bias: bool = False, name: str = "mlp") -> Iterator[Matrix]:
    own = ceil(width / split.tensor)
    wide = (f"{name}.gate_proj", f"{name}.up_proj")
    yield Matrix(role=Role.MLP, rows=own, columns=hidden, copies=2, modules=wide)
    yield Matrix(role=Role.MLP, rows=hidden, columns=own, modules=(f"{name}.down_proj",))
    if has_bias:
        yield small(2 * own + hidden)


def _router_bias(dimensions: Dimensions, experts: ExpertDimensions, index: int) -> Iterator[Matrix]:
    """None where a layer looks its experts up by token."""
    compressed = dimensions.compressed
    if experts.has_router_bias and (compressed is None or index >= compressed.hash_layers):
        yield small(FP32_ELEMENTS * experts.count)


def _experts(dimensions: Dimensions, experts: ExpertDimensions, split: Split) -> Iterator[Matrix]:
    """Routed experts are sliced over the ranks, or spread over them; the router is on each."""
    hidden, own = dimensions.hidden, split.local_experts(experts.count)
    width = ceil(experts.width / split.expert_width)
    yield Matrix(role=Role.EXPERTS, rows=width, columns=hidden, copies=2 * own, modules=_EXPERTS)
    yield Matrix(role=Role.EXPERTS, rows=hidden, columns=width, copies=own, modules=_EXPERTS)
    yield small((FP32_ELEMENTS if experts.has_wide_router else 1) * experts.count * hidden)
    if experts.has_bias:
        yield small(own * (2 * width + hidden) + experts.count)
    if experts.shared_width:
        is_whole = dimensions.compressed is not None and split.has_whole_shared_experts
        shared = Split() if is_whole else split
        yield from mlp(hidden, experts.shared_width, shared, name="mlp.shared_experts")
    if experts.has_shared_gate:
        yield small(hidden)

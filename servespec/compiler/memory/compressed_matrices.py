"""The tensors that one rank stores of DeepSeek V4's attention, which compresses its context."""

from collections.abc import Iterator

from servespec.compiler.facts.memory import COMPRESSED_INDEX_RATIO
from servespec.compiler.memory.dimensions import CompressedDimensions, Dimensions
from servespec.compiler.memory.matrix import FP32_ELEMENTS, Matrix, Role, small
from servespec.compiler.memory.split import Split


def compressed_attention(
    dimensions: Dimensions, compressed: CompressedDimensions, split: Split, index: int
) -> Iterator[Matrix]:
    """A layer past the target's own, as a drafter has them, compresses nothing.

    Source: vllm/models/deepseek_v4/attention.py: DeepseekV4Attention.
    """
    hidden, head = dimensions.hidden, dimensions.head
    queries = split.heads(dimensions.heads) * head
    outputs = compressed.output_groups * compressed.output_rank // split.tensor
    yield Matrix(role=Role.ATTENTION, rows=compressed.query_rank + head, columns=hidden)
    yield Matrix(role=Role.ATTENTION, rows=queries, columns=compressed.query_rank)
    yield Matrix(role=Role.ATTENTION, rows=outputs, columns=dimensions.heads * head // compressed.output_groups)
    yield Matrix(role=Role.ATTENTION, rows=hidden, columns=outputs)
    yield small(compressed.query_rank + head + FP32_ELEMENTS * split.heads(dimensions.heads))
    yield from _connections(dimensions, compressed)
    yield from _tokens_to_experts(dimensions, compressed, index)
    ratio = compressed.ratios[index] if index < len(compressed.ratios) else 0
    if ratio > 1:
        yield from _compressor(hidden, head, ratio)
    if ratio == COMPRESSED_INDEX_RATIO.value:
        rows = compressed.index_heads * compressed.index_width
        yield Matrix(role=Role.ATTENTION, rows=rows, columns=compressed.query_rank)
        yield Matrix(role=Role.ATTENTION, rows=compressed.index_heads, columns=hidden, is_plain=True)
        yield from _compressor(hidden, compressed.index_width, ratio)


def _compressor(hidden: int, width: int, ratio: int) -> Iterator[Matrix]:
    """Whole on each rank; neighbouring windows overlap at the ratio that has an index.

    Source: vllm/models/deepseek_v4/compressor.py: DeepseekCompressor.
    """
    columns = (2 if ratio == COMPRESSED_INDEX_RATIO.value else 1) * width
    yield Matrix(role=Role.ATTENTION, rows=2 * columns, columns=hidden, is_plain=True)
    yield small(FP32_ELEMENTS * ratio * columns + width)


def _connections(dimensions: Dimensions, compressed: CompressedDimensions) -> Iterator[Matrix]:
    """Mixing of the parallel hidden states before attention and before the experts, in fp32.

    Source: vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4DecoderLayer.
    """
    states = compressed.hidden_states
    mixed = (2 + states) * states
    yield small(2 * FP32_ELEMENTS * (mixed * states * dimensions.hidden + mixed + 3))


def joined_states(dimensions: Dimensions, compressed: CompressedDimensions) -> Matrix:
    """What makes one hidden state of the parallel ones after the last layer, in fp32.

    Source: vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4Model.
    """
    states = compressed.hidden_states
    return small(FP32_ELEMENTS * (states * states * dimensions.hidden + states + 1))


def _tokens_to_experts(dimensions: Dimensions, compressed: CompressedDimensions, index: int) -> Iterator[Matrix]:
    """The first layers look their experts up by token, four bytes an entry.

    Source: vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4MoE.
    """
    if index < compressed.hash_layers and dimensions.experts is not None:
        yield small(FP32_ELEMENTS * dimensions.vocabulary * dimensions.experts.per_token)

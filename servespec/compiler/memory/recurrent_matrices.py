"""The tensors that one rank stores of a recurrent layer."""

from collections.abc import Iterator

from servespec.compiler.facts.state_layers import StateFamily
from servespec.compiler.memory.dimensions import RecurrentDimensions
from servespec.compiler.memory.matrix import FP32_ELEMENTS, Matrix, Role, small
from servespec.compiler.memory.recurrent_sizes import conv_width
from servespec.compiler.memory.split import Split


def recurrent_layer(recurrent: RecurrentDimensions, hidden: int, split: Split) -> Iterator[Matrix]:
    """A gated delta net, or Kimi delta attention."""
    if recurrent.family is StateFamily.KDA:
        yield from _delta_attention(recurrent, hidden, split)
    else:
        yield from _delta_net(recurrent, hidden, split)


def _delta_net(recurrent: RecurrentDimensions, hidden: int, split: Split) -> Iterator[Matrix]:
    """Source: vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py: QwenGatedDeltaNetAttention."""
    sizes, ranks = recurrent.sizes, split.tensor
    values, channels = sizes.heads * sizes.width // ranks, conv_width(sizes, recurrent.family, ranks) // ranks
    heads = split.heads(sizes.heads)
    inner, outer = ("linear_attn.in_proj_qkvz",), ("linear_attn.out_proj",)
    yield Matrix(role=Role.ATTENTION, rows=channels + values, columns=hidden, modules=inner)
    yield Matrix(role=Role.ATTENTION, rows=2 * heads, columns=hidden, is_plain=True)
    yield Matrix(role=Role.ATTENTION, rows=hidden, columns=values, modules=outer)
    yield small(channels * sizes.kernel + heads * (1 + FP32_ELEMENTS) + sizes.width)


def _delta_attention(recurrent: RecurrentDimensions, hidden: int, split: Split) -> Iterator[Matrix]:
    """The decay and the output gate have a projection down, whole on each rank, and one up.

    Source: vllm/models/kimi_k3/nvidia/kda.py: KimiK3DeltaAttention.
    """
    sizes, heads = recurrent.sizes, split.heads(recurrent.sizes.heads)
    own = heads * sizes.width
    yield Matrix(role=Role.ATTENTION, rows=3 * own, columns=hidden)
    yield Matrix(role=Role.ATTENTION, rows=2 * sizes.width + heads, columns=hidden)
    yield Matrix(role=Role.ATTENTION, rows=own, columns=sizes.width, copies=2)
    yield Matrix(role=Role.ATTENTION, rows=hidden, columns=own)
    yield small(FP32_ELEMENTS * (3 * own * sizes.kernel + own + heads) + sizes.width)

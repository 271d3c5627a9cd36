"""What the forward passes of all models have in common: what they leave, which attention they run, layers in a row."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from servespec.compiler.memory.caching_allocator import Allocator, Block
from servespec.compiler.memory.indexer_logits import IndexerRow

ACTIVATIONS = "activations"
ACCUMULATORS = "FlashAttention accumulators"
AUXILIARY = "auxiliary hidden states"
SCORES = "indexer logits"
CONVERTED_SCORES = "indexer logits in FP32"


class Attention(StrEnum):
    """What of attention is played with a pass: it is an eager break of PIECEWISE graphs, which hold none of it.

    An eager run of a short context scores no position of it, because all of them are chosen.
    """

    LEFT_OUT = "left out"
    OF_SHORT_CONTEXT = "of a short context"
    OF_ANY_CONTEXT = "of any context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a pass leaves: hidden states for the sampler, the drafter or the next stage, and auxiliary ones."""

    hidden: tuple[Block, ...]
    auxiliary: tuple[Block, ...]

    @property
    def all(self) -> tuple[Block, ...]:
        return (*self.hidden, *self.auxiliary)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextScores:
    """What a sparse indexer makes in some layers of a pass, for each row or at most for so many at once."""

    layers: frozenset[int]
    row: IndexerRow
    most_rows: int | None = None

    def rows(self, tokens: int) -> int:
        return tokens if self.most_rows is None else min(tokens, self.most_rows)

    def run(self, memory: Allocator, tokens: int) -> None:
        """Source: vllm/model_executor/layers/sparse_attn_indexer.py: sparse_attn_indexer."""
        rows = self.rows(tokens)
        scored = memory.take(rows * self.row.scored_bytes, SCORES)
        if self.row.converted_bytes:
            converted = memory.take(rows * self.row.converted_bytes, CONVERTED_SCORES)
            memory.give(scored)
            scored = converted
        memory.give(scored)


def run_layers(
    kinds: Sequence[Hashable], ends: Sequence[int], run_layer: Callable[[int], None], layout: Callable[[], Any]
) -> None:
    """Runs layer after layer; of ``ends``, the last is their number.

    Where one leaves the memory as an earlier one did, and the next ones are of the kinds of those between them, all
    that those did to it happens again, and is left out.  What happens at an end does not happen again.
    """
    layer, seen = 0, dict[Any, int]()
    while layer < len(kinds):
        run_layer(layer)
        layer += 1
        period = layer - seen.setdefault(layout(), layer)
        following = min(end for end in ends if end >= layer)
        while period and layer + period <= following and kinds[layer : layer + period] == kinds[layer - period : layer]:
            layer += period

"""The tensors of one forward pass of a model on one rank, in the order in which they come and go.

Sources: the layers of vllm/model_executor/models/qwen2.py and qwen3_moe.py, which other decoders share;
vllm/models/deepseek_v4/attention.py: DeepseekV4Attention.forward.
"""

from dataclasses import dataclass
from typing import Any

from servespec.compiler.memory.caching_allocator import Allocator, Block

ACTIVATIONS = "activations"
ACCUMULATORS = "FlashAttention accumulators"
AUXILIARY = "auxiliary hidden states"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """Bytes of a token in each tensor, 0 where the model has none or its config does not tell.

    ``stream`` is the residual, ``wide`` and ``gated`` the two of a dense MLP, ``accumulators`` the temporary tensors of
    one attention call.  ``queries_in_attention`` says that the operator makes its queries itself, which is in the eager
    break of a PIECEWISE graph.
    """

    layers: int
    aux_layers: frozenset[int]
    hidden: int
    stream: int
    projected: int
    query: int
    key: int
    output: int
    wide: int
    gated: int
    router: int
    accumulators: tuple[int, ...] = ()
    queries_in_attention: bool = False

    def run(self, memory: Allocator, tokens: int, *, runs_attention: bool) -> tuple[Block, ...]:
        """Takes and gives back everything but the outputs, which are returned.

        Without attention, what its operator takes for itself is left out.  Layers are alike: where one leaves the
        memory as an earlier one did, all that those between them do to it happens again, and is left out.
        """
        aux: list[Block] = []
        layer, seen = 0, dict[Any, int]()
        residual = memory.take(self.stream * tokens, ACTIVATIONS)
        hidden = memory.take(self.hidden * tokens, ACTIVATIONS)
        while layer < self.layers:
            if layer in self.aux_layers:
                aux.append(memory.take(self.hidden * tokens, AUXILIARY))
            attended = self._attention(memory, tokens, hidden, runs_attention)
            residual = self._next_residual(memory, tokens, residual)
            hidden = self._mlp(memory, tokens, attended)
            residual = self._next_residual(memory, tokens, residual)
            layer += 1
            period = layer - seen.setdefault(memory.layout(hidden, residual), layer)
            layer += self._repeated(layer, period)
        return (hidden, residual, *aux)

    def _repeated(self, layer: int, period: int) -> int:
        """Layers in whole periods before the next one with an output of its own."""
        following = min(one for one in (*self.aux_layers, self.layers) if one >= layer)
        return (following - layer) // period * period if period else 0

    def _next_residual(self, memory: Allocator, tokens: int, residual: Block) -> Block:
        following = memory.take(self.stream * tokens, ACTIVATIONS)
        memory.give(residual)
        return following

    def _attention(self, memory: Allocator, tokens: int, hidden: Block, runs_attention: bool) -> Block:
        projected = memory.take(self.projected * tokens, ACTIVATIONS)
        memory.give(hidden)
        is_left_out = self.queries_in_attention and not runs_attention
        widths = (0, 0, self.output) if is_left_out else (self.query, self.key, self.output)
        query, key, output = (memory.take(width * tokens, ACTIVATIONS) for width in widths)
        if runs_attention:
            memory.give(*[memory.take(width * tokens, ACCUMULATORS) for width in self.accumulators])
        memory.give(projected, query, key)
        attended = memory.take(self.hidden * tokens, ACTIVATIONS)
        memory.give(output)
        return attended

    def _mlp(self, memory: Allocator, tokens: int, normed: Block) -> Block:
        """Routed experts work in the engine's own workspace, which is there before any graph."""
        taken = normed
        for width in (self.wide, self.gated) if self.wide else (self.router,):
            following = memory.take(width * tokens, ACTIVATIONS)
            if self.wide:
                memory.give(taken)
                taken = following
            else:
                memory.give(following)
        result = memory.take(self.hidden * tokens, ACTIVATIONS)
        memory.give(taken)
        return result

"""What eager and compiled passes of a decoder have in common: the parts of a step that no order changes."""

from typing import TYPE_CHECKING

from servespec.compiler.memory.caching_allocator import Allocator, Block
from servespec.compiler.memory.model_pass import ACCUMULATORS, ACTIVATIONS, AUXILIARY, Attention

if TYPE_CHECKING:
    from servespec.compiler.memory.forward_pass import ForwardPass


class DecoderStep:
    """A pass on its way; ``auxiliary`` are the outputs that it has made so far."""

    def __init__(self, forward: "ForwardPass", memory: Allocator, tokens: int, attention: Attention) -> None:
        self.forward, self.memory, self.tokens, self.attention = forward, memory, tokens, attention
        self.auxiliary: list[Block] = []

    def take(self, width: int, owner: str = ACTIVATIONS) -> Block:
        """A tensor of ``width`` bytes a token."""
        return self.memory.take(width * self.tokens, owner)

    def keep_input_of(self, layer: int) -> None:
        """Where it is an output too."""
        for _ in range(self.forward.aux_layers.count(layer)):
            self.auxiliary.append(self.take(self.forward.hidden, AUXILIARY))

    def run_operator(self, layer: int) -> None:
        """What attention takes for itself."""
        forward, memory = self.forward, self.memory
        if self.attention is Attention.LEFT_OUT:
            return
        if self.attention is Attention.OF_ANY_CONTEXT and forward.scores and layer in forward.scores.layers:
            forward.scores.run(memory, self.tokens)
        memory.give(*[self.take(width, ACCUMULATORS) for width in forward.accumulators])
        memory.give(*[self.take(width) for width in forward.latents])

    def summed(self, partial: Block) -> Block:
        """Over ranks, in another place; ``partial`` is given back.

        Source: vllm/distributed/device_communicators/cuda_communicator.py: CudaCommunicator.all_reduce.
        """
        if not self.forward.sums_over_ranks:
            return partial
        whole = self.take(self.forward.hidden)
        self.memory.give(partial)
        return whole

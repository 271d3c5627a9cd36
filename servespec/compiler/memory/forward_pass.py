"""The tensors of one forward pass of a decoder on one rank, in the order in which they come and go.

Sources: the layers of vllm/model_executor/models/qwen2.py and qwen3_moe.py, which other decoders share.
"""

from dataclasses import dataclass

from servespec.compiler.memory.caching_allocator import Allocator, Block
from servespec.compiler.memory.compiled_pieces import CompiledPieces
from servespec.compiler.memory.decoder_step import DecoderStep
from servespec.compiler.memory.expert_workspace import ExpertWorkspace
from servespec.compiler.memory.model_pass import Attention, ContextScores, Outputs, run_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """Bytes of a token in each tensor, 0 where the model has none or its config does not tell.

    ``stream`` is the residual, ``wide`` and ``gated`` the two of a dense MLP, ``accumulators`` the temporary tensors of
    one attention call, ``latents`` those of the operator of plain MLA.

    ``aux_layers`` are layers whose input is an output, their number for what the last one leaves.

    ``inputs`` are those of a pass that stay to its end.  ``sums_over_ranks`` says that what a matrix of several ranks
    makes is summed in a tensor of its own.  ``is_compiled`` says that all between two attention calls is one compiled
    piece; then ``scale_group`` is how many elements of what a matrix reads share a scale, 0 where it reads bf16, and
    ``first_operand`` what the first matrix reads, 0 where that is the hidden state.

    ``is_given_residual`` says that the first residual is what the model is called with, in a buffer of the engine's;
    ``hands_on_residual`` that the last one goes to the next stage, without a norm.
    """

    layers: int
    aux_layers: tuple[int, ...]
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
    latents: tuple[int, ...] = ()
    scores: ContextScores | None = None
    experts: ExpertWorkspace | None = None
    inputs: int = 0
    sums_over_ranks: bool = False
    is_compiled: bool = False
    scale_group: int = 0
    is_given_residual: bool = False
    hands_on_residual: bool = False
    first_operand: int = 0

    @property
    def has_parallel_states(self) -> bool:
        return self.stream > self.hidden

    @property
    def handed_on(self) -> int:
        """With the residual, or all parallel states.

        Source: vllm/model_executor/models/utils.py: make_empty_intermediate_tensors_factory.
        """
        return self.stream // self.hidden if self.has_parallel_states else 2

    def run(self, memory: Allocator, tokens: int, attention: Attention) -> Outputs:
        step = (CompiledPieces if self.is_compiled else _EagerStep)(self, memory, tokens, attention)
        scored = self.scores.layers if self.scores else frozenset()
        run_layers(
            kinds=tuple(layer in scored for layer in range(self.layers)),
            ends=(*self.aux_layers, self.layers),
            run_layer=step.run_layer,
            layout=lambda: memory.layout(*step.between_layers),
        )
        return step.finish()


class _EagerStep(DecoderStep):
    """A pass on its way.

    A layer adds twice to the residual: what attention's last matrix made, and what the MLP's did.  ``made`` is what
    waits to be added, None before the first layer.  What attention and the MLP are called with stays until they return,
    because the layer that calls them refers to it.
    """

    def __init__(self, forward: ForwardPass, memory: Allocator, tokens: int, attention: Attention) -> None:
        super().__init__(forward, memory, tokens, attention)
        self.inputs = (self.take(forward.inputs),) if forward.inputs else ()
        self.residual = self.take(0 if forward.is_given_residual else forward.stream)
        self.made: Block | None = None

    @property
    def between_layers(self) -> tuple[Block, ...]:
        """All that is given back later."""
        made = () if self.made is None else (self.made,)
        return (*made, self.residual, *self.inputs)

    def run_layer(self, layer: int) -> None:
        self.keep_input_of(layer)
        normed = self._input()
        projected = self._project(self._attend(layer))
        self.memory.give(normed)
        self._mlp(projected)
        if self.forward.has_parallel_states:
            self.memory.give(self._add_to_residual())

    def finish(self) -> Outputs:
        """The last norm; outputs are what is left.

        Source: vllm/model_executor/models/qwen2.py: Qwen2Model.forward.
        """
        self.keep_input_of(self.forward.layers)
        if self.forward.hands_on_residual:
            made = self.made or self.take(0)
            self.memory.give(*self.inputs)
            return Outputs(hidden=(made, self.residual), auxiliary=tuple(self.auxiliary))
        hidden = self.take(self.forward.hidden)
        self.memory.give(*self.between_layers)
        return Outputs(hidden=(hidden,), auxiliary=tuple(self.auxiliary))

    def _input(self) -> Block:
        """The first layer's is the norm of the residual itself; later ones add to it, parallel states before that."""
        if self.made is None:
            normed = self.take(self.forward.hidden)
            if not self.forward.first_operand:
                return normed
            beside = self.take(self.forward.first_operand)
            self.memory.give(normed)
            return beside
        if not self.forward.has_parallel_states:
            self.memory.give(self._add_to_residual())
        return self.made

    def _attend(self, layer: int) -> Block:
        forward, memory = self.forward, self.memory
        projected = self.take(forward.projected)
        operands = [self.take(width) for width in (forward.query, forward.key)]
        output = self.take(forward.output)
        self.run_operator(layer)
        memory.give(projected, *operands)
        return output

    def _project(self, output: Block) -> Block:
        """What the MLP reads."""
        self.made = self.summed(self.take(self.forward.hidden))
        self.memory.give(output)
        self.memory.give(self._add_to_residual())
        return self.made

    def _mlp(self, normed: Block) -> None:
        """Routed experts work in the engine's own workspace, which is there before any graph, or in their kernels'."""
        forward, memory = self.forward, self.memory
        if forward.wide:
            wide = self.take(forward.wide)
            gated = self.take(forward.gated)
            memory.give(wide)
            made = self.take(forward.hidden)
            memory.give(gated)
        else:
            memory.give(self.take(forward.router))
            made = self.take(forward.hidden)
        if forward.experts:
            forward.experts.run(memory, self.tokens)
        self.made = self.summed(made)
        memory.give(normed)

    def _add_to_residual(self) -> Block:
        """The residual of before, which is still taken."""
        before, self.residual = self.residual, self.take(self.forward.stream)
        return before

"""The tensors of one forward pass of a decoder on one rank, in the order in which they come and go.

Sources: the layers of vllm/model_executor/models/qwen2.py and qwen3_moe.py, which other decoders share.
"""

from dataclasses import dataclass

from servespec.compiler.memory.caching_allocator import Allocator, Block
from servespec.compiler.memory.expert_workspace import ExpertWorkspace
from servespec.compiler.memory.model_pass import (
    ACCUMULATORS,
    ACTIVATIONS,
    AUXILIARY,
    Attention,
    ContextScores,
    Outputs,
    run_layers,
)

_BF16_BYTES = 2
_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """Bytes of a token in each tensor, 0 where the model has none or its config does not tell.

    ``stream`` is the residual, ``wide`` and ``gated`` the two of a dense MLP, ``accumulators`` the temporary tensors of
    one attention call, ``latents`` those of the operator of plain MLA.

    ``aux_layers`` are layers whose input is an output, their number for what the last one leaves.

    ``inputs`` are those of a pass that stay to its end.  ``sums_over_ranks`` says that what a matrix of several ranks
    makes is summed in a tensor of its own; what becomes of it where that is compiled was not read.  ``is_compiled``
    says that all between two attention calls is one compiled piece.  ``scale_group`` is how many elements of what a
    matrix reads share a scale, 0 where it reads bf16.  ``is_given_residual`` says that the first residual is what the
    model is called with, in a buffer of the engine's; ``hands_on_residual`` that the last one goes to the next stage,
    without a norm.
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
        step = _Step(self, memory, tokens, attention)
        scored = self.scores.layers if self.scores else frozenset()
        run_layers(
            kinds=tuple(layer in scored for layer in range(self.layers)),
            ends=(*self.aux_layers, self.layers),
            run_layer=step.run_layer,
            layout=lambda: memory.layout(*step.between_layers),
        )
        return step.finish()


class _Step:
    """A pass on its way.

    A layer adds twice to the residual: what attention's last matrix made, and what the MLP's did.  ``made`` is what
    waits to be added, None before the first layer; ``given`` is what the compiled piece that runs was called with,
    which stays until it returns.
    """

    def __init__(self, forward: ForwardPass, memory: Allocator, tokens: int, attention: Attention) -> None:
        self.forward, self.memory, self.tokens, self.attention = forward, memory, tokens, attention
        self.inputs = (self._take(forward.inputs),) if forward.inputs else ()
        self.residual = self._take(0 if forward.is_given_residual else forward.stream)
        self.made: Block | None = None
        self.given: tuple[Block, ...] = ()
        self.auxiliary: list[Block] = []

    @property
    def between_layers(self) -> tuple[Block, ...]:
        """All that is given back later."""
        made = () if self.made is None else (self.made,)
        return (*made, self.residual, *self.given, *self.inputs)

    def run_layer(self, layer: int) -> None:
        self._keep_input_of(layer)
        output = self._attend(layer, self._input())
        self._mlp(self._project(output))
        if self.forward.has_parallel_states:
            self.memory.give(self._add_to_residual())

    def finish(self) -> Outputs:
        """The last norm; outputs are what is left.

        Source: vllm/model_executor/models/qwen2.py: Qwen2Model.forward.
        """
        self._keep_input_of(self.forward.layers)
        if self.forward.hands_on_residual:
            made = self.made or self._take(0)
            self.memory.give(*self.given, *self.inputs)
            return Outputs(hidden=(made, self.residual), auxiliary=tuple(self.auxiliary))
        hidden = self._take(self.forward.hidden)
        self.memory.give(*self.between_layers)
        return Outputs(hidden=(hidden,), auxiliary=tuple(self.auxiliary))

    def _keep_input_of(self, layer: int) -> None:
        for _ in range(self.forward.aux_layers.count(layer)):
            self.auxiliary.append(self._take(self.forward.hidden, AUXILIARY))

    def _take(self, width: int, owner: str = ACTIVATIONS) -> Block:
        return self.memory.take(width * self.tokens, owner)

    def _input(self) -> tuple[Block, ...]:
        """The first layer's is the norm of the residual itself; later ones add to it, parallel states before that."""
        if self.made is None:
            return self._operand(self.forward.hidden)
        if not self.forward.has_parallel_states:
            self.memory.give(self._add_to_residual())
        return self._norm(self.made)

    def _attend(self, layer: int, normed: tuple[Block, ...]) -> Block:
        """Where it begins, the piece before it returns, and lets go of what it was given.

        A piece's buffer for the output depends on nothing and is the first that it makes of these.
        Source: vllm/compilation/cuda_graph.py: CUDAGraphWrapper.__call__.
        """
        forward, memory = self.forward, self.memory
        projected = self._take(forward.projected)
        memory.give(*normed)
        early = self._take(forward.output) if forward.is_compiled else None
        operands = [self._take(width) for width in (forward.query, forward.key)]
        output = early or self._take(forward.output)
        memory.give(*self.given)
        self._run_operator(layer)
        memory.give(projected, *operands)
        return output

    def _run_operator(self, layer: int) -> None:
        """What attention takes for itself."""
        forward, memory = self.forward, self.memory
        if self.attention is Attention.LEFT_OUT:
            return
        if self.attention is Attention.OF_ANY_CONTEXT and forward.scores and layer in forward.scores.layers:
            forward.scores.run(memory, self.tokens)
        memory.give(*[self._take(width, ACCUMULATORS) for width in forward.accumulators])
        memory.give(*[self._take(width) for width in forward.latents])

    def _project(self, output: Block) -> tuple[Block, ...]:
        """What the MLP reads.  The output and the residual of before are what the next piece is given.

        Experts are given bf16.
        """
        operand = self._operand(self.forward.output) if self.forward.scale_group else ()
        self.made = self._take(self.forward.hidden)
        self.memory.give(*operand)
        self._sum_over_ranks()
        if self.forward.is_compiled:
            self.given = (output, self._add_to_residual())
        else:
            self.memory.give(output)
            self.memory.give(self._add_to_residual())
        return self._norm(self.made) if self.forward.wide else (self.made,)

    def _mlp(self, normed: tuple[Block, ...]) -> None:
        """Routed experts work in the engine's own workspace, which is there before any graph, or in their kernels'.

        What they make in FP8 of their input is not in it.
        Source: vllm/model_executor/layers/fused_moe/prepare_finalize/no_dp_ep.py: _quantize_input.
        """
        forward, memory = self.forward, self.memory
        if forward.wide:
            wide = self._take(forward.wide)
            memory.give(*normed)
            normed = self._operand(forward.gated)
            memory.give(wide)
        else:
            memory.give(self._take(forward.router))
            normed = (*normed, *(self._operand(forward.hidden) if forward.scale_group else ()))
        self.made = self._take(forward.hidden)
        if forward.experts:
            forward.experts.run(memory, self.tokens)
        memory.give(*normed)
        self._sum_over_ranks()

    def _sum_over_ranks(self) -> None:
        """In another place.

        Source: vllm/distributed/device_communicators/cuda_communicator.py: CudaCommunicator.all_reduce.
        """
        assert self.made is not None
        if self.forward.sums_over_ranks:
            partial, self.made = self.made, self._take(self.forward.hidden)
            self.memory.give(partial)

    def _operand(self, width: int) -> tuple[Block, ...]:
        """What a matrix reads, in bf16, or in FP8 with its scales, which norms and activations write themselves.

        Sources: vllm/model_executor/layers/quantization/input_quant_fp8.py: QuantFP8;
        vllm/compilation/passes/fusion/act_quant_fusion.py: SiluMulBlockQuantPattern;
        vllm/compilation/passes/fusion/rms_quant_fusion.py: FusedAddRMSNormGroupQuantPattern.
        """
        if not self.forward.scale_group:
            return (self._take(width),)
        elements = width // _BF16_BYTES
        return (self._take(elements), self._take(_SCALE_BYTES * elements // self.forward.scale_group))

    def _norm(self, made: Block) -> tuple[Block, ...]:
        """In place, but for FP8."""
        if not self.forward.scale_group:
            return (made,)
        operand = self._operand(self.forward.hidden)
        self.memory.give(made)
        return operand

    def _add_to_residual(self) -> Block:
        """The residual of before, which is still taken."""
        before, self.residual = self.residual, self._take(self.forward.stream)
        return before

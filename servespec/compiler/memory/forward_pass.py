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
_BF16_BYTES = 2
_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """Bytes of a token in each tensor, 0 where the model has none or its config does not tell.

    ``stream`` is the residual, ``wide`` and ``gated`` the two of a dense MLP, ``accumulators`` the temporary tensors of
    one attention call, ``latents`` those of the operator of plain MLA.  ``queries_in_attention`` says that the operator
    makes its queries itself, which is in the eager break of a PIECEWISE graph.

    ``is_compiled`` says that all between two attention calls is one compiled piece.  ``scale_group`` is how many
    elements of what a matrix reads share a scale, 0 where it reads bf16.  ``reads_hidden_states`` says that the first
    residual is what the model is called with, in a buffer of the engine's.
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
    latents: tuple[int, ...] = ()
    queries_in_attention: bool = False
    is_compiled: bool = False
    scale_group: int = 0
    reads_hidden_states: bool = False

    @property
    def has_parallel_states(self) -> bool:
        return self.stream > self.hidden

    def run(self, memory: Allocator, tokens: int, *, runs_attention: bool) -> tuple[Block, ...]:
        """Takes and gives back everything but the outputs, which are returned.

        Without attention, what its operator takes for itself is left out.  Layers are alike: where one leaves the
        memory as an earlier one did, all that those between them do to it happens again, and is left out.
        """
        step = _Step(self, memory, tokens, runs_attention)
        layer, seen = 0, dict[Any, int]()
        while layer < self.layers:
            if layer in self.aux_layers:
                step.keep_hidden_states()
            step.run_layer()
            layer += 1
            period = layer - seen.setdefault(memory.layout(*step.between_layers), layer)
            layer += self._repeated(layer, period)
        return step.finish()

    def _repeated(self, layer: int, period: int) -> int:
        """Layers in whole periods before the next one with an output of its own."""
        following = min(one for one in (*self.aux_layers, self.layers) if one >= layer)
        return (following - layer) // period * period if period else 0


class _Step:
    """A pass on its way: the residual, what the last matrix made, what a piece still holds, and outputs so far."""

    def __init__(self, forward: ForwardPass, memory: Allocator, tokens: int, runs_attention: bool) -> None:
        self.forward, self.memory, self.tokens, self.runs_attention = forward, memory, tokens, runs_attention
        self.residual = self._take(0 if forward.reads_hidden_states else forward.stream)
        self.made = self.residual
        self.held: tuple[Block, ...] = ()
        self.aux: list[Block] = []

    @property
    def between_layers(self) -> tuple[Block, ...]:
        """All that is given back later."""
        made = () if self.made is self.residual else (self.made,)
        return (*made, self.residual, *self.held)

    def keep_hidden_states(self) -> None:
        self.aux.append(self._take(self.forward.hidden, AUXILIARY))

    def run_layer(self) -> None:
        self._mlp(self._after_attention(self._attention(self._input())))
        if self.forward.has_parallel_states:
            self.memory.give(self._next_residual())

    def finish(self) -> tuple[Block, ...]:
        """The last norm; outputs are what is left."""
        hidden = self._take(self.forward.hidden)
        self.memory.give(*self.between_layers)
        return (hidden, *self.aux)

    def _take(self, width: int, owner: str = ACTIVATIONS) -> Block:
        return self.memory.take(width * self.tokens, owner)

    def _input(self) -> tuple[Block, ...]:
        """The first layer's is the norm of the residual itself; later ones add to it, parallel states before that."""
        if self.made is self.residual:
            return self._operand(self.forward.hidden)
        if not self.forward.has_parallel_states:
            self.memory.give(self._next_residual())
        return self._normed()

    def _attention(self, normed: tuple[Block, ...]) -> Block:
        """Where it begins, the piece before it returns, and lets go of what it was given.

        A piece's buffer for the output depends on nothing and is the first that it makes of these.
        Source: vllm/compilation/cuda_graph.py: CUDAGraphWrapper.__call__.
        """
        forward, memory = self.forward, self.memory
        projected = self._take(forward.projected)
        memory.give(*normed)
        early = (self._take(forward.output),) if forward.is_compiled else ()
        is_left_out = forward.queries_in_attention and not self.runs_attention
        operands = [self._take(0 if is_left_out else width) for width in (forward.query, forward.key)]
        (output,) = early or (self._take(forward.output),)
        memory.give(*self.held)
        if self.runs_attention:
            memory.give(*[self._take(width, ACCUMULATORS) for width in forward.accumulators])
            memory.give(*[self._take(width) for width in forward.latents])
        memory.give(projected, *operands)
        return output

    def _after_attention(self, output: Block) -> tuple[Block, ...]:
        """The output and the residual of before are what the next piece is given.

        Experts are given bf16.
        """
        operand = self._operand(self.forward.output) if self.forward.scale_group else ()
        self.made = self._take(self.forward.hidden)
        self.memory.give(*operand)
        if self.forward.is_compiled:
            self.held = (output, self._next_residual())
        else:
            self.memory.give(output)
            self.memory.give(self._next_residual())
        return self._normed() if self.forward.wide else (self.made,)

    def _mlp(self, normed: tuple[Block, ...]) -> None:
        """Routed experts work in the engine's own workspace, which is there before any graph.

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
        memory.give(*normed)

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

    def _normed(self) -> tuple[Block, ...]:
        """In place, but for FP8."""
        if not self.forward.scale_group:
            return (self.made,)
        operand = self._operand(self.forward.hidden)
        self.memory.give(self.made)
        return operand

    def _next_residual(self) -> Block:
        """The one of before, which is still taken."""
        before, self.residual = self.residual, self._take(self.forward.stream)
        return before

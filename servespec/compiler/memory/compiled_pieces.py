"""The tensors of one forward pass whose pieces between attention calls are compiled, in the order of Inductor's code.

A piece goes from one attention call to the next: it is given what the call wrote and the residual, and makes queries,
keys, the buffer for the next output and the next residual.  Norms and sums are fused into the kernels around them, so
that a residual is summed anew wherever it is read, and written once, beside the norm before the next attention.
What a piece is given stays until it returns.  A buffer whose last reader is done serves a later one of its size.
`tests/differential/test_compiled_pieces.py` has Inductor write such pieces for an H200 and compares.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from servespec.compiler.memory.caching_allocator import Allocator, Block
from servespec.compiler.memory.decoder_step import DecoderStep
from servespec.compiler.memory.model_pass import Attention, Outputs

if TYPE_CHECKING:
    from servespec.compiler.memory.forward_pass import ForwardPass

_BF16_BYTES = 2
_SCALE_BYTES = 4


class _Buffer(NamedTuple):
    """``width`` is in bytes of a token, None of one in whose place no other may lie."""

    width: int | None
    blocks: tuple[Block, ...]


class CompiledPieces(DecoderStep):
    """A pass on its way.

    ``given`` is what the piece that runs was called with; ``attended`` and ``made``, what attention's last matrix and
    the MLP's made, wait to be added to the residual, and are None before the first layer.
    """

    def __init__(self, forward: "ForwardPass", memory: Allocator, tokens: int, attention: Attention) -> None:
        super().__init__(forward, memory, tokens, attention)
        self.residual = self.take(0 if forward.is_given_residual else forward.stream)
        self.given: tuple[Block, ...] = ()
        self.attended: Block | None = None
        self.made: Block | None = None

    @property
    def between_layers(self) -> tuple[Block, ...]:
        """All that is given back later."""
        waiting = (one for one in (self.attended, self.made) if one is not None)
        return tuple(dict.fromkeys((*waiting, self.residual, *self.given)))

    def run_layer(self, layer: int) -> None:
        self._attend(layer, self._normed(layer))
        self._mlp()

    def finish(self) -> Outputs:
        """The last norm, or what goes to the next stage; the rest is let go of when the last piece returns."""
        self.keep_input_of(self.forward.layers)
        if self.forward.hands_on_residual:
            kept = (self.made or self.take(0), self.residual)
            self.memory.give(*(block for block in self.between_layers if block not in kept))
            return Outputs(hidden=kept, auxiliary=tuple(self.auxiliary))
        hidden = self.take(self.forward.hidden)
        self.memory.give(*self.between_layers)
        return Outputs(hidden=(hidden,), auxiliary=tuple(self.auxiliary))

    def _operand(self, width: int) -> _Buffer:
        """What a matrix reads: in bf16, or in FP8 with its scales, which norms and activations write themselves.

        Sources: vllm/model_executor/layers/quantization/input_quant_fp8.py: QuantFP8;
        vllm/compilation/passes/fusion/act_quant_fusion.py: SiluMulBlockQuantPattern;
        vllm/compilation/passes/fusion/rms_quant_fusion.py: FusedAddRMSNormGroupQuantPattern.
        """
        group = self.forward.scale_group
        if not group:
            return _Buffer(width, (self.take(width),))
        elements = width // _BF16_BYTES
        return _Buffer(None, (self.take(elements), self.take(_SCALE_BYTES * elements // group)))

    def _normed(self, layer: int) -> list[_Buffer]:
        """What the piece is done with once queries and keys are made: what was added, and what the matrix reads.

        One kernel makes the residual, what the matrix reads and what the drafter reads, in the order in which the
        engine's graph has them once its norms are lowered; a norm that quantizes is a kernel of the engine's, before
        which the last is made.
        """
        forward = self.forward
        if self.attended is None or self.made is None:
            self.keep_input_of(layer)
            return [self._operand(forward.first_operand or forward.hidden)]
        if forward.scale_group:
            self.keep_input_of(layer)
            read = self._operand(forward.hidden)
            self.residual = self.take(forward.stream)
        else:
            self.residual = self.take(forward.stream)
            read = self._operand(forward.hidden)
            self.keep_input_of(layer)
        self.memory.give(self.attended)
        added, self.attended, self.made = _Buffer(forward.hidden, (self.made,)), None, None
        return [added, read]

    def _attend(self, layer: int, done: Sequence[_Buffer]) -> None:
        """Queries, keys and the output; then the piece returns, and attention runs.

        Each of them lies where a buffer of its size was before, the last that the piece was done with first; and the
        others are given back, what the matrix reads once it has read it.
        Source: torch/_inductor/codegen/wrapper.py: AllocateLine.plan, in the wheel of torch.
        """
        forward, memory = self.forward, self.memory
        widths = (forward.query, forward.key, forward.output)
        places, left = _places(widths, done)
        memory.give(*(block for one in done[:-1] if one in left for block in one.blocks))
        projected = self.take(forward.projected)
        memory.give(*(block for one in done[-1:] if one in left for block in one.blocks))
        query, key, output = (
            self.take(width) if place is None else place for width, place in zip(widths, places, strict=True)
        )
        memory.give(*self.given)
        self.run_operator(layer)
        memory.give(projected, query, key)
        self.given = (output, self.residual)

    def _mlp(self) -> None:
        """Up to what is made of the attended: the next piece's part is to add it to the residual."""
        forward, memory = self.forward, self.memory
        operand = self._operand(forward.output).blocks if forward.scale_group else ()
        attended = self.take(forward.hidden)
        memory.give(*operand)
        self.attended = self.summed(attended)
        self.made = self.summed(self._dense() if forward.wide else self._routed())

    def _dense(self) -> Block:
        forward, memory = self.forward, self.memory
        read = self._operand(forward.hidden)
        wide = self.take(forward.wide)
        memory.give(*read.blocks)
        gated = self._operand(forward.gated)
        memory.give(wide)
        made = self.take(forward.hidden)
        memory.give(*gated.blocks)
        return made

    def _routed(self) -> Block:
        """Experts read bf16, and work in the engine's own workspace, which is there before any graph, or in their own.

        That the router's logits do not stay until the experts are done was chosen by one launch.
        Source: vllm/model_executor/layers/fused_moe/prepare_finalize/no_dp_ep.py: _quantize_input.
        """
        forward, memory = self.forward, self.memory
        read = self.take(forward.hidden)
        memory.give(self.take(forward.router))
        quantized = self._operand(forward.hidden).blocks if forward.scale_group else ()
        made = self.take(forward.hidden)
        if forward.experts:
            forward.experts.run(memory, self.tokens)
        memory.give(*quantized, read)
        return made


def _places(widths: Sequence[int], done: Sequence[_Buffer]) -> tuple[list[Block | None], list[_Buffer]]:
    """For each width the block of a buffer of that size, the last one first, None without one; and what is left."""
    left, places = list(done), list[Block | None]()
    for width in widths:
        same = [one for one in left if one.width == width]
        if same:
            left.remove(same[-1])
        places.append(same[-1].blocks[0] if same else None)
    return places, left

"""The tensors of one forward pass of DeepSeek V4 on one rank, in the order in which they come and go.

Between layers a token has several hidden states, which are mixed into one before attention and before the experts.
Sources: vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4Model.forward, DeepseekV4DecoderLayer.forward;
vllm/models/deepseek_v4/attention.py: DeepseekV4Attention.forward.
"""

from dataclasses import dataclass
from enum import IntEnum

from servespec.compiler.facts.graph_memory import INDEXED_RATIO
from servespec.compiler.memory.caching_allocator import CAPTURE_STREAM, Allocator, Block
from servespec.compiler.memory.model_pass import ACTIVATIONS, AUXILIARY, Attention, ContextScores, Outputs, run_layers

_BF16_BYTES = 2
_FP32_BYTES = 4
_OVERLAP = 2
"""Windows of layers with an index overlap, and make all of their tokens twice.

Source: vllm/models/deepseek_v4/compressor.py: DeepseekCompressor.
"""


class _Fork(IntEnum):
    """Streams that a layer forks off, in the order of the engine's list; allocators never share blocks of two."""

    INDEX = CAPTURE_STREAM + 1
    INDEX_WEIGHTS = CAPTURE_STREAM + 2
    INDEX_COMPRESSOR = CAPTURE_STREAM + 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Bytes of a token in the tensors of a layer's index, and positions that it chooses."""

    queries: int
    packed_queries: tuple[int, ...]
    weights: int
    scaled_weights: int
    compressor: int
    chosen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedPass:
    """Bytes of a token in each tensor, 0 where the config does not tell; tensors of some bytes a token are left out.

    ``aux_layers`` are layers whose input is an output, their number for what the last one leaves.

    ``ratios`` are those of the layers, ``states`` how many hidden states a token has, ``matrix_ranks`` how many ranks
    share a matrix and ``token_ranks`` how many share the tokens between attention calls.  ``own_queries`` are what the
    rank's heads make and ``queries`` what the kernel reads, 0 where that is the same tensor; ``grouped`` is what the
    first matrix after attention makes, ``compressor`` keys and scores of one window.  ``scale_group`` is as for other
    models, with scales of ``scale_bytes``.

    ``forks_up_to`` are tokens up to which small matrices run on streams of their own, None where no stream is forked.
    ``is_repeated`` says that the first states are copies of the embedding; ``is_given_states`` that the stage before
    made them, ``hands_on_states`` that the next stage reads them.
    """

    ratios: tuple[int, ...]
    aux_layers: tuple[int, ...]
    hidden: int
    states: int
    token_ranks: int
    matrix_ranks: int
    compressed_queries: int
    latents: int
    own_queries: int
    queries: int
    output: int
    grouped: int
    compressor: int
    index: Index
    scores: ContextScores | None = None
    router: int = 0
    scale_group: int = 0
    scale_bytes: int = 1
    forks_up_to: int | None = None
    is_repeated: bool = False
    is_given_states: bool = False
    hands_on_states: bool = False

    @property
    def layers(self) -> int:
        return len(self.ratios)

    @property
    def accumulators(self) -> tuple[int, ...]:
        return ()

    @property
    def experts(self) -> None:
        """Its kernels' workspaces were not read."""
        return None

    @property
    def handed_on(self) -> int:
        """Source: vllm/models/deepseek_v4/nvidia/model.py: DeepseekV4Model.make_empty_intermediate_tensors."""
        return self.states

    @property
    def has_parallel_states(self) -> bool:
        return self.states > 1

    def run(self, memory: Allocator, tokens: int, attention: Attention) -> Outputs:
        step = _Step(self, memory, tokens, attention)
        run_layers(
            kinds=self.ratios,
            ends=(*self.aux_layers, self.layers),
            run_layer=step.run_layer,
            layout=lambda: memory.layout(*step.between_layers),
        )
        return step.finish()


class _Step:
    """A pass on its way.

    ``made`` is what the last experts made, ``mixed`` the states and how they are mixed.  The model refers to both until
    a layer has returned, so that those of before a layer are alive beside its own.  ``recovered`` are the states that
    the last auxiliary output is the mean of, which the model refers to until it returns.
    """

    def __init__(self, forward: CompressedPass, memory: Allocator, tokens: int, attention: Attention) -> None:
        self.forward, self.memory, self.tokens, self.attention = forward, memory, tokens, attention
        self.own_tokens = -(-tokens // forward.token_ranks)
        self.made = self._take(0 if forward.is_given_states else forward.hidden)
        self.embedding: tuple[Block, ...] = ()
        if forward.is_repeated:
            self.embedding, self.made = (self.made,), self._take_own(forward.states * forward.hidden)
        self.mixed: tuple[Block, ...] = ()
        self.is_at_start = True
        self.recovered: tuple[Block, ...] = ()
        self.auxiliary: list[Block] = []

    @property
    def between_layers(self) -> tuple[Block, ...]:
        """All that is given back later."""
        return (self.made, *self.mixed, *self.embedding, *self.recovered)

    def run_layer(self, layer: int) -> None:
        self._keep_input_of(layer)
        given = (self.made, *self.mixed)
        entered, normed = self._mix(is_first=self.is_at_start)
        projected = self._attend(layer, normed)
        self.mixed, normed = self._mix(is_first=False)
        self.memory.give(*entered, projected)
        self.made = self._choose_experts(normed)
        self.memory.give(*given)
        self.is_at_start = False

    def finish(self) -> Outputs:
        """The next stage reads the states; the last one makes a hidden state of them."""
        forward, memory = self.forward, self.memory
        self._keep_input_of(forward.layers)
        memory.give(self.made)
        is_recovered = forward.layers in forward.aux_layers
        states = self.recovered[0] if is_recovered else self._take_own(forward.states * forward.hidden)
        hidden = states if forward.hands_on_states else self._join(states)
        memory.give(*(one for one in (*self.mixed, *self.embedding, *self.recovered) if one is not hidden))
        return Outputs(hidden=(hidden,), auxiliary=tuple(self.auxiliary))

    def _take(self, width: int, owner: str = ACTIVATIONS, stream: int = CAPTURE_STREAM) -> Block:
        """Of all tokens of the step."""
        return self.memory.take(width * self.tokens, owner, stream)

    def _take_own(self, width: int) -> Block:
        """Of the tokens that are this rank's between attention calls."""
        return self.memory.take(width * self.own_tokens, ACTIVATIONS)

    def _give(self, *blocks: Block) -> None:
        """What the model does not refer to for longer."""
        self.memory.give(*(block for block in blocks if block not in self.recovered))

    def _keep_input_of(self, layer: int) -> None:
        """The mean over the states, gathered from the ranks."""
        for _ in range(self.forward.aux_layers.count(layer)):
            states, before = self._take_own(self.forward.states * self.forward.hidden), self.recovered
            shared = self._take_own(self.forward.hidden) if self.forward.token_ranks > 1 else None
            self.auxiliary.append(self._take(self.forward.hidden, AUXILIARY))
            self.memory.give(*before, *((shared,) if shared else ()))
            self.recovered = (states,)

    def _join(self, states: Block) -> Block:
        """A norm follows, but for the drafter, whose logits begin with it."""
        hidden = self.forward.hidden
        gathered = self._gathered(states, self.forward.states * hidden)
        joined = self._take(hidden)
        self._give(gathered)
        if self.forward.is_repeated:
            return joined
        normed = self._take(hidden)
        self._give(joined)
        return normed

    def _mix(self, *, is_first: bool) -> tuple[tuple[Block, ...], Block]:
        """New states, and their mixture, normed.  The first mixture makes the states before, or has been given them.

        Sources, in vllm/model_executor/kernels/mhc/tilelang.py: mhc_pre_broadcast_tilelang, mhc_pre_tilelang,
        mhc_fused_post_pre_tilelang.
        """
        forward, width = self.forward, self.forward.states * self.forward.hidden
        is_given = forward.is_repeated or forward.is_given_states
        early = (self._take_own(width),) if is_first and not is_given else ()
        normed = self._take_own(forward.hidden)
        late = () if is_first else (self._take_own(width),)
        return (*early, *late), normed

    def _attend(self, layer: int, shared: Block) -> Block:
        """Of all tokens.  The output comes first and is filled by a kernel; what made its operands stays beside it."""
        forward, ratio = self.forward, self.forward.ratios[layer]
        normed = self._gathered(shared, forward.hidden)
        output = self._take(forward.output)
        joint = self._multiplied(forward.hidden, forward.compressed_queries + forward.latents)
        inputs = (joint, *self._compressor_inputs(ratio))
        inputs = (*inputs, self._take(forward.compressed_queries), self._take(forward.latents))
        chosen_by = self._index_operands(ratio)
        queries = self._multiplied(forward.compressed_queries, forward.own_queries)
        if forward.queries:
            own, queries = queries, self._take(forward.queries)
            self.memory.give(own)
        self._run_operator(layer)
        self.memory.give(queries, *chosen_by)
        projected = self._project()
        self.memory.give(output, *inputs, normed)
        return self._reduced(projected)

    def _compressor_inputs(self, ratio: int) -> tuple[Block, ...]:
        """Source: vllm/models/deepseek_v4/attention.py: DeepseekV4Attention._run_parallel_input_projections."""
        forward = self.forward
        is_forked = forward.forks_up_to is not None and self.tokens <= forward.forks_up_to
        widths = [] if ratio <= 1 else [(forward.compressor, _Fork.INDEX)]
        if ratio == INDEXED_RATIO.value:
            index = forward.index
            widths = [
                (_OVERLAP * forward.compressor, _Fork.INDEX),
                (index.weights, _Fork.INDEX_WEIGHTS),
                (_OVERLAP * index.compressor, _Fork.INDEX_COMPRESSOR),
            ]
        return tuple(self._take(width, ACTIVATIONS, fork if is_forked else CAPTURE_STREAM) for width, fork in widths)

    def _index_operands(self, ratio: int) -> tuple[Block, ...]:
        """Source: vllm/models/deepseek_v4/attention.py: DeepseekV4Indexer.forward."""
        index = self.forward.index
        if ratio != INDEXED_RATIO.value:
            return ()
        stream = CAPTURE_STREAM if self.forward.forks_up_to is None else _Fork.INDEX
        queries = self._multiplied(self.forward.compressed_queries, index.queries, stream)
        packed = tuple(
            self._take(width, ACTIVATIONS, stream) for width in (index.scaled_weights, *index.packed_queries)
        )
        self.memory.give(queries)
        return packed

    def _run_operator(self, layer: int) -> None:
        """Scores, and the places of what was chosen by them.

        Source: vllm/models/deepseek_v4/nvidia/flashmla.py: DeepseekV4FlashMLAAttention._forward_decode.
        """
        forward = self.forward
        if self.attention is Attention.LEFT_OUT or forward.ratios[layer] != INDEXED_RATIO.value:
            return
        if self.attention is Attention.OF_ANY_CONTEXT and forward.scores:
            forward.scores.run(self.memory, self.tokens)
        self.memory.give(self._take(forward.index.chosen), self._take(_FP32_BYTES))

    def _project(self) -> Block:
        """Source: vllm/models/deepseek_v4/nvidia/ops/o_proj.py: deep_gemm_fp8_o_proj."""
        forward = self.forward
        rotated = self._operand(forward.own_queries)
        grouped = self._take(forward.grouped)
        projected = self._multiplied(forward.grouped, forward.hidden)
        self.memory.give(*rotated, grouped)
        return projected

    def _choose_experts(self, normed: Block) -> Block:
        """Routed experts work in the engine's own workspace, which is there before any graph."""
        forward = self.forward
        router = self._take_own(forward.router)
        made = self._take_own(forward.hidden)
        self.memory.give(router, normed)
        return made if forward.token_ranks > 1 else self._reduced(made)

    def _multiplied(self, width: int, product: int, stream: int = CAPTURE_STREAM) -> Block:
        """What a matrix makes of a tensor of the first width."""
        operand = self._operand(width, stream)
        made = self._take(product, ACTIVATIONS, stream)
        self.memory.give(*operand)
        return made

    def _operand(self, width: int, stream: int = CAPTURE_STREAM) -> tuple[Block, ...]:
        """A copy in FP8 of what a matrix reads, with scales; none where it reads bf16."""
        if not self.forward.scale_group:
            return ()
        elements = width // _BF16_BYTES
        scales = self.forward.scale_bytes * elements // self.forward.scale_group
        return tuple(self._take(size, ACTIVATIONS, stream) for size in (elements, scales))

    def _gathered(self, shared: Block, width: int) -> Block:
        """Of all ranks' tokens.  Source: vllm/models/common/ops/sequence_parallel.py: sp_all_gather."""
        if self.forward.token_ranks == 1:
            return shared
        gathered = self._take(width)
        self._give(shared)
        return gathered

    def _reduced(self, partial: Block) -> Block:
        """The sum over ranks, of this rank's tokens, in another place."""
        if self.forward.matrix_ranks == 1:
            return partial
        reduced = self._take_own(self.forward.hidden)
        self.memory.give(partial)
        return reduced

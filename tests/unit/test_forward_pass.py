"""What is alive at once in a forward pass, counted by hand for one token of a dense layer in bf16 and in FP8."""

from dataclasses import replace

import pytest

from servespec.compiler.memory.caching_allocator import PerfectAllocator
from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.model_pass import Attention
from servespec.units import Bytes

HIDDEN, PROJECTED, KEY, WIDE, GATED = 8192, 12288, 2048, 49152, 24576
EAGER = ForwardPass(
    layers=3,
    aux_layers=(),
    hidden=HIDDEN,
    stream=HIDDEN,
    projected=PROJECTED,
    query=HIDDEN,
    key=KEY,
    output=HIDDEN,
    wide=WIDE,
    gated=GATED,
    router=0,
)
COMPILED = replace(EAGER, is_compiled=True)


def most_bytes(forward: ForwardPass) -> Bytes:
    memory = PerfectAllocator()
    memory.give(*forward.run(memory, 1, Attention.LEFT_OUT).all)
    assert memory.kept_bytes == 0
    return memory.reserved_bytes


def test_an_eager_layer_holds_the_residual_and_what_its_mlp_reads_beside_it() -> None:
    assert most_bytes(EAGER) == HIDDEN + HIDDEN + WIDE + GATED


def test_an_eager_draft_head_holds_what_attention_reads_until_its_last_matrix_is_done() -> None:
    """Two inputs, the tensor that both are copied to, what attention wrote, and what its last matrix made of that."""
    no_others = {"projected": 0, "query": 0, "key": 0, "wide": 0, "gated": 0, "router": 0}
    head = replace(EAGER, layers=1, inputs=2 * HIDDEN, first_operand=2 * HIDDEN, is_given_residual=True, **no_others)

    assert most_bytes(head) == 2 * HIDDEN + 2 * HIDDEN + HIDDEN + HIDDEN


def test_a_compiled_piece_holds_what_it_was_given_too() -> None:
    """The output of attention and the residual from before it."""
    assert most_bytes(COMPILED) == HIDDEN + WIDE + GATED + 2 * HIDDEN


def test_fp8_inputs_take_half_and_a_scale_for_every_group() -> None:
    fp8 = replace(COMPILED, scale_group=128)

    assert most_bytes(COMPILED) - most_bytes(fp8) == GATED - (GATED // 2 + 4 * GATED // 2 // 128)


def test_experts_read_a_norm_in_bf16_and_make_fp8_of_it() -> None:
    """Beside what the piece was given, and the residual: the norm, its FP8 copy, and what the experts made."""
    experts = replace(COMPILED, wide=0, gated=0, projected=0, query=0, key=0, scale_group=128)

    assert most_bytes(experts) == 2 * HIDDEN + HIDDEN + HIDDEN + (HIDDEN // 2 + 4 * HIDDEN // 2 // 128) + HIDDEN


def test_a_stage_that_is_not_the_last_hands_on_its_residual_without_a_norm() -> None:
    """The last one has a norm beside both."""
    short = {"wide": 0, "gated": 0, "projected": 0, "query": 0, "key": 0, "output": 0}
    last, first = replace(EAGER, **short), replace(EAGER, **short, hands_on_residual=True)
    memory = PerfectAllocator()

    outputs = first.run(memory, 1, Attention.LEFT_OUT)

    assert [block.size_bytes for block in outputs.hidden] == [HIDDEN, HIDDEN]
    assert memory.kept_bytes == 2 * HIDDEN
    assert most_bytes(replace(last, layers=0)) - most_bytes(replace(first, layers=0)) == HIDDEN


def test_a_sum_over_ranks_is_beside_its_partial() -> None:
    short = replace(EAGER, layers=1, wide=0, gated=0, projected=0, query=0, key=0)

    assert most_bytes(replace(short, sums_over_ranks=True)) == most_bytes(short) + HIDDEN


def test_inputs_of_an_eager_head_stay_to_its_end() -> None:
    assert most_bytes(replace(EAGER, inputs=2 * HIDDEN)) == most_bytes(EAGER) + 2 * HIDDEN


@pytest.mark.parametrize("layers", [1, 3])
def test_a_residual_that_the_engine_gives_is_in_no_pool(layers: int) -> None:
    """Only the first layer has it."""
    drafter = replace(COMPILED, layers=layers)

    saved = most_bytes(drafter) - most_bytes(replace(drafter, is_given_residual=True))

    assert saved == (HIDDEN if layers == 1 else 0)


def test_auxiliary_hidden_states_stay_to_the_end() -> None:
    assert most_bytes(replace(COMPILED, aux_layers=(1, 2))) == most_bytes(COMPILED) + 2 * HIDDEN


def test_a_stage_without_layers_has_its_residual_and_its_output() -> None:
    assert most_bytes(replace(COMPILED, layers=0)) == 2 * HIDDEN

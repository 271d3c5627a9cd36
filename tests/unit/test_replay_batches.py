"""The batches of a replay: every graph is asked for, nothing exceeds what the engine takes."""

from hypothesis import given
from hypothesis import strategies as st

from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.replay_batches import batches_for, chosen_drafts
from servespec.runtime.extension.step_batches import Batch, Limits, generated_tokens, prompt_tokens

LIMITS = Limits(max_requests=64, max_batched_tokens=512, max_model_len=300, drafts=3)
TARGET, STEPPING, BLOCK = "ModelCudaGraphManager", "SpeculatorCudaGraphManager", "DFlashCudaGraphManager"


def full(requests: int, query_len: int, manager: str = TARGET, of: int = 4, steps: int = 0) -> CapturedShape:
    return CapturedShape(manager, of, "FULL", requests * query_len, requests, query_len, 0, 0, 1, steps)


def piecewise(tokens: int, loras: int = 0) -> CapturedShape:
    return CapturedShape(TARGET, 4, "PIECEWISE", tokens, 0, 0, 0, loras, 1, 0)


def varlen(tokens: int) -> CapturedShape:
    return CapturedShape(TARGET, 4, "FULL", tokens, min(tokens, 64), 0, 4, 0, 1, 0)


def test_a_uniform_size_is_asked_for_exactly_and_with_one_request_fewer() -> None:
    batches = batches_for([full(2, 4), full(5, 4)], LIMITS)

    assert [len(batch.decodes) for batch in batches] == [1, 2, 4, 5]
    assert all(set(batch.decodes) == {4} and (batch.next_drafts, batch.steps) == (3, 2) for batch in batches)


def test_each_tier_has_its_own_batches() -> None:
    batches = batches_for([full(1, 4), full(2, 2), full(2, 1)], LIMITS)

    assert [(batch.decodes, batch.next_drafts) for batch in batches] == [
        ((1,), 0), ((1, 1), 0), ((2,), 1), ((2, 2), 1), ((4,), 3),
    ]  # fmt: skip


def test_a_drafters_own_graphs_are_asked_for_with_all_its_drafts() -> None:
    batches = batches_for([full(1, 1, STEPPING, of=1, steps=2), full(1, 4, BLOCK), full(1, 4, STEPPING)], LIMITS)

    assert [(batch.decodes, batch.next_drafts) for batch in batches] == [((3,), 2), ((4,), 3)]


def test_a_drafters_graph_wider_than_a_step_of_the_target_follows_one_token_steps() -> None:
    narrow = Limits(max_requests=64, max_batched_tokens=64, max_model_len=300, drafts=3)

    (_, widest) = batches_for([full(64, 1, STEPPING, of=1)], narrow)

    assert (widest.decodes, widest.next_drafts) == ((1,) * 64, 3)


def test_what_a_drafter_needs_beside_the_target_counts() -> None:
    given = {"max_requests": 64, "max_batched_tokens": 64, "max_model_len": 300, "drafts": 3}
    block = Limits(**given, block_tokens_per_request=4)
    extra = Limits(**given, extra_tokens_per_request=1)

    assert max(batch.requests for batch in batches_for([full(16, 4, BLOCK), full(17, 4, BLOCK)], block)) == 16
    assert [batch.tokens for batch in batches_for([piecewise(60), piecewise(64)], extra)] == [59]
    assert max(prompt_tokens(number, extra) for number in range(200)) + 1 <= 64


def test_a_token_size_is_asked_for_with_decodes_beside_prompts() -> None:
    (padded, exact) = batches_for([piecewise(40)], LIMITS)

    assert exact == Batch(decodes=(4, 4, 4), prompts=(14, 14), next_drafts=3)
    assert (padded.tokens, exact.tokens, exact.steps) == (39, 40, 1)


def test_adaptive_verification_is_asked_for_with_queries_of_different_lengths() -> None:
    (padded, exact) = batches_for([varlen(20)], LIMITS)

    assert (padded.tokens, exact.tokens) == (19, 20)
    assert len(set(exact.decodes)) > 1
    assert max(exact.decodes) <= 4


def test_graphs_of_adapters_are_left_alone() -> None:
    assert batches_for([piecewise(8, loras=1)], LIMITS) == ()


SHAPES = st.lists(
    st.one_of(
        st.builds(full, st.integers(1, 64), st.integers(1, 4)),
        st.builds(full, st.integers(1, 64), st.just(1), st.just(STEPPING), st.just(1), st.integers(2, 3)),
        st.builds(piecewise, st.integers(1, 512)),
        st.builds(varlen, st.integers(1, 256)),
    ),
    max_size=12,
)


@given(shapes=SHAPES)
def test_every_size_is_reached_within_the_limits(shapes: list[CapturedShape]) -> None:
    batches = batches_for(shapes, LIMITS)

    assert len(set(batches)) == len(batches)
    for batch in batches:
        assert 0 < batch.tokens <= LIMITS.max_batched_tokens
        assert 0 < batch.requests <= LIMITS.max_requests
        assert min((*batch.decodes, *batch.prompts)) > 0
        assert max(batch.prompts, default=0) <= LIMITS.max_model_len - 2
    uniform = {(len(batch.decodes), batch.next_drafts) for batch in batches if len(set(batch.decodes)) == 1}
    later = {(shape.requests, shape.draft_steps) for shape in shapes if shape.manager == STEPPING}
    assert later <= uniform
    assert {shape.tokens for shape in shapes if not shape.query_len} <= {batch.tokens for batch in batches}
    exact = {batch.decodes for batch in batches if not batch.prompts}
    assert {(shape.query_len,) * shape.requests for shape in shapes if shape.is_target and shape.query_len} <= exact


@given(number=st.integers(0, 1000), tokens=st.integers(16, 512), length=st.integers(64, 4096), drafts=st.integers(0, 7))
def test_a_prompt_fits_one_step_and_the_model(number: int, tokens: int, length: int, drafts: int) -> None:
    limits = Limits(max_requests=8, max_batched_tokens=tokens, max_model_len=length, drafts=drafts)

    prompt = prompt_tokens(number, limits)

    assert 1 + drafts < prompt <= tokens
    assert prompt + generated_tokens(limits) + 1 + drafts <= length


def test_prompts_of_a_batch_differ_in_length() -> None:
    assert len({prompt_tokens(number, LIMITS) for number in range(16)}) == 16


def test_drafts_are_right_up_to_a_place_and_wrong_from_there() -> None:
    said = [10, 11, 12, 127, 14]

    assert chosen_drafts(said, 1, 3, 3, 128) == [11, 12, 127]
    assert chosen_drafts(said, 1, 3, 1, 128) == [11, 13, 0]
    assert chosen_drafts(said, 4, 3, 0, 128) == [15, 1, 1]

"""The batches of timed steps: chosen from what is captured, or as asked for."""

from hypothesis import given
from hypothesis import strategies as st

from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.step_batches import Limits
from servespec.runtime.extension.step_times_batches import Wanted, thinned, timed_batches

LIMITS = Limits(max_requests=64, max_batched_tokens=512, max_model_len=300, drafts=3)
AUTO = Wanted(requests=None, tokens=None, repeats=5)
TARGET = "ModelCudaGraphManager"


def full(requests: int, query_len: int = 4, manager: str = TARGET) -> CapturedShape:
    return CapturedShape(manager, 4, "FULL", requests * query_len, requests, query_len, 0, 0, 1, 0)


def piecewise(tokens: int, loras: int = 0) -> CapturedShape:
    return CapturedShape(TARGET, 4, "PIECEWISE", tokens, 0, 0, 0, loras, 1, 0)


def varlen(tokens: int) -> CapturedShape:
    return CapturedShape(TARGET, 4, "FULL", tokens, min(tokens, 64), 0, 4, 0, 1, 0)


def decodes(shapes: list[CapturedShape], wanted: Wanted = AUTO) -> list[tuple[int, int, int]]:
    """Requests, query length and drafts asked for after the step."""
    batches = [batch for batch in timed_batches(shapes, LIMITS, wanted) if not batch.prompts]
    assert all(len(set(batch.decodes)) == 1 for batch in batches)
    return [(len(batch.decodes), batch.decodes[0], batch.next_drafts) for batch in batches]


def test_each_captured_size_is_timed() -> None:
    assert decodes([full(8), full(1), full(2)]) == [(1, 4, 3), (2, 4, 3), (8, 4, 3)]


def test_many_sizes_are_thinned_to_twelve_with_the_smallest_and_the_widest() -> None:
    sizes = [requests for requests, *_ in decodes([full(requests) for requests in range(1, 65)])]

    assert len(sizes) == 12
    assert (sizes[0], sizes[-1]) == (1, 64)


def test_tiers_share_the_twelve() -> None:
    found = decodes([full(requests, query_len) for requests in range(1, 65) for query_len in (1, 2, 4)])

    assert [sum(query_len == one for _, query_len, _ in found) for one in (1, 2, 4)] == [4, 4, 4]
    assert {(query_len, drafts) for _, query_len, drafts in found} == {(1, 0), (2, 1), (4, 3)}


def test_a_drafters_graphs_are_no_sizes_of_the_target() -> None:
    assert decodes([full(8), full(40, 4, "SpeculatorCudaGraphManager")]) == [(8, 4, 3)]


def test_where_no_decode_has_a_graph_of_its_own_token_sizes_are_filled() -> None:
    assert decodes([piecewise(2), piecewise(8), piecewise(16), piecewise(512)]) == [(2, 4, 3), (4, 4, 3)]
    assert decodes([varlen(8), varlen(256), piecewise(16)]) == [(2, 4, 3), (64, 4, 3)]


def test_asked_for_sizes_are_timed_for_every_query_length() -> None:
    wanted = Wanted(requests=(3, 64), tokens=None, repeats=5)

    assert decodes([full(2), full(8, 2)], wanted) == [(3, 2, 1), (64, 2, 1), (3, 4, 3), (64, 4, 3)]


def test_steps_with_prompts_have_the_token_sizes_that_any_batch_takes() -> None:
    shapes = [full(8), varlen(40), piecewise(64, loras=1), *(piecewise(tokens) for tokens in range(8, 600, 8))]

    found = [batch.tokens for batch in timed_batches(shapes, LIMITS, AUTO) if batch.prompts]

    assert len(found) == 6
    assert (found[0], found[-1]) == (8, 512)


def test_asked_for_token_counts_are_timed_as_they_are() -> None:
    batches = timed_batches([piecewise(16)], LIMITS, Wanted(requests=(1,), tokens=(9, 300), repeats=5))

    assert [batch.tokens for batch in batches if batch.prompts] == [9, 300]
    assert all(batch.decodes == (4, 4, 4) for batch in batches if batch.tokens == 300)


@given(sizes=st.sets(st.integers(1, 1000), min_size=1), count=st.integers(2, 12))
def test_thinned_sizes_are_some_of_them_with_both_ends(sizes: set[int], count: int) -> None:
    found = thinned(sizes, count)

    assert found == sorted(set(found))
    assert set(found) <= sizes
    assert len(found) == min(count, len(sizes))
    assert {min(sizes), max(sizes)} <= set(found)


def test_what_is_wanted_comes_through_json() -> None:
    for wanted in (AUTO, Wanted(requests=(1, 2), tokens=(16,), repeats=3)):
        assert Wanted.from_json(wanted.to_json()) == wanted

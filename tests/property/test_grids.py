"""The default grids: what holds for every cap."""

from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.graphs.grid import DecodeGrid, PrefillGrid, adaptive_verification_sizes
from servespec.units import Requests, Tokens

GRIDS = {
    "decode": lambda cap: DecodeGrid().sizes(Requests(cap)),
    "prefill": lambda cap: PrefillGrid().sizes(Tokens(cap)),
    "prefill, every small count": lambda cap: PrefillGrid(every_small_count=True).sizes(Tokens(cap)),
    "adaptive verification": lambda cap: adaptive_verification_sizes(Tokens(cap)),
}
grids = st.sampled_from(sorted(GRIDS))
caps = st.integers(1, 20_000)


@given(grids, caps)
def test_sizes_ascend_without_repetition_from_1_to_the_cap(grid: str, cap: int) -> None:
    sizes = GRIDS[grid](cap)

    assert list(sizes) == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, cap)


@given(grids, caps)
def test_every_power_of_two_up_to_the_cap_is_a_size(grid: str, cap: int) -> None:
    powers = {1 << exponent for exponent in range(cap.bit_length())}

    assert powers <= set(GRIDS[grid](cap))


@given(grids, caps, caps)
def test_a_larger_cap_keeps_every_size_but_the_smaller_cap(grid: str, one: int, other: int) -> None:
    small, large = sorted((one, other))

    assert set(GRIDS[grid](small)) - {small} <= set(GRIDS[grid](large))


@given(grids, caps, caps)
def test_a_larger_cap_never_has_fewer_sizes(grid: str, one: int, other: int) -> None:
    small, large = sorted((one, other))

    assert len(GRIDS[grid](small)) <= len(GRIDS[grid](large))


@given(st.integers(8, 20_000))
def test_a_decode_batch_is_padded_by_no_more_than_the_stride_rule_allows(requests: int) -> None:
    """0.65 * n^(2/3) requests at the size below; the last stride is cut by the cap."""
    sizes = DecodeGrid().sizes(Requests(20_000))
    below = max(size for size in sizes if size <= requests)
    above = min(size for size in sizes if size >= requests)

    assert above - below <= max(1, 0.65 * below ** (2 / 3))


@given(st.integers(1, 20_000))
def test_a_prefill_step_is_padded_by_at_most_7_percent_from_4096_tokens_on(tokens: int) -> None:
    sizes = PrefillGrid().sizes(Tokens(20_000))
    below = max(size for size in sizes if size <= tokens)
    above = min(size for size in sizes if size >= tokens)

    assert above - below <= 0.07 * max(below, 4096)


def test_the_strided_part_by_hand() -> None:
    assert DecodeGrid().sizes(Requests(20)) == (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20)
    assert PrefillGrid().sizes(Tokens(1000)) == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1000)
    assert adaptive_verification_sizes(Tokens(37)) == (1, 2, 4, 8, 10, 12, 14, 16, 20, 24, 28, 32, 37)
    assert DecodeGrid().sizes(Requests(0)) == ()

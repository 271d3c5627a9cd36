"""Curves of step times: what is fitted, which tiers they choose, and which grids follow from them."""

import math
from collections.abc import Sequence
from itertools import pairwise, product
from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.curves.acceptance import Acceptance, engine_rates_of_length, rates_of_length
from servespec.compiler.curves.measured_grid import MeasuredGrid, padding_of
from servespec.compiler.curves.step_curve import StepCurve, TimedPoint, step_curve
from servespec.compiler.curves.tiers import Candidate, best_tiers
from servespec.compiler.facts.graph_sizes import DECODE_EPSILON, PREFILL_EPSILON, PREFILL_LINEAR_FROM
from servespec.compiler.graphs.grid import DecodeGrid, PrefillGrid
from servespec.units import Requests, Tokens

SECONDS = st.floats(min_value=1e-4, max_value=1.0)
POINTS = st.lists(st.tuples(st.integers(1, 600), SECONDS), min_size=1, max_size=12, unique_by=lambda one: one[0])


def curve_of(points: Sequence[tuple[int, float]], noise: float = 0.0) -> StepCurve:
    found = step_curve(TimedPoint(size=size, seconds=seconds, noise=noise) for size, seconds in points)
    assert found is not None
    return found


# Fitting


@given(POINTS)
def test_a_larger_step_is_never_faster_and_rising_points_are_kept(points: list[tuple[int, float]]) -> None:
    curve = curve_of(points)
    seconds = [curve.seconds_at(size) for size in range(curve.first, curve.last + 1)]
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(seconds))

    rising = list(zip(sorted(size for size, _ in points), sorted(second for _, second in points), strict=True))
    for size, second in rising:
        assert math.isclose(curve_of(rising).seconds_at(size), second, rel_tol=1e-9)


@given(POINTS)
def test_fitting_keeps_the_product_of_all_times(points: list[tuple[int, float]]) -> None:
    """Pooled times are the geometric mean of theirs, so that the fit is neither slow nor fast on the whole."""
    fitted = math.fsum(curve_of(points).log_seconds)
    assert math.isclose(fitted, math.fsum(math.log(seconds) for _, seconds in points), abs_tol=1e-9)


def test_between_two_points_seconds_follow_a_power_law_and_beyond_them_nothing_is_said() -> None:
    curve = curve_of([(4, 1.0), (16, 4.0), (64, 4.0)])
    assert math.isclose(curve.seconds_at(8), 2.0)
    assert (curve.elasticity_at(4), curve.elasticity_at(16)) == (1.0, 0.0)
    for size in (3, 65):
        with pytest.raises(ValueError, match="outside of 4 to 64"):
            curve.seconds_at(size)
    assert step_curve([]) is None


# Tiers

WIDEST = 7
RATES = st.lists(st.floats(0.2, 5.0), min_size=WIDEST, max_size=WIDEST)


def candidate(k: int, rates: Sequence[float], noise: float = 0.0) -> Candidate:
    """Whose tokens per second at n requests are ``rates[n - 1]``, as far as the time of a step may fall."""
    seconds = [(n, n / rate) for n, rate in enumerate(rates, start=1)]
    return Candidate(num_speculative_tokens=k, tokens_per_step=1.0, steps=curve_of(seconds, noise))


def losses(candidates: Sequence[Candidate], choice: Sequence[int]) -> list[float]:
    found = []
    for n, at in enumerate(choice, start=1):
        rates = [one.tokens_per_second(n) for one in candidates]
        found.append(math.log(max(rates) / rates[at]))
    return found


@given(st.lists(RATES, min_size=1, max_size=3), st.sampled_from([0.01, 0.1, 0.5]))
def test_no_other_way_has_fewer_tiers_or_loses_less(rates: list[list[float]], tolerance: float) -> None:
    """Against every way to give each of seven sizes one of up to three K."""
    candidates = [candidate(k, one) for k, one in enumerate(rates)]
    best = (inf, inf)
    for choice in product(range(len(rates)), repeat=WIDEST):
        lost = losses(candidates, choice)
        if max(lost) <= math.log1p(tolerance):
            best = min(best, (1 + sum(a != b for a, b in pairwise(choice)), math.fsum(lost)))

    tiers = best_tiers(candidates, Requests(WIDEST), tolerance)

    chosen = [tier.num_speculative_tokens for tier in tiers for _ in range(tier.from_requests, tier.to_requests + 1)]
    assert len(chosen) == WIDEST
    assert len(tiers) == best[0]
    assert math.isclose(math.fsum(losses(candidates, chosen)), best[1], abs_tol=1e-9)


@given(st.lists(RATES, min_size=1, max_size=4))
def test_tiers_partition_the_batches_and_neighbours_differ(rates: list[list[float]]) -> None:
    tiers = best_tiers([candidate(k, one) for k, one in enumerate(rates)], Requests(WIDEST), 0.02)
    assert (tiers[0].from_requests, tiers[-1].to_requests) == (1, WIDEST)
    for before, after in pairwise(tiers):
        assert after.from_requests == before.to_requests + 1
        assert after.num_speculative_tokens != before.num_speculative_tokens


def test_noise_alone_makes_no_tier() -> None:
    """Two K that are equal but for 1 % up and down need several tiers at no tolerance, and one where noise is 2 %."""
    even, odd = ([1.0 + 0.01 * (n % 2 == bit) for n in range(WIDEST)] for bit in (0, 1))
    exact = [candidate(1, even), candidate(3, odd)]
    noisy = [candidate(1, even, 0.02), candidate(3, odd, 0.02)]
    assert len(best_tiers(exact, Requests(WIDEST), 1e-6)) > 1
    assert len(best_tiers(noisy, Requests(WIDEST), 1e-6)) == 1


# Acceptance


@given(st.integers(1, 15), st.floats(0, 1))
def test_rates_of_a_length_give_it_back(drafts: int, share: float) -> None:
    length = 1 + share * drafts
    for rates in (rates_of_length(length, drafts), engine_rates_of_length(length, drafts)):
        assert len(rates) == drafts
        assert all(after <= before for before, after in pairwise(rates))
        assert math.isclose(Acceptance(rates, "").tokens_per_step(drafts), length, abs_tol=1e-9)


def test_more_drafts_than_rates_are_not_guessed() -> None:
    with pytest.raises(ValueError, match="2 rates"):
        Acceptance((0.5, 0.2), "").tokens_per_step(3)


# Grids


def test_the_default_constants_come_out_of_the_fitted_envelopes() -> None:
    """e = n^(1/3) / 5 in decode and min(1, t / 4096) in prefill, put in as curves, give the default grids exactly."""
    decode = curve_of([(n, exp(0.6 * n ** (1 / 3))) for n in range(1, 1025)])
    assert MeasuredGrid(decode, DECODE_EPSILON.value).sizes(1024) == DecodeGrid().sizes(Requests(1024))

    turn = PREFILL_LINEAR_FROM.value
    prefill = curve_of([(t, exp(min(1, t / turn)) * max(1, t / turn)) for t in range(1, 8193)])
    assert MeasuredGrid(prefill, PREFILL_EPSILON.value).sizes(8192) == PrefillGrid().sizes(Tokens(8192))


def test_padded_rows_at_half_the_cost_need_about_36_decode_graphs() -> None:
    """Follow-up 6 of the source: whole replays at 0.54 to 0.57 of a real row, about 36 graphs instead of 64."""
    decode = curve_of([(n, exp(0.6 * n ** (1 / 3))) for n in range(1, 1025)])
    counts = [len(MeasuredGrid(decode, DECODE_EPSILON.value, cost).sizes(1024)) for cost in (0.54, 0.57)]
    assert all(abs(count - 36) <= 4 for count in counts), counts


@given(POINTS, st.floats(0.005, 0.3), st.integers(1, 600))
def test_a_grid_ascends_to_its_cap_and_holds_every_power_of_two(
    points: list[tuple[int, float]], epsilon: float, cap: int
) -> None:
    sizes = MeasuredGrid(curve_of([(1, 1e-5), *points, (600, 2.0)]), epsilon).sizes(cap)
    assert list(sizes) == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, cap)
    assert {1 << bit for bit in range(10) if 1 << bit <= cap} <= set(sizes)


@given(POINTS, st.floats(0.01, 0.1))
def test_no_gap_costs_more_than_twice_what_the_share_allows(points: list[tuple[int, float]], epsilon: float) -> None:
    """Whatever cliffs the curve has; between neighbours nothing can be padded."""
    curve = curve_of([(1, 1e-5), *points, (600, 2.0)])
    sizes = MeasuredGrid(curve, epsilon).sizes(600)
    for before, after in pairwise(sizes):
        assert after == before + 1 or curve.seconds_at(after) / curve.seconds_at(before) - 1 <= 4 * epsilon + 1e-12


def test_the_cost_of_padding_is_counted_over_every_batch() -> None:
    """Sizes 1, 2 and 4 of a linear curve: three rows cost a third more as four, the others nothing."""
    linear = curve_of([(n, float(n)) for n in range(1, 5)])
    padding = padding_of((1, 2, 4), linear)
    assert (padding.worst_at, round(padding.worst, 9), round(padding.mean, 9)) == (3, round(1 / 3, 9), round(1 / 12, 9))
    assert padding_of((1, 2, 3, 4), linear).worst == 0
    assert round(padding_of((1, 2, 4), linear, 0.5).worst, 9) == round(1 / 6, 9)

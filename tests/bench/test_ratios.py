"""Paired ratios and their intervals."""

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.render.bench_figures import mean_ratio, ratio_row
from servespec.runtime.bench import ratios
from servespec.runtime.bench.ratios import RATIO_METRICS, interval_95, paired_ratios


def cell(arm: str, number: int, value: float, *, load: int = 1, completed: int = 4) -> dict[str, Any]:
    numbers = dict.fromkeys(RATIO_METRICS, value)
    return {"arm": arm, "round": number, "concurrency": load, "prompts": 4, "completed": completed, **numbers}


def throughput(cells: list[dict[str, Any]], *arms: str) -> list[Any]:
    return [one for one in paired_ratios(arms, cells) if one.metric == "output_tokens_per_second"]


def test_a_ratio_pairs_cells_of_one_round() -> None:
    cells = [cell("a", 1, 100), cell("b", 1, 110), cell("a", 2, 200), cell("b", 2, 240), cell("b", 3, 1)]
    (one,) = throughput(cells, "a", "b")

    assert (one.arm, one.over, one.concurrency) == ("b", "a", 1)
    assert one.ratios == pytest.approx((1.1, 1.2))
    assert one.median == pytest.approx(1.15)
    assert one.geometric_mean == pytest.approx(math.sqrt(1.1 * 1.2))


def test_every_arm_is_held_against_those_before_it_at_each_load() -> None:
    cells = [cell(arm, 1, 1, load=load) for arm in "abc" for load in (8, 1)]

    found = [(one.arm, one.over, one.concurrency) for one in throughput(cells, "a", "b", "c")]
    assert found == [("b", "a", 1), ("b", "a", 8), ("c", "a", 1), ("c", "a", 8), ("c", "b", 1), ("c", "b", 8)]


def test_a_round_in_which_a_request_failed_counts_for_no_pair() -> None:
    cells = [cell("a", 1, 1), cell("b", 1, 2, completed=3), cell("a", 2, 1), cell("b", 2, 5)]

    assert throughput(cells, "a", "b")[0].ratios == (5.0,)
    assert throughput(cells[:2], "a", "b") == []


def test_one_pair_has_no_interval() -> None:
    assert interval_95([1.5]) == (None, None)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=40))
def test_the_ratio_that_is_reported_lies_in_its_own_interval(pairs: list[float]) -> None:
    cells = [cell(arm, at, value) for at, pair in enumerate(pairs) for arm, value in (("a", 1.0), ("b", pair))]
    one = throughput(cells, "a", "b")[0].to_json()

    assert one["low_95"] <= one["geometric_mean"] <= one["high_95"]
    assert f"{mean_ratio(one):.3f}" == ratio_row(one)[2]


def test_a_median_may_lie_outside_and_is_not_what_is_printed() -> None:
    pairs = [1.0, 1.0, 1.0, *[4.0] * 2]
    cells = [cell(arm, at, value) for at, pair in enumerate(pairs * 4) for arm, value in (("a", 1.0), ("b", pair))]
    one = throughput(cells, "a", "b")[0].to_json()

    assert one["median"] < one["low_95"]
    assert ratio_row(one)[2] == "1.741"


def test_equal_ratios_leave_no_doubt_and_scattered_ones_do() -> None:
    assert interval_95([1.5, 1.5, 1.5]) == pytest.approx((1.5, 1.5))
    low, high = interval_95([0.9, 1.0, 1.1])
    assert low is not None
    assert high is not None
    assert low < 0.9 < 1.1 < high


def test_the_interval_holds_the_true_ratio_nineteen_times_of_twenty() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    held = 0
    for _ in range(4000):
        low, high = interval_95([math.exp(dice.gauss(math.log(1.2), 0.05)) for _ in range(5)])
        assert low is not None
        assert high is not None
        held += low <= 1.2 <= high

    assert 0.94 < held / 4000 < 0.96


def t_distribution_mass(upper: float, freedom: int) -> float:
    """Student's density from 0 to ``upper``, by Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    steps = 4000

    def terms() -> Iterator[float]:
        for step in range(steps + 1):
            weight = 1 if step in (0, steps) else 4 if step % 2 else 2
            yield weight * (1 + (upper * step / steps) ** 2 / freedom) ** (-(freedom + 1) / 2)

    return scale * sum(terms()) * upper / steps / 3


@pytest.mark.parametrize(("freedom", "t"), list(enumerate(ratios._T_975, start=1)))
def test_the_table_is_students(freedom: int, t: float) -> None:
    assert t_distribution_mass(t, freedom) == pytest.approx(0.475, abs=4e-5)

"""From seconds to verdicts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.runtime.bench.ratios import interval_95
from servespec.runtime.step_times_statistics import Gain, Verdict, gain, modes_of


def worker(*, graph: list[list[list[float]]], eager: list[list[list[float]]]) -> dict[str, Any]:
    """Steps are given by their parts, and the host takes as long as the first of them."""
    modes = [("FULL", 8, graph), ("NONE", 7, eager)]
    return {
        "modes": [
            {"mode": m, "padded_tokens": t, "drafter": [], "lead_seconds": 6.0, "repeats": with_host(r)}
            for m, t, r in modes
        ]
    }


def with_host(repeats: list[list[list[float]]]) -> list[list[list[float]]]:
    return [[[*step, step[0]] for step in steps] for steps in repeats]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.01, 1.2, "pays"), (0.8, 0.99, "does_not_pay"), (0.9, 1.1, "undecided"), (1.0, 1.2, "undecided")],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(low: float, high: float, verdict: str) -> None:
    assert Gain(ratio=1.0, low_95=low, high_95=high).verdict == Verdict(verdict)


def test_ratios_are_paired_by_their_turn() -> None:
    """A machine that slows down from turn to turn does not widen the interval."""
    found = gain([2.0, 4.0, 8.0], [1.0, 2.0, 4.0])

    assert found == Gain(ratio=2.0, low_95=pytest.approx(2.0), high_95=pytest.approx(2.0))
    assert gain([2.0, 4.0, 8.0], [4.0, 2.0, 1.0]) != found


def test_the_interval_is_that_of_a_bench() -> None:
    found = gain([1.5, 1.2, 1.1], [1.0, 1.0, 1.0])

    assert found is not None
    assert (found.low_95, found.high_95) == interval_95([1.5, 1.2, 1.1])
    assert found.ratio == pytest.approx((1.5 * 1.2 * 1.1) ** (1 / 3))


@given(st.lists(st.floats(1e-4, 1.0), min_size=2, max_size=20))
def test_a_ratio_lies_in_its_own_interval(eager: list[float]) -> None:
    found = gain(eager, [0.01] * len(eager))

    assert found is not None
    assert found.low_95 <= found.ratio <= found.high_95


def test_a_part_that_took_no_time_and_a_single_pair_have_no_ratio() -> None:
    assert gain([0.0, 0.0], [0.0, 0.0]) is None
    assert gain([1.0], [1.0]) is None


def test_a_repeat_is_the_mean_of_its_steps_and_a_step_the_sum_of_its_parts() -> None:
    (graph, eager) = modes_of([worker(graph=[[[1.0, 2.0, 3.0], [3.0, 2.0, 5.0]]], eager=[[[9.0, 0.5, 0.5]]])])

    assert (graph.mode, graph.padded_tokens, list(graph.step_seconds)) == ("FULL", 8, [8.0])
    assert graph.part_seconds == {"target": [2.0], "sampling": [2.0], "drafter": [4.0]}
    assert list(eager.step_seconds) == [10.0]
    assert (list(graph.host_seconds), graph.median_host_seconds) == ([2.0], 2.0)
    assert (list(eager.host_seconds), eager.median_host_seconds) == ([9.0], None)


def test_the_slowest_worker_counts_in_each_step_and_part() -> None:
    one = worker(graph=[[[1.0, 2.0, 3.0]], [[1.0, 1.0, 1.0]]], eager=[[[4.0, 0.0, 0.0]], [[4.0, 0.0, 0.0]]])
    other = worker(graph=[[[2.0, 1.0, 3.0]], [[1.0, 1.0, 2.0]]], eager=[[[4.0, 0.0, 0.0]], [[5.0, 0.0, 0.0]]])

    (graph, eager) = modes_of([one, other])

    assert list(graph.step_seconds) == [7.0, 4.0]
    assert list(eager.step_seconds) == [4.0, 5.0]


def test_the_spread_is_that_of_the_middle_half() -> None:
    (graph, _) = modes_of([worker(graph=[[[n, 0.0, 0.0]] for n in (1, 2, 3, 4, 100)], eager=[[[1.0, 0.0, 0.0]]] * 5)])

    assert (graph.median_seconds, graph.spread_seconds) == (3.0, 2.0)


def test_a_batch_that_was_not_timed_has_no_modes() -> None:
    assert modes_of([{"modes": []}]) == ()

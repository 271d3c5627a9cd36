"""What `predict` takes for client and API server: fitted on one bench, and judged on the others of two models."""

import math
from statistics import fmean, median

import measured_launches as measured
import pytest
from doc_pages.curves_page import served_tiers
from doc_pages.tiers_bench import FRONT_END_FROM, TiersBench, tiers_plan, traffic_of

from servespec.compiler.traffic_prediction import FITTED_ON, FRONT_END_SECONDS, predicted_traffic
from servespec.runtime.traffic_dice import new_dice
from tests.plans import REPOSITORY


def served_by(curve: str, bench: str) -> TiersBench:
    folder = measured.MEASUREMENTS
    return served_tiers(folder / f"2026-12-01-h200-steps-{curve}.json", f"2026-12-01-h200-bench-tiers-{bench}.json")


@pytest.mark.parametrize(
    ("curve", "bench"),
    [
        ("30b-a3b-fp8-2", "30b-a3b-fp8-2"),
        ("30b-a3b-fp8-2", "30b-a3b-fp8"),
        ("8b-fp8", "8b-fp8"),
        ("8b-fp8-2", "8b-fp8-3"),
    ],
)
def test_it_more_than_halves_the_error_of_benches_that_it_was_not_fitted_on(curve: str, bench: str) -> None:
    found = served_by(curve, bench)

    assert found.file not in FITTED_ON
    assert found.played["front_end_seconds"] == FRONT_END_SECONDS
    assert found.median_speed_error(found.played) < found.median_speed_error(found.played_at_once) / 2


def test_it_is_what_errs_least_on_the_bench_that_it_was_fitted_on() -> None:
    found = served_by("8b-fp8-2", "8b-fp8-2")
    assert FITTED_ON.endswith(found.file)
    curve = measured.MEASUREMENTS / "2026-12-01-h200-steps-8b-fp8-2.json"
    plan, traffic = tiers_plan(REPOSITORY / "examples", found.bench, curve), traffic_of(found.bench)

    def error(front_end_seconds: float) -> float:
        played = predicted_traffic(plan, traffic, new_dice, front_end_seconds=front_end_seconds)
        logs = [math.log1p(one) for load, one in found.speed_errors(played) if load >= FRONT_END_FROM]
        return fmean(log * log for log in logs)

    near = [FRONT_END_SECONDS + tenths / 10_000 for tenths in (-4, -2, 0, 2, 4)]
    assert min(near, key=error) == FRONT_END_SECONDS


def test_what_the_front_end_of_a_slower_day_takes() -> None:
    """The same models, curve and traffic as those that were fitted on, on another day."""
    fitted, later = (served_by("8b-fp8-2", f"8b-fp8-{number}") for number in (2, 3))
    pairs = [*((fitted.fixed[k], later.fixed[k]) for k in later.fixed), (fitted.tiers, later.tiers)]
    slower = [
        1 - median(later.served(theirs, load)) / median(fitted.served(ours, load))
        for ours, theirs in pairs
        for load in later.loads
    ]
    plan = tiers_plan(
        REPOSITORY / "examples", later.bench, measured.MEASUREMENTS / "2026-12-01-h200-steps-8b-fp8-2.json"
    )
    by_hand = predicted_traffic(plan, traffic_of(later.bench), new_dice, front_end_seconds=0.002)
    text = (REPOSITORY / "docs/guide/following-the-load.md").read_text(encoding="utf-8")

    assert f"served up to {max(slower):.0%} less" in text
    assert "gains were off by {:.0%} steady and {:.0%} played".format(*later.median_errors()) in text
    off = [later.median_speed_error(played) for played in (later.played, by_hand)]
    assert "tokens per second by {:.0%}, and by {:.0%} with `--front-end-ms 2`".format(*off) in text

"""Paired ratios of two arms, and what interval they leave.

Each round gives one ratio a load, of cells that ran minutes apart.  What is reported is their geometric mean with
Student's interval of it, both made from logarithms, so that the ratio never lies outside.  The interval holds where
logarithms are roughly normal, and is wide where rounds are few; a median would need six pairs for one of its own.
Side by side all rounds are of one launch of each arm, and no interval holds how far two launches of the same differ.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median, stdev
from typing import Any, Final

_T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 0.975 for 1 to 30 degrees of freedom; the last stands for all above, a little too wide."""

RATIO_METRICS: Final = ("output_tokens_per_second", "mean_tpot_ms", "median_ttft_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """``arm`` over ``over`` at one load; the interval is that of the mean, None where one pair is all there is."""

    metric: str
    arm: str
    over: str
    concurrency: int
    ratios: tuple[float, ...]
    geometric_mean: float
    median: float
    low_95: float | None
    high_95: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "arm": self.arm,
            "over": self.over,
            "concurrency": self.concurrency,
            "ratios": [_rounded(one) for one in self.ratios],
            "geometric_mean": _rounded(self.geometric_mean),
            "median": _rounded(self.median),
            "low_95": None if self.low_95 is None else _rounded(self.low_95),
            "high_95": None if self.high_95 is None else _rounded(self.high_95),
        }


def paired_ratios(arms: Sequence[str], cells: Sequence[dict[str, Any]]) -> Iterator[PairedRatio]:
    """Every arm over every arm named before it, at each load, from the rounds in which both completed all requests."""
    by_key = {(cell["arm"], cell["concurrency"], cell["round"]): cell for cell in cells if is_whole(cell)}
    loads = sorted({cell["concurrency"] for cell in cells})
    rounds = sorted({cell["round"] for cell in cells})
    for metric in RATIO_METRICS:
        for over, arm in combinations(arms, 2):
            for load in loads:
                pairs = [(by_key.get((arm, load, one)), by_key.get((over, load, one))) for one in rounds]
                both = [(mine[metric], its[metric]) for mine, its in pairs if mine and its]
                ratios = tuple(mine / its for mine, its in both if mine and its)
                if ratios:
                    yield _paired(metric, arm, over, load, ratios)


def is_whole(cell: dict[str, Any]) -> bool:
    """Whether every request of a cell was completed."""
    return bool(cell["completed"] == cell["prompts"])


def _paired(metric: str, arm: str, over: str, concurrency: int, ratios: tuple[float, ...]) -> PairedRatio:
    low, high = interval_95(ratios)
    return PairedRatio(
        metric=metric,
        arm=arm,
        over=over,
        concurrency=concurrency,
        ratios=ratios,
        geometric_mean=geometric_mean(ratios),
        median=median(ratios),
        low_95=low,
        high_95=high,
    )


def geometric_mean(ratios: Sequence[float]) -> float:
    """By the same steps as its interval, within which it lies to the last digit."""
    return math.exp(fmean(math.log(one) for one in ratios))


def interval_95(ratios: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """The interval of the geometric mean."""
    if len(ratios) < 2:
        return None, None
    logs = [math.log(one) for one in ratios]
    t = _T_975[min(len(logs) - 1, len(_T_975)) - 1]
    half = t * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)


def _rounded(ratio: float) -> float:
    return round(ratio, 4)

"""From the seconds of single steps to what a graph gains: medians, means of paired ratios with intervals, verdicts.

A step is done when its slowest worker is, so each step counts with the longest time that any worker took, part by part.
A repeat counts with the mean of its steps, and is paired with the eager repeat of the same turn.
A worker's file has of each step the seconds of its parts, and then those of the host.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median, quantiles
from typing import Any, Final

from servespec.compiler.curves import step_times
from servespec.runtime.bench.ratios import geometric_mean, interval_95
from servespec.runtime.extension.graph_choice import NONE

Json = dict[str, Any]

PARTS: Final = ("target", "sampling", "drafter")
"""Of a step, in the order of a worker's file."""


class Verdict(StrEnum):
    """Of a graph at one size, by the interval of eager over graph."""

    PAYS = step_times.PAYS
    DOES_NOT_PAY = "does_not_pay"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeTimes:
    """One mode at one size; each sequence has a number for each repeat.

    ``lead_seconds`` is the shortest for which any worker's device was kept busy before a step.
    """

    mode: str
    padded_tokens: int
    lead_seconds: float
    step_seconds: Sequence[float]
    part_seconds: Mapping[str, Sequence[float]]
    host_seconds: Sequence[float]

    @property
    def median_seconds(self) -> float:
        return median(self.step_seconds)

    @property
    def spread_seconds(self) -> float:
        """Between the first and the third quartile."""
        low, _, high = quantiles(self.step_seconds, n=4, method="inclusive")
        return high - low

    @property
    def median_host_seconds(self) -> float | None:
        """None where the host was no step ahead of the device, so that its time is in the step's parts."""
        host = median(self.host_seconds)
        return host if host < self.lead_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Eager over graph: the geometric mean of the paired ratios, and its interval."""

    ratio: float
    low_95: float
    high_95: float

    @property
    def verdict(self) -> Verdict:
        if self.low_95 > 1:
            return Verdict.PAYS
        return Verdict.DOES_NOT_PAY if self.high_95 < 1 else Verdict.UNDECIDED


def gain(eager_seconds: Sequence[float], graph_seconds: Sequence[float]) -> Gain | None:
    """None where a part took no time, as where nothing is drafted, or where there is one pair alone."""
    if min((*eager_seconds, *graph_seconds), default=0) <= 0:
        return None
    ratios = [eager / graph for eager, graph in zip(eager_seconds, graph_seconds, strict=True)]
    low, high = interval_95(ratios)
    return None if low is None or high is None else Gain(ratio=geometric_mean(ratios), low_95=low, high_95=high)


def modes_of(batches: Sequence[Json]) -> tuple[ModeTimes, ...]:
    """The modes of one batch, from what each worker timed; of several, eager is the last."""
    modes = tuple(_mode_of(of_workers) for of_workers in zip(*(batch["modes"] for batch in batches), strict=True))
    assert len(modes) < 2 or modes[-1].mode == NONE
    return modes


def _mode_of(of_workers: Sequence[Json]) -> ModeTimes:
    repeats = [list(_slowest(runs)) for runs in zip(*(mode["repeats"] for mode in of_workers), strict=True)]
    return ModeTimes(
        mode=of_workers[0]["mode"],
        padded_tokens=of_workers[0]["padded_tokens"],
        lead_seconds=min(mode["lead_seconds"] for mode in of_workers),
        step_seconds=[fmean(sum(step[:_HOST]) for step in steps) for steps in repeats],
        part_seconds={part: _means(repeats, place) for place, part in enumerate(PARTS)},
        host_seconds=_means(repeats, _HOST),
    )


_HOST: Final = len(PARTS)


def _means(repeats: Sequence[Sequence[Sequence[float]]], place: int) -> list[float]:
    return [fmean(step[place] for step in steps) for steps in repeats]


def _slowest(runs: Iterable[Sequence[Sequence[float]]]) -> Iterator[list[float]]:
    """The steps of one repeat, from the runs of all workers."""
    for of_workers in zip(*runs, strict=True):
        yield [max(of_part) for of_part in zip(*of_workers, strict=True)]

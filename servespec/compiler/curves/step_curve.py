"""Seconds of a step by its size, from sizes that were timed.

A larger step is taken to be no faster: where times fall with the size, which is noise, they are pooled (isotonic
regression of their logarithms).  Between two timed sizes seconds follow a power law, so that their elasticity, the
share by which a step grows for each share of more rows, is one number there.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPoint:
    """One timed size: requests of a decode, or tokens of a step with prompts.

    ``noise`` is the half width of the 95 % interval of its median, as a share of it.
    """

    size: int
    seconds: float
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCurve:
    """At least one point, ascending by size; ``log_seconds`` are fitted and never fall."""

    sizes: tuple[int, ...]
    log_seconds: tuple[float, ...]
    noises: tuple[float, ...]

    @property
    def first(self) -> int:
        return self.sizes[0]

    @property
    def last(self) -> int:
        return self.sizes[-1]

    def seconds_at(self, size: int) -> float:
        """Raises ValueError outside of the timed sizes: what was not measured is not guessed."""
        if not self.first <= size <= self.last:
            raise ValueError(f"{size} lies outside of {self.first} to {self.last}")
        at = self._segment(size)
        return math.exp(self.log_seconds[at] + self._slope(at) * math.log(size / self.sizes[at]))

    def elasticity_at(self, size: int) -> float:
        """Of the rows that follow ``size``; at the last size of those before it."""
        return self._slope(self._segment(size))

    def noise_at(self, size: int) -> float:
        """The larger one of the two timed neighbours."""
        at = self._segment(size)
        return max(self.noises[at : at + 2])

    def _segment(self, size: int) -> int:
        return min(max(bisect_right(self.sizes, size) - 1, 0), max(len(self.sizes) - 2, 0))

    def _slope(self, at: int) -> float:
        if len(self.sizes) == 1:
            return 0.0
        (before, after), (low, high) = self.sizes[at : at + 2], self.log_seconds[at : at + 2]
        return (high - low) / math.log(after / before)


def step_curve(points: Iterable[TimedPoint]) -> StepCurve | None:
    """None without a point.  Of a size that was timed more than once the mean of the logarithms counts."""
    by_size: dict[int, list[TimedPoint]] = {}
    for point in points:
        by_size.setdefault(point.size, []).append(point)
    if not by_size:
        return None
    ordered = sorted(by_size.items())
    logs = [math.fsum(math.log(one.seconds) for one in ones) / len(ones) for _, ones in ordered]
    return StepCurve(
        sizes=tuple(size for size, _ in ordered),
        log_seconds=tuple(_never_falling(logs)),
        noises=tuple(max(one.noise for one in ones) for _, ones in ordered),
    )


def _never_falling(values: Sequence[float]) -> Iterator[float]:
    """The closest sequence that never falls: neighbours that do are replaced by their mean."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            before, others = blocks.pop()
            mean, count = (mean * count + before * others) / (count + others), count + others
        blocks.append((mean, count))
    for mean, count in blocks:
        yield from [mean] * count


def plus(one: StepCurve, other: StepCurve) -> StepCurve:
    """The sum of both, at the sizes of ``one`` that ``other`` reaches."""
    points = (
        TimedPoint(
            size=size,
            seconds=one.seconds_at(size) + other.seconds_at(size),
            noise=max(one.noise_at(size), other.noise_at(size)),
        )
        for size in one.sizes
        if other.first <= size <= other.last
    )
    return step_curve(points) or one

"""Capture sizes from a measured curve: a graph wherever padding to the next size would cost more than a share epsilon.

Padding a batch of n by d rows costs about e(n) * d / n of its step, e being the elasticity of the curve, so that
sizes lie 2 * epsilon * n / e(n) apart for a mean cost of epsilon; strides are rounded down to a power of two.
The default grids are the same rule with a fitted envelope in place of a curve.
Source: vLLM pull request "separate prefill/decode graph sizes", Appendix A.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from servespec.compiler.curves.step_curve import StepCurve
from servespec.compiler.graphs.grid import floor_to_power_of_two, ladder, next_multiple


@dataclass(frozen=True, slots=True)
class MeasuredGrid:
    """``padded_row_cost`` is what a padded row costs of a real one: 1 where padding is computed like any row."""

    curve: StepCurve
    epsilon: float
    padded_row_cost: float = 1.0

    def sizes(self, cap: int) -> tuple[int, ...]:
        """From 1 to ``cap``, which the curve must reach; every power of two is among them."""
        return tuple(ladder(cap, lambda size: self._stride(size, cap)))

    def _stride(self, size: int, cap: int) -> int:
        """By the elasticity at ``size``, halved while a step of the curve within it costs twice what that foresees."""
        elasticity = self.padded_row_cost * self.curve.elasticity_at(size)
        widest = 2 * self.epsilon * size / elasticity if elasticity > 0 else size
        stride = floor_to_power_of_two(min(size, widest))
        while stride > 1 and self._cost(size, min(next_multiple(size, stride), cap)) > 4 * self.epsilon:
            stride //= 2
        return stride

    def _cost(self, rows: int, padded: int) -> float:
        return padding_cost(rows, padded, self.curve, self.padded_row_cost)


@dataclass(frozen=True, slots=True)
class Padding:
    """Shares of a step's time that padding to the next size costs, over every size up to the last one alike."""

    mean: float
    worst: float
    worst_at: int


def padding_of(sizes: Sequence[int], curve: StepCurve, padded_row_cost: float = 1.0) -> Padding:
    """``sizes`` ascend; the curve must reach from 1 to the last of them."""
    costs = [
        padding_cost(rows, sizes[bisect_left(sizes, rows)], curve, padded_row_cost) for rows in range(1, sizes[-1] + 1)
    ]
    worst = max(range(len(costs)), key=costs.__getitem__)
    return Padding(mean=fmean(costs), worst=costs[worst], worst_at=worst + 1)


def padding_cost(rows: int, padded: int, curve: StepCurve, padded_row_cost: float) -> float:
    """The share by which a batch of ``rows`` takes longer as one of ``padded``."""
    return padded_row_cost * (curve.seconds_at(padded) / curve.seconds_at(rows) - 1)

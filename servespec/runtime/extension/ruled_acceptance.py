"""Estimates of what is accepted, where a rule accepts drafts: they are the rates of the rule.

The engine learns them from how sure the drafter is.  Under a rule that says nothing, and a drafter with dummy weights
is sure of nothing: hardly any draft would be verified, and none that is not can teach the estimate better.
Source: vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py: OnlineAcceptanceEstimator.
"""

from collections.abc import Iterator, Sequence
from math import log
from typing import Any, Final

_LEAST: Final = 1e-6
"""The odds of a rate of 0 or 1 are taken this near to it, as they are infinite."""


def log_odds_of(rates: Sequence[float]) -> Iterator[float]:
    """Of each draft to be accepted once those before it are; ``rates`` are of a draft with all before it."""
    before = 1.0
    for rate in rates:
        chance = min(max(rate / before if before else 0.0, _LEAST), 1 - _LEAST)
        yield log(chance / (1 - chance))
        before = rate


def estimate_by_rule(rates: Sequence[float], estimator_type: type) -> None:
    """Estimators that are made from now on start at ``rates`` and return there after whatever they learn."""
    odds = tuple(log_odds_of(rates))
    engines_init, engines_step = estimator_type.__init__, estimator_type.step  # type: ignore[misc, attr-defined]

    def follow_rule(estimator: Any) -> None:
        estimator.slope.fill_(0.0)
        for position, value in enumerate(odds):
            estimator.intercepts[position] = value

    def begin(estimator: Any, *given: Any, **named: Any) -> None:
        engines_init(estimator, *given, **named)
        follow_rule(estimator)

    def step(estimator: Any, *given: Any, **named: Any) -> None:
        engines_step(estimator, *given, **named)
        if estimator._steps_since_refit == 0:
            follow_rule(estimator)

    estimator_type.__init__, estimator_type.step = begin, step  # type: ignore[misc, attr-defined]

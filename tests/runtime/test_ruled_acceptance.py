"""What the engine's estimate of accepted drafts is where a rule accepts them."""

from math import exp
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.runtime.extension.ruled_acceptance import estimate_by_rule, log_odds_of
from servespec.runtime.extension.worker import _estimate_by_rule


class Tensor(list[float]):
    def fill_(self, value: float) -> None:
        self[:] = [value] * len(self)


class Estimator:
    """The engine's, as far as it is looked into: every third step it learns."""

    def __init__(self, num_speculative_steps: int) -> None:
        self.slope, self.intercepts = Tensor([0.5]), Tensor([-0.2] * num_speculative_steps)
        self._steps_since_refit = 0

    def step(self, learnt: float) -> None:
        self._steps_since_refit = (self._steps_since_refit + 1) % 3
        self.slope[0] += learnt
        self.intercepts[:] = [one + learnt for one in self.intercepts]


def chance(log_odds: float) -> float:
    return 1 / (1 + exp(-log_odds))


@pytest.fixture
def estimator_type() -> type:
    """A class of its own each time, as its methods are replaced."""
    return type("OnlineAcceptanceEstimator", (Estimator,), {"__init__": Estimator.__init__, "step": Estimator.step})


def test_an_estimate_is_the_rules_whatever_the_drafter_is_sure_of(estimator_type: type) -> None:
    estimate_by_rule([0.8, 0.6, 0.3], estimator_type)
    estimator: Any = estimator_type(3)

    assert estimator.slope == [0.0]
    assert [chance(one) for one in estimator.intercepts] == pytest.approx([0.8, 0.75, 0.5])


def test_what_is_learnt_is_put_back_when_the_engine_has_fitted_it(estimator_type: type) -> None:
    estimate_by_rule([0.5], estimator_type)
    estimator: Any = estimator_type(1)

    slopes = []
    for _ in range(6):
        estimator.step(0.125)
        slopes.append(estimator.slope[0])

    assert slopes == [0.125, 0.25, 0.0] * 2
    assert estimator.intercepts == [0.0]


@given(rates=st.lists(st.floats(0, 1), min_size=1, max_size=15).map(lambda rates: sorted(rates, reverse=True)))
def test_the_product_of_the_chances_is_the_rate_of_each_draft(rates: list[float]) -> None:
    product = 1.0
    for rate, odds in zip(rates, log_odds_of(rates), strict=True):
        product *= chance(odds)
        assert product == pytest.approx(rate, abs=2e-5)


def test_a_drafter_whose_drafts_are_checked_is_left_to_the_engine() -> None:
    """Nothing of the engine is imported then, which would fail here."""
    _estimate_by_rule(SimpleNamespace(rejection_sample_method="standard", synthetic_acceptance_rates=None))

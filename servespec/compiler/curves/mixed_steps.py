"""Seconds of a step with prompts in it, or with requests of several query lengths, from the parts of timed steps.

Mixed steps are timed with a few decodes and with K drafts proposed.  One that is served has other requests and another
K: its target takes what as many tokens take, its sampling what as many decodes with their drafts take, draft step 0
follows the target's tokens, and each further draft is a step of one token a request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from servespec.compiler.curves.step_curve import StepCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedSteps:
    """``target`` and ``drafter`` are parts of mixed steps by tokens, the latter with ``drafts`` of ``requests``.

    ``sampling`` and ``drafting`` are parts of decodes by K and requests.  Without ``drafter`` nothing is drafted.
    """

    target: StepCurve
    drafter: StepCurve | None
    sampling: Mapping[int, StepCurve]
    drafting: Mapping[int, StepCurve]
    drafts: int
    requests: int

    @property
    def last(self) -> int:
        """The most tokens that were timed."""
        return self.target.last

    def seconds(self, tokens: int, requests: int, verified: int, proposed: int) -> float:
        """Of a step whose requests verify ``verified`` drafts each and propose ``proposed`` for the next one.

        Parts of sizes that were not timed are those of the nearest one that was; ``tokens`` above the last raise
        ValueError.
        """
        size = max(tokens, self.target.first)
        sampled = _at(self.sampling[_nearest(verified, self.sampling)], requests)
        return self.target.seconds_at(size) + sampled + self._drafting(size, requests, proposed)

    def _drafting(self, tokens: int, requests: int, proposed: int) -> float:
        if self.drafter is None:
            return 0.0
        step0 = _at(self.drafter, tokens) - max(self.drafts - 1, 0) * self._later_step(self.requests)
        return max(step0, 0.0) + max(proposed - 1, 0) * self._later_step(requests)

    def _later_step(self, requests: int) -> float:
        """One draft more for each request, from the fewest drafts that were timed to the most."""
        drafted = [k for k in self.drafting if k]
        fewest, most = min(drafted, default=0), max(drafted, default=0)
        if fewest == most:
            return 0.0
        grown = _at(self.drafting[most], requests) - _at(self.drafting[fewest], requests)
        return max(grown, 0.0) / (most - fewest)


def _at(curve: StepCurve, size: int) -> float:
    return curve.seconds_at(min(max(size, curve.first), curve.last))


def _nearest(k: int, timed: Iterable[int]) -> int:
    return min(timed, key=lambda one: (abs(one - k), one))

"""Tiers of dynamic speculation from measured steps: for each batch size the K that serves the most tokens a second.

A batch of n requests with K drafts each serves ``n * tokens_per_step(K) / seconds(n, K)``.  Tiers are the fewest ranges
in which each K stays within a tolerance of the best one at every size; of equally few, those that lose the least.
The tolerance is widened by the noise of the two that are compared, so that noise alone makes no tier.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from servespec.compiler.curves.step_curve import StepCurve
from servespec.compiler.graphs.tiers import Tier, tier_of
from servespec.units import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One K: how many tokens a request gains in a step, and the seconds of steps by their requests."""

    num_speculative_tokens: int
    tokens_per_step: float
    steps: StepCurve

    def tokens_per_second(self, requests: int) -> float:
        """Of the whole batch."""
        return requests * self.tokens_per_step / self.steps.seconds_at(requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Tokens per second of one batch size, by K; ``without`` is of a server that never drafts, None if not timed."""

    requests: int
    num_speculative_tokens: int
    tokens_per_second: Mapping[int, float]
    without: float | None

    @property
    def chosen(self) -> float:
        return self.tokens_per_second[self.num_speculative_tokens]


def best_tiers(candidates: Sequence[Candidate], max_num_seqs: Requests, tolerance: float) -> tuple[Tier, ...]:
    """The fewest tiers for 1 to ``max_num_seqs`` requests; every curve must reach both.

    Of each size the cheapest way to end there with each K is kept, cheapest by tiers first and by loss second.
    """
    ways = {at: _Way(0, 0.0, ()) for at in range(len(candidates))}
    for requests in range(1, max_num_seqs + 1):
        losses = _losses(candidates, requests, tolerance)
        best = min(ways.values(), key=_cost)
        ways = {at: _stepped(ways.get(at), best, at, loss, requests) for at, loss in losses.items()}
    return tuple(_tiers_of(min(ways.values(), key=_cost), candidates, max_num_seqs))


@dataclass(frozen=True, slots=True)
class _Way:
    """``starts`` has the first size of each tier with its candidate."""

    tiers: int
    loss: float
    starts: tuple[tuple[int, int], ...]


def _cost(way: _Way) -> tuple[int, float]:
    return way.tiers, way.loss


def _losses(candidates: Sequence[Candidate], requests: int, tolerance: float) -> dict[int, float]:
    """Of each candidate that is good enough, the logarithm of best over its own tokens per second."""
    rates = [one.tokens_per_second(requests) for one in candidates]
    best = max(range(len(rates)), key=rates.__getitem__)
    noise = candidates[best].steps.noise_at(requests)
    allowed = {
        at: math.log1p(tolerance) + math.hypot(noise, one.steps.noise_at(requests)) for at, one in enumerate(candidates)
    }
    losses = {at: math.log(rates[best] / rate) for at, rate in enumerate(rates)}
    return {at: loss for at, loss in losses.items() if at == best or loss <= allowed[at]}


def _stepped(way: _Way | None, best: _Way, at: int, loss: float, requests: int) -> _Way:
    """One size further with candidate ``at``: its tier goes on, or a tier starts here."""
    started = _Way(best.tiers + 1, best.loss + loss, (*best.starts, (requests, at)))
    if way is None or not way.starts:
        return started
    gone_on = _Way(way.tiers, way.loss + loss, way.starts)
    return min(gone_on, started, key=_cost)


def _tiers_of(way: _Way, candidates: Sequence[Candidate], max_num_seqs: Requests) -> Iterator[Tier]:
    ends = [start - 1 for start, _ in way.starts[1:]]
    for (start, at), end in zip(way.starts, [*ends, max_num_seqs], strict=True):
        yield Tier(Requests(start), Requests(end), candidates[at].num_speculative_tokens)


def predictions(
    candidates: Sequence[Candidate], tiers: Sequence[Tier], without: StepCurve | None
) -> Iterator[Prediction]:
    """At every size that was timed within the tiers, and at both ends of each tier."""
    last = tiers[-1].to_requests
    sizes = {size for one in candidates for size in one.steps.sizes if size <= last}
    edges = {edge for tier in tiers for edge in (tier.from_requests, tier.to_requests)}
    for requests in sorted(sizes | edges):
        tier = tier_of(tiers, requests)
        assert tier is not None
        timed = without is not None and without.first <= requests <= without.last
        yield Prediction(
            requests=requests,
            num_speculative_tokens=tier.num_speculative_tokens,
            tokens_per_second={one.num_speculative_tokens: one.tokens_per_second(requests) for one in candidates},
            without=requests / without.seconds_at(requests) if timed and without is not None else None,
        )


def gain_range(rows: Sequence[Prediction], num_speculative_tokens: int) -> tuple[float, float]:
    """The smallest and the largest gain of the tiers over a fixed K."""
    gains = [row.chosen / row.tokens_per_second[num_speculative_tokens] for row in rows]
    return min(gains), max(gains)


def gain_range_over_none(rows: Sequence[Prediction]) -> tuple[float, float] | None:
    """The same over a server that never drafts, where that was timed; None where it was at no size."""
    gains = [row.chosen / row.without for row in rows if row.without is not None]
    return (min(gains), max(gains)) if gains else None

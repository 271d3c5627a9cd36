"""Dynamic speculation: which K a batch of n requests drafts.

The engine turns its schedule into a dense lookup by batch size; gaps and the tail carry the K before them on, and
no K exceeds ``num_speculative_tokens``.
Source: vllm/v1/spec_decode/dynamic/utils.py: build_dynamic_sd_schedule_lookup.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from servespec.units import Requests, TokensPerRequest


@dataclass(frozen=True, slots=True)
class Tier:
    """Batches of ``from_requests`` to ``to_requests`` draft ``num_speculative_tokens`` each."""

    from_requests: Requests
    to_requests: Requests
    num_speculative_tokens: int

    @property
    def query_len(self) -> TokensPerRequest:
        return TokensPerRequest(1 + self.num_speculative_tokens)


def tiers_up_to(
    schedule: Sequence[tuple[int, int, int]], max_num_seqs: Requests, num_speculative_tokens: int
) -> tuple[Tier, ...]:
    """The tiers that batches of 1 to ``max_num_seqs`` requests meet, joined where K stays the same.

    ``schedule`` holds inclusive (first, last, K) ranges that start at 1 and do not overlap.
    """
    tiers: list[Tier] = []
    ordered = sorted(schedule)
    starts = [start for start, _, _ in ordered[1:]]
    for (start, _, k), next_start in zip(ordered, [*starts, max_num_seqs + 1], strict=True):
        end = min(next_start - 1, max_num_seqs)
        if start <= end:
            _append(tiers, Tier(Requests(start), Requests(end), min(k, num_speculative_tokens)))
    return tuple(tiers)


def _append(tiers: list[Tier], tier: Tier) -> None:
    last = tiers[-1] if tiers else None
    if last and last.num_speculative_tokens == tier.num_speculative_tokens:
        tiers[-1] = Tier(last.from_requests, tier.to_requests, tier.num_speculative_tokens)
    else:
        tiers.append(tier)


def tier_of(tiers: Sequence[Tier], requests: int) -> Tier | None:
    """The one that a batch of ``requests`` is in."""
    return next((one for one in tiers if one.from_requests <= requests <= one.to_requests), None)


def widest_batch_by_query_len(tiers: Sequence[Tier]) -> dict[TokensPerRequest, Requests]:
    """For each query length the largest batch that runs at it."""
    widest: dict[TokensPerRequest, Requests] = {}
    for tier in tiers:
        widest[tier.query_len] = max(tier.to_requests, widest.get(tier.query_len, tier.to_requests))
    return widest

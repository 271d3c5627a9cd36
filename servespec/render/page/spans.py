"""Coverage as spans of batch sizes, decode and prefill alike: what a chart draws and the table beside it lists."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

PREFILL = ("target", "prefill")
_NAMES = {
    ("target", "uniform_decode"): "Decode steps of the target",
    ("target", "adaptive_verification"): "Decode steps of the target, verified adaptively",
    ("drafter", "step0_uniform"): "First step of the drafter",
    ("drafter", "step0_piecewise"): "First step of the drafter after chosen drafts",
    ("drafter", "later_steps"): "Later steps of the drafter",
    ("drafter", "block"): "Block steps of the drafter",
    ("drafter", "block_piecewise"): "Block steps of the drafter after chosen drafts",
    PREFILL: "Steps with a prefill",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Batches of ``first`` to ``last`` that run the same way from the same graph; sizes in the group's unit.

    ``query_len`` is tokens per unit, 1 where the unit is tokens; ``graph_tokens`` is None without a graph.
    """

    first: int
    last: int
    query_len: int
    num_speculative_tokens: int | None
    mode: str
    graph_tokens: int | None
    graph_requests: int | None

    def batch_tokens(self, size: int) -> int:
        """Tokens of a batch of ``size``; never more than its graph takes, which adaptive verification sees to."""
        tokens = size * self.query_len
        return tokens if self.graph_tokens is None else min(tokens, self.graph_tokens)

    @property
    def most_padding_tokens(self) -> int | None:
        """Of the smallest batch."""
        return None if self.graph_tokens is None else self.graph_tokens - self.batch_tokens(self.first)


@dataclass(frozen=True, slots=True)
class Group:
    """The steps of one routine, or those with a prefill."""

    runner: str
    routine: str

    @property
    def name(self) -> str:
        return _NAMES[self.runner, self.routine]

    @property
    def unit(self) -> str:
        return "tokens" if self == Group(*PREFILL) else "requests"

    @property
    def is_target_decode(self) -> bool:
        return self.runner == "target" and self.unit == "requests"

    def spans(self, graphs: Json) -> tuple[Span, ...]:
        """Of a plan, or of its `stock`."""
        coverage = graphs["coverage"]
        if self.unit == "tokens":
            return tuple(map(_prefill_span, coverage["prefill"]))
        return tuple(
            _decode_span(one)
            for one in coverage["decode"]
            if (one["runner"], one["routine"]) == (self.runner, self.routine)
        )


def groups_of(*all_graphs: Json) -> Iterator[Group]:
    """Those that a plan or its `stock` covers."""
    for runner, routine in _NAMES:
        group = Group(runner, routine)
        if any(group.spans(graphs) for graphs in all_graphs):
            yield group


def _decode_span(covered: Json) -> Span:
    return Span(
        first=covered["from_requests"],
        last=covered["to_requests"],
        query_len=covered["query_len"],
        num_speculative_tokens=covered["num_speculative_tokens"],
        mode=covered["mode"],
        graph_tokens=covered["padded_to_tokens"],
        graph_requests=covered["padded_to_requests"],
    )


def _prefill_span(covered: Json) -> Span:
    return Span(
        first=covered["from_tokens"],
        last=covered["to_tokens"],
        query_len=1,
        num_speculative_tokens=None,
        mode=covered["mode"],
        graph_tokens=covered["padded_to_tokens"],
        graph_requests=None,
    )


@dataclass(frozen=True, slots=True)
class Tier:
    """Loads that draft the same: from ``first`` to ``last`` requests."""

    first: int
    last: int
    num_speculative_tokens: int
    query_len: int
    modes: tuple[str, ...]

    @property
    def most_tokens(self) -> int:
        """Of a step in which every request verifies all its drafts."""
        return self.last * self.query_len


def tiers_of(spans: Sequence[Span]) -> tuple[Tier, ...]:
    """From the spans of the target's decode steps."""
    tiers: list[Tier] = []
    for span in spans:
        k = span.num_speculative_tokens
        assert k is not None
        if tiers and tiers[-1].num_speculative_tokens == k:
            modes = tuple(dict.fromkeys((*tiers[-1].modes, span.mode)))
            tiers[-1] = Tier(tiers[-1].first, span.last, k, span.query_len, modes)
        else:
            tiers.append(Tier(span.first, span.last, k, span.query_len, (span.mode,)))
    return tuple(tiers)

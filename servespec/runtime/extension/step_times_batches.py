"""Which batches are timed: uniform decodes by their requests, and steps with prompts by their tokens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.step_batches import Batch, Limits, mixed_batch

_DECODE_SIZES: Final = 12
_FEWEST_DECODE_SIZES: Final = 4
"""Of each query length, where there are several."""
_MIXED_SIZES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to time; sizes that are None are chosen from those captured.

    ``requests`` are numbers of decoding requests, ``tokens`` are those of a step with prompts, and each batch is run
    ``repeats`` times in each mode, or in the one that the engine serves it in alone (``served_only``).  ``drafts`` are
    the K of decodes; None stands for every query length that has graphs.
    """

    requests: tuple[int, ...] | None
    tokens: tuple[int, ...] | None
    repeats: int
    drafts: tuple[int, ...] | None = None
    served_only: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Wanted":
        requests, tokens, drafts = (
            None if given[name] is None else tuple(given[name]) for name in ("requests", "tokens", "drafts")
        )
        return cls(
            requests=requests,
            tokens=tokens,
            repeats=given["repeats"],
            drafts=drafts,
            served_only=given["served_only"],
        )


def timed_batches(shapes: Sequence[CapturedShape], limits: Limits, wanted: Wanted) -> tuple[Batch, ...]:
    """The batches to time, small ones first; what the engine does not take is among them, to be told."""
    target = [shape for shape in shapes if shape.is_target and not shape.active_loras and shape.ubatches == 1]
    return tuple(dict.fromkeys(chain(_decodes(target, limits, wanted), _mixed(target, limits, wanted))))


def _decodes(target: Sequence[CapturedShape], limits: Limits, wanted: Wanted) -> Iterator[Batch]:
    query_lens = _query_lens(target, limits, wanted)
    count = max(_FEWEST_DECODE_SIZES, _DECODE_SIZES // len(query_lens))
    for query_len in query_lens:
        captured = thinned(_captured_requests(target, query_len, limits), count)
        for requests in captured if wanted.requests is None else sorted(set(wanted.requests)):
            yield Batch(decodes=(query_len,) * requests, next_drafts=min(query_len - 1, limits.drafts))


def _query_lens(target: Sequence[CapturedShape], limits: Limits, wanted: Wanted) -> list[int]:
    if wanted.drafts is not None:
        return sorted({1 + drafts for drafts in wanted.drafts})
    return sorted({shape.query_len for shape in target} - {0}) or [1 + limits.drafts]


def _captured_requests(target: Iterable[CapturedShape], query_len: int, limits: Limits) -> set[int]:
    """How many requests of a query length fill each decode graph, or each token size where no decode has its own."""
    every = list(target)
    own = {shape.requests for shape in every if shape.query_len == query_len}
    bounded = {shape.tokens // query_len for shape in every if shape.max_query_len and not shape.query_len}
    any_batch = {shape.tokens // query_len for shape in every if not shape.query_len and not shape.max_query_len}
    return {requests for requests in own or bounded or any_batch if 0 < requests <= limits.max_requests}


def _mixed(target: Iterable[CapturedShape], limits: Limits, wanted: Wanted) -> Iterator[Batch]:
    captured = {shape.tokens for shape in target if not shape.query_len and not shape.max_query_len}
    within = {tokens for tokens in captured if tokens <= limits.max_batched_tokens}
    for tokens in thinned(within, _MIXED_SIZES) if wanted.tokens is None else sorted(set(wanted.tokens)):
        yield mixed_batch(tokens, limits)


def thinned(sizes: Iterable[int], count: int) -> list[int]:
    """At most ``count`` of the sizes, the first and the last among them, at equal distances in their order."""
    every = sorted(set(sizes))
    if len(every) <= count:
        return every
    return [every[place * (len(every) - 1) // (count - 1)] for place in range(count)]

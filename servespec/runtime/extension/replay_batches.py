"""Which batches make an engine dispatch to each graph that it captured; nothing of the engine is needed to say so.

A uniform size is asked for with as many requests as it holds, and with one fewer where no other size is that wide.
A token size is asked for with a step of that many tokens, and with one fewer: some decodes beside prompts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, cycle, takewhile
from typing import Final, NamedTuple

from servespec.compiler.graphs.hand_off import DRAFTER_CLASSES, TARGET_CLASS
from servespec.compiler.graphs.managers import DrafterKind

_BLOCK_CLASS: Final = DRAFTER_CLASSES[DrafterKind.BLOCK]
_STEPPING_CLASS: Final = DRAFTER_CLASSES[DrafterKind.AUTOREGRESSIVE]
_MIXED_DECODES: Final = 3
_DECODE_STEPS: Final = 2
"""Two in a row, so that the second would read what the first left behind."""
_PROMPT_STRIDE: Final = 37
_PROMPT_SPREAD: Final = 96


class CapturedShape(NamedTuple):
    """One graph of a manager; 0 where a number does not apply."""

    manager: str
    manager_query_len: int
    mode: str
    tokens: int
    requests: int
    query_len: int
    max_query_len: int
    active_loras: int
    ubatches: int
    draft_steps: int

    @property
    def is_target(self) -> bool:
        return self.manager == TARGET_CLASS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the engine takes; ``drafts`` is K.

    A drafter may need ``block_tokens_per_request`` in a step of its own, or ``extra_tokens_per_request`` beside the
    target's.
    """

    max_requests: int
    max_batched_tokens: int
    max_model_len: int
    drafts: int
    block_tokens_per_request: int = 1
    extra_tokens_per_request: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step's requests: query lengths of those that decode, prompt tokens of those that start.

    ``next_drafts`` is how many tokens the drafter is asked for after the step.
    """

    decodes: tuple[int, ...] = ()
    prompts: tuple[int, ...] = ()
    next_drafts: int = 0

    @property
    def tokens(self) -> int:
        return sum(self.decodes) + sum(self.prompts)

    @property
    def requests(self) -> int:
        return len(self.decodes) + len(self.prompts)

    @property
    def steps(self) -> int:
        return 1 if self.prompts else _DECODE_STEPS


def batches_for(shapes: Sequence[CapturedShape], limits: Limits) -> tuple[Batch, ...]:
    """The batches to run, small ones first; each fits the limits."""
    own = [shape for shape in shapes if not shape.active_loras]
    found = dict.fromkeys(chain(_uniform(own, limits), _varlen(own, limits), _mixed(own, limits)))
    return tuple(batch for batch in found if _fits(batch, limits))


def _fits(batch: Batch, limits: Limits) -> bool:
    target = batch.tokens + batch.requests * limits.extra_tokens_per_request
    drafter = batch.requests * limits.block_tokens_per_request
    return batch.requests <= limits.max_requests and 0 < max(target, drafter) <= limits.max_batched_tokens


def _uniform(shapes: Iterable[CapturedShape], limits: Limits) -> Iterator[Batch]:
    sizes: dict[tuple[int, int], set[int]] = {}
    for shape in shapes:
        if shape.query_len:
            sizes.setdefault(_drafts(shape, limits), set()).add(shape.requests)
    for (drafts, next_drafts), requests in sorted(sizes.items()):
        for count in _exact_and_padded(requests):
            yield Batch(decodes=(1 + drafts,) * count, next_drafts=next_drafts)


def _drafts(shape: CapturedShape, limits: Limits) -> tuple[int, int]:
    """How many drafts each request brings to the step, and how many are asked for after it."""
    is_later = shape.manager == _STEPPING_CLASS and shape.manager_query_len == 1
    if not is_later and shape.manager != _BLOCK_CLASS:
        return shape.query_len - 1, shape.query_len - 1
    asked = shape.draft_steps or limits.drafts
    # A drafter's graph can hold more requests than one step of the target with all their drafts.
    fits = shape.requests * (1 + asked) <= limits.max_batched_tokens
    return (asked if fits else 0), asked


def _varlen(shapes: Iterable[CapturedShape], limits: Limits) -> Iterator[Batch]:
    """Decodes of any lengths up to a bound, that together are a size."""
    bounded = [shape for shape in shapes if shape.max_query_len and not shape.query_len]
    for tokens in _exact_and_padded({shape.tokens for shape in bounded}):
        lengths = _lengths(tokens, max(shape.max_query_len for shape in bounded), limits.max_requests)
        yield Batch(decodes=lengths, next_drafts=limits.drafts)


def _lengths(tokens: int, widest: int, max_requests: int) -> tuple[int, ...]:
    """Lengths up to ``widest`` that add up to ``tokens``, different ones where they are few enough."""
    for pattern in ((widest, 1, (1 + widest) // 2), (widest,)):
        taken = [length for length, total in _running(pattern, tokens) if total <= tokens]
        rest = tokens - sum(taken)
        lengths = (*taken, rest) if rest else tuple(taken)
        if len(lengths) <= max_requests:
            break
    return lengths


def _running(pattern: Sequence[int], tokens: int) -> Iterator[tuple[int, int]]:
    lengths = cycle(pattern)
    totals = takewhile(lambda total: total <= tokens, accumulate(cycle(pattern)))
    return zip(lengths, totals, strict=False)


def _mixed(shapes: Iterable[CapturedShape], limits: Limits) -> Iterator[Batch]:
    sizes = {shape.tokens for shape in shapes if not shape.query_len and not shape.max_query_len}
    for tokens in _exact_and_padded(sizes):
        yield _mixed_batch(tokens, limits)


def _mixed_batch(tokens: int, limits: Limits) -> Batch:
    """A few decodes with all their drafts, and prompts for the rest; a prompt alone where there is no room."""
    query_len = 1 + limits.drafts
    decodes = max(0, min(_MIXED_DECODES, limits.max_requests - 2, (tokens - 2) // query_len))
    prompts = _parts(tokens - decodes * query_len, limits.max_model_len - 2)
    return Batch(decodes=(query_len,) * decodes, prompts=prompts, next_drafts=limits.drafts)


def _parts(tokens: int, longest: int) -> tuple[int, ...]:
    """``tokens`` in as equal parts as they go, two at least where there are four."""
    count = max(-(-tokens // longest), 2 if tokens >= 4 else 1)
    return tuple(tokens // count + (part < tokens % count) for part in range(count))


def _exact_and_padded(sizes: set[int]) -> Iterator[int]:
    for size in sorted(sizes):
        if size > 1 and size - 1 not in sizes:
            yield size - 1
        yield size


def prompt_tokens(request: int, limits: Limits) -> int:
    """How long the prompt of a decoding request is: lengths differ within a batch, and all exceed a decode's."""
    shortest = 2 + limits.drafts
    in_model = limits.max_model_len - shortest - (2 * _DECODE_STEPS + 1) * (1 + limits.drafts)
    in_step = limits.max_batched_tokens - shortest - limits.extra_tokens_per_request
    return shortest + request * _PROMPT_STRIDE % max(1, min(_PROMPT_SPREAD, in_model, in_step))


def generated_tokens(limits: Limits) -> int:
    """The most tokens that one request can bring forth in all steps, the one after its prompt included."""
    return 1 + _DECODE_STEPS * (1 + limits.drafts)


def chosen_drafts(continuation: Sequence[int], emitted: int, count: int, wrong_from: int, vocabulary: int) -> list[int]:
    """Drafts of which the first ``wrong_from`` are what a greedy target says next; from there on they are wrong."""
    right = [*continuation[emitted : emitted + count], *[0] * count][:count]
    return [token if place < wrong_from else (token + 1) % vocabulary for place, token in enumerate(right)]

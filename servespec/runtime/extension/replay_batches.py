"""Which batches make an engine dispatch to each graph that it captured; nothing of the engine is needed to say so.

A uniform size is asked for with as many requests as it holds, and with one fewer where no other size is that wide.
A token size is asked for with a step of that many tokens, and with one fewer: some decodes beside prompts.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, cycle, takewhile
from typing import Final

from servespec.compiler.graphs.hand_off import DRAFTER_CLASSES
from servespec.compiler.graphs.managers import DrafterKind
from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.step_batches import Batch, Limits, is_within, mixed_batch

_BLOCK_CLASS: Final = DRAFTER_CLASSES[DrafterKind.BLOCK]
_STEPPING_CLASS: Final = DRAFTER_CLASSES[DrafterKind.AUTOREGRESSIVE]


def batches_for(shapes: Sequence[CapturedShape], limits: Limits) -> tuple[Batch, ...]:
    """The batches to run, small ones first; each fits the limits."""
    own = [shape for shape in shapes if not shape.active_loras]
    found = dict.fromkeys(chain(_uniform(own, limits), _varlen(own, limits), _mixed(own, limits)))
    return tuple(batch for batch in found if is_within(batch, limits))


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
        yield mixed_batch(tokens, limits)


def _exact_and_padded(sizes: set[int]) -> Iterator[int]:
    for size in sorted(sizes):
        if size > 1 and size - 1 not in sizes:
            yield size - 1
        yield size


def chosen_drafts(continuation: Sequence[int], emitted: int, count: int, wrong_from: int, vocabulary: int) -> list[int]:
    """Drafts of which the first ``wrong_from`` are what a greedy target says next; from there on they are wrong."""
    right = [*continuation[emitted : emitted + count], *[0] * count][:count]
    return [token if place < wrong_from else (token + 1) % vocabulary for place, token in enumerate(right)]

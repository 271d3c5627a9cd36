"""Steps made by hand: what an engine takes, the requests of one step, and how long their prompts are."""

from dataclasses import dataclass
from typing import Final

_MIXED_DECODES: Final = 3
DECODE_STEPS: Final = 2
"""Two in a row, so that the second would read what the first left behind."""
_PROMPT_STRIDE: Final = 37
_PROMPT_SPREAD: Final = 96


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
        return 1 if self.prompts else DECODE_STEPS


def is_within(batch: Batch, limits: Limits) -> bool:
    """Whether the engine takes a batch in one step, with what its drafter needs beside it."""
    target = batch.tokens + batch.requests * limits.extra_tokens_per_request
    drafter = batch.requests * limits.block_tokens_per_request
    return batch.requests <= limits.max_requests and 0 < max(target, drafter) <= limits.max_batched_tokens


def mixed_batch(tokens: int, limits: Limits) -> Batch:
    """A few decodes with all their drafts, and prompts for the rest; a prompt alone where there is no room."""
    query_len = 1 + limits.drafts
    decodes = max(0, min(_MIXED_DECODES, limits.max_requests - 2, (tokens - 2) // query_len))
    prompts = _parts(tokens - decodes * query_len, limits.max_model_len - 2)
    return Batch(decodes=(query_len,) * decodes, prompts=prompts, next_drafts=limits.drafts)


def _parts(tokens: int, longest: int) -> tuple[int, ...]:
    """``tokens`` in as equal parts as they go, two at least where there are four."""
    count = max(-(-tokens // longest), 2 if tokens >= 4 else 1)
    return tuple(tokens // count + (part < tokens % count) for part in range(count))


def prompt_tokens(request: int, limits: Limits) -> int:
    """How long the prompt of a decoding request is: lengths differ within a batch, and all exceed a decode's."""
    shortest = 2 + limits.drafts
    in_model = limits.max_model_len - shortest - (2 * DECODE_STEPS + 1) * (1 + limits.drafts)
    in_step = limits.max_batched_tokens - shortest - limits.extra_tokens_per_request
    return shortest + request * _PROMPT_STRIDE % max(1, min(_PROMPT_SPREAD, in_model, in_step))


def generated_tokens(limits: Limits) -> int:
    """The most tokens that one request can bring forth in all steps, the one after its prompt included."""
    return 1 + DECODE_STEPS * (1 + limits.drafts)

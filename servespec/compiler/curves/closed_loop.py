"""What a server with given step times serves to clients that send a request as soon as the last one is answered.

A curve says how long a steady batch takes.  Requests begin with a prompt and end: steps with prompts in them, and steps
of several query lengths at a tier's edge, run as mixed steps, and a batch is smaller while the last requests end.  So
steps are played one by one, as the engine's scheduler builds them: decodes first, then prompts in what is left of the
step's budget, in chunks; how many drafts a step proposes follows from the requests in it.
Source: vllm/v1/core/sched/scheduler.py: Scheduler.schedule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from servespec.compiler.curves.step_curve import StepCurve
from servespec.units import Requests, Tokens

DraftsOf = Callable[[Requests], int]
"""K of a step by the requests in it."""
Dice = Callable[[], float]
"""The next number of [0, 1), all alike: a draft is accepted where it lies below its chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """``clients`` requests are under way at a time, of ``requests`` in all; each has a prompt and an answer."""

    clients: Requests
    requests: Requests
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of decode steps by K and requests, and of mixed steps by tokens, at most ``budget_tokens`` of them."""

    decode: Mapping[int, StepCurve]
    mixed: StepCurve
    budget_tokens: Tokens

    def of_mixed(self, tokens: int) -> float:
        """A step of fewer tokens than were timed is taken to be no faster than the smallest that was."""
        return self.mixed.seconds_at(max(tokens, self.mixed.first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What came of it; steps are of uniform decodes, and of anything else."""

    tokens_per_second: float
    decode_steps: int
    mixed_steps: int


@dataclass(slots=True)
class _Request:
    prompt_left: int
    answer_left: int
    drafts: int = 0

    @property
    def is_decoding(self) -> bool:
        return self.prompt_left == 0


@dataclass(slots=True)
class _Loop:
    """A server at work."""

    traffic: Traffic
    times: StepTimes
    chances: Sequence[float]
    drafts_of: DraftsOf
    dice: Dice
    running: list[_Request]
    waiting: int
    seconds: float = 0.0
    decode_steps: int = 0
    mixed_steps: int = 0

    def step(self) -> None:
        """One step of everything that runs; what has ended makes room for the next requests."""
        self._admit()
        decoding = list(self._decoding())
        chunks = self._chunks(int(self.times.budget_tokens) - sum(1 + one.drafts for one in decoding))
        self._take_time(decoding, sum(chunks.values()))
        k = self.drafts_of(Requests(len(decoding) + len(chunks)))
        for one in decoding:
            one.answer_left -= 1 + self._accepted(one.drafts)
        for at, tokens in chunks.items():
            self.running[at].prompt_left -= tokens
            self.running[at].answer_left -= self.running[at].is_decoding
        scheduled = [*decoding, *(self.running[at] for at in chunks)]
        for one in scheduled:
            one.drafts = k if one.is_decoding else 0
        self.running = [one for one in self.running if one.answer_left > 0]

    def _admit(self) -> None:
        new = min(self.waiting, int(self.traffic.clients) - len(self.running))
        self.waiting -= new
        self.running += [_Request(self.traffic.input_tokens, self.traffic.output_tokens) for _ in range(new)]

    def _decoding(self) -> Iterator[_Request]:
        """Those of the step, in order; where all their drafts do not fit, the rest waits for a later one."""
        left_tokens = int(self.times.budget_tokens)
        for one in self.running:
            left_tokens -= 1 + one.drafts if one.is_decoding else 0
            if one.is_decoding and left_tokens >= 0:
                yield one

    def _chunks(self, left_tokens: int) -> dict[int, int]:
        """Prompt tokens of this step, by the place of their request."""
        chunks: dict[int, int] = {}
        for at, one in enumerate(self.running):
            tokens = min(one.prompt_left, left_tokens)
            if tokens > 0:
                chunks[at] = tokens
                left_tokens -= tokens
        return chunks

    def _take_time(self, decoding: Sequence[_Request], prompt_tokens: int) -> None:
        lengths = {one.drafts for one in decoding}
        if prompt_tokens or len(lengths) > 1:
            tokens = prompt_tokens + sum(1 + one.drafts for one in decoding)
            self.seconds += self.times.of_mixed(tokens)
            self.mixed_steps += 1
        else:
            (k,) = lengths
            self.seconds += self.times.decode[k].seconds_at(len(decoding))
            self.decode_steps += 1

    def _accepted(self, drafts: int) -> int:
        for position, chance in enumerate(self.chances[:drafts]):
            if self.dice() >= chance:
                return position
        return drafts


def served(
    traffic: Traffic, times: StepTimes, acceptance_rates: Sequence[float], drafts_of: DraftsOf, dice: Dice
) -> Served:
    """``acceptance_rates`` are unconditional, one for each position that ``drafts_of`` reaches.

    Raises ValueError where a step has more requests or tokens than were timed.
    """
    loop = _Loop(
        traffic=traffic,
        times=times,
        chances=conditional(acceptance_rates),
        drafts_of=drafts_of,
        dice=dice,
        running=[],
        waiting=int(traffic.requests),
    )
    while loop.running or loop.waiting:
        loop.step()
    tokens = int(traffic.requests) * traffic.output_tokens
    return Served(tokens_per_second=tokens / loop.seconds, decode_steps=loop.decode_steps, mixed_steps=loop.mixed_steps)


def conditional(rates: Sequence[float]) -> tuple[float, ...]:
    """The chance of each position where those before it were accepted."""
    before = (1.0, *rates)
    return tuple(rate / last if last else 0.0 for last, rate in zip(before, rates, strict=False))

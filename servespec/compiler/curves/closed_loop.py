"""What a server with given step times serves to clients that send a request as soon as the last one is answered.

A curve says how long a steady batch takes.  Requests begin with a prompt and end: steps with prompts in them, and steps
of several query lengths at a tier's edge, run as mixed steps, and a batch is smaller while the last requests end.  So
steps are played one by one, as the engine's scheduler builds them: decodes first, then prompts in what is left of the
step's budget, in chunks; how many drafts a step proposes follows from the requests in it.
Before that a request passes the front end, an event loop that takes turns among all that it has: those that are sent
together reach the engine together, when it is done with the last of them.
Source: vllm/v1/core/sched/scheduler.py: Scheduler.schedule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from servespec.compiler.curves.mixed_steps import MixedSteps
from servespec.compiler.curves.step_curve import StepCurve
from servespec.units import Requests, Tokens

DraftsOf = Callable[[Requests], int]
"""K of a step by the requests in it."""
Dice = Callable[[], float]
"""The next number of [0, 1), all alike: a draft is accepted where it lies below its chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """``clients`` requests are under way at a time, of ``requests`` in all; each has a prompt and an answer.

    Each takes ``front_end_seconds`` of the front end.
    """

    clients: Requests
    requests: Requests
    input_tokens: int
    output_tokens: int
    front_end_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of decode steps by K and requests, and of mixed steps, at most ``budget_tokens`` of them."""

    decode: Mapping[int, StepCurve]
    mixed: MixedSteps
    budget_tokens: Tokens


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
    """A server at work.

    The front end is done with ``passing`` requests when it is ``passed_at``, and then takes those ``sent`` meanwhile.
    """

    traffic: Traffic
    times: StepTimes
    chances: Sequence[float]
    drafts_of: DraftsOf
    dice: Dice
    running: list[_Request]
    waiting: int
    sent: int = 0
    passing: int = 0
    passed_at: float = 0.0
    seconds: float = 0.0
    decode_steps: int = 0
    mixed_steps: int = 0

    def step(self) -> None:
        """One step of everything that runs; what has ended makes room for the next requests."""
        self._admit()
        decoding = list(self._decoding())
        chunks = self._chunks(int(self.times.budget_tokens) - sum(drafts + 1 for _, drafts in decoding))
        k = self.drafts_of(Requests(len(decoding) + len(chunks)))
        self._take_time([drafts for _, drafts in decoding], chunks, k)
        for one, drafts in decoding:
            one.answer_left -= 1 + self._accepted(drafts)
        for at, tokens in chunks.items():
            self.running[at].prompt_left -= tokens
            self.running[at].answer_left -= self.running[at].is_decoding
        for one in (*(one for one, _ in decoding), *(self.running[at] for at in chunks)):
            one.drafts = k if one.is_decoding else 0
        self.running = [one for one in self.running if one.answer_left > 0]

    @property
    def is_done(self) -> bool:
        return not (self.running or self.passing or self.sent or self.waiting)

    def _admit(self) -> None:
        """Whoever was answered sends the next request; an engine without one waits for the front end."""
        self._let_through()
        under_way = len(self.running) + self.passing + self.sent
        new = min(self.waiting, int(self.traffic.clients) - under_way)
        self.waiting -= new
        self.sent += new
        if not self.passing:
            self._pass(self.seconds)
        if not self.running:
            self.seconds = max(self.seconds, self.passed_at)
        self._let_through()

    def _pass(self, at: float) -> None:
        self.passing, self.sent = self.sent, 0
        self.passed_at = at + self.passing * self.traffic.front_end_seconds

    def _let_through(self) -> None:
        while self.passing and self.passed_at <= self.seconds:
            self.running += [self._request() for _ in range(self.passing)]
            self._pass(self.passed_at)

    def _request(self) -> _Request:
        return _Request(self.traffic.input_tokens, self.traffic.output_tokens)

    def _decoding(self) -> Iterator[tuple[_Request, int]]:
        """Those of the step with the drafts that it verifies; the last one that fits verifies as many as fit."""
        left_tokens = int(self.times.budget_tokens)
        for one in self.running:
            if one.is_decoding and left_tokens > 0:
                drafts = min(one.drafts, left_tokens - 1)
                left_tokens -= 1 + drafts
                yield one, drafts

    def _chunks(self, left_tokens: int) -> dict[int, int]:
        """Prompt tokens of this step, by the place of their request."""
        chunks: dict[int, int] = {}
        for at, one in enumerate(self.running):
            tokens = min(one.prompt_left, left_tokens)
            if tokens > 0:
                chunks[at] = tokens
                left_tokens -= tokens
        return chunks

    def _take_time(self, verified: Sequence[int], chunks: Mapping[int, int], proposed: int) -> None:
        is_uniform = not chunks and len(set(verified)) == 1 and verified[0] in self.times.decode
        if not is_uniform:
            tokens = sum(chunks.values()) + len(verified) + sum(verified)
            requests = len(verified) + len(chunks)
            self.seconds += self.times.mixed.seconds(tokens, requests, max(verified, default=0), proposed)
            self.mixed_steps += 1
        else:
            self.seconds += self.times.decode[verified[0]].seconds_at(len(verified))
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
    while not loop.is_done:
        loop.step()
    tokens = int(traffic.requests) * traffic.output_tokens
    return Served(tokens_per_second=tokens / loop.seconds, decode_steps=loop.decode_steps, mixed_steps=loop.mixed_steps)


def conditional(rates: Sequence[float]) -> tuple[float, ...]:
    """The chance of each position where those before it were accepted."""
    before = (1.0, *rates)
    return tuple(rate / last if last else 0.0 for last, rate in zip(before, rates, strict=False))

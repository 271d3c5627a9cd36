"""Times one batch in each mode of graphs that the engine has for it, in turns.

Every run of a batch starts from the same KV lengths: its prompts stay in the KV cache, and its requests start anew on
them.  What comes before the timed steps runs without graphs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.graph_choice import CHOICES, NONE, GraphChoice, noted
from servespec.runtime.extension.step_batches import Batch
from servespec.runtime.extension.step_clock import StepClock, StepSeconds
from servespec.runtime.extension.step_engine import Json, StepEngine
from servespec.runtime.extension.step_requests import (
    Request,
    decoding_requests,
    resumed,
    starting_requests,
    step_output,
)

_NO_GRAPHS: Final = CHOICES[-1]
_DIGITS: Final = 7
"""Of seconds in a file: a tenth of a microsecond."""
_LEAD_OVER_HOST: Final = 1.5
"""Chosen: what the device is given to do before a step, over what the host took for it when it was run unmeasured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMode:
    """A mode that the target's step runs in, by what the engine is allowed; ``drafter`` is what its managers choose.

    ``repeats`` holds the consecutive steps of each run; before each step the device is kept busy for ``lead_seconds``.
    """

    mode: str
    allowed: frozenset[str]
    padded_tokens: int
    drafter: tuple[CapturedShape, ...]
    lead_seconds: float = 0.0
    repeats: list[tuple[StepSeconds, ...]] = field(default_factory=list)

    def to_json(self) -> Json:
        return {
            "mode": self.mode,
            "padded_tokens": self.padded_tokens,
            "drafter": [list(shape) for shape in self.drafter],
            "lead_seconds": round(self.lead_seconds, _DIGITS),
            "repeats": [[[round(part, _DIGITS) for part in step] for step in steps] for steps in self.repeats],
        }


@dataclass(frozen=True, slots=True)
class TimedEngine(StepEngine):
    """An engine under a clock, whose choice of graphs can be narrowed."""

    choice: GraphChoice
    clock: StepClock

    def times(self, batch: Batch, repeats: int, *, served_only: bool) -> tuple[TimedMode, ...]:
        """Each mode twice unmeasured, then all in turns, another first in each turn; none where there is no graph.

        With ``served_only`` the one that the engine would run, whether that has a graph or none.

        Raises TooFewBlocksError where the KV cache does not hold the batch.
        """
        decoding = decoding_requests(self.runner, len(batch.decodes), self.limits)
        starting_requests(self.runner, batch, decoding)  # refuses before any step
        with self.choice.only(_NO_GRAPHS):
            self.prefill(decoding, batch.next_drafts)
            self.finish([request.name for request in decoding])
        choices = CHOICES[:1] if served_only else CHOICES
        modes = tuple(distinct_modes({allowed: self._chosen(batch, decoding, allowed) for allowed in choices}))
        if len(modes) == 1 and not served_only:
            return ()
        modes = tuple(replace(mode, lead_seconds=self._lead(batch, decoding, mode.allowed)) for mode in modes)
        for number in range(repeats):
            for mode in rotated(modes, number):
                mode.repeats.append(self._run(batch, decoding, mode.allowed, lead_seconds=mode.lead_seconds))
        return modes

    def _lead(self, batch: Batch, decoding: Sequence[Request], allowed: frozenset[str]) -> float:
        """Long enough for the host to start all of a step; none where no server would be ahead of its device."""
        unmeasured = self._run(batch, decoding, allowed)
        return _LEAD_OVER_HOST * max(step.host_seconds for step in unmeasured) if self.clock.can_lead else 0.0

    def _chosen(self, batch: Batch, decoding: Sequence[Request], allowed: frozenset[str]) -> list[CapturedShape]:
        """What the engine's managers choose among what is allowed."""
        seen: list[CapturedShape] = []
        self._run(batch, decoding, allowed, noted(seen))
        return seen

    def _run(
        self,
        batch: Batch,
        decoding: Sequence[Request],
        allowed: frozenset[str],
        watch: AbstractContextManager[None] | None = None,
        lead_seconds: float = 0.0,
    ) -> tuple[StepSeconds, ...]:
        again = self._anew(decoding)
        starting = starting_requests(self.runner, batch, again)
        requests = {request.name: request for request in (*again, *starting)}
        lengths = dict(zip((request.name for request in again), batch.decodes, strict=True))
        with self.choice.only(_NO_GRAPHS):
            self.prefill(again, batch.next_drafts)
        with self.choice.only(allowed), watch or nullcontext():
            steps = tuple(
                self._step(step_output(starting, lengths, requests, batch.next_drafts), requests, lead_seconds)
                for _ in range(batch.steps)
            )
        self.finish(requests)
        return steps

    def _anew(self, decoding: Sequence[Request]) -> list[Request]:
        """On their prompts in the KV cache; or on none, as the state of a recurrent layer has moved on."""
        from vllm.v1.kv_cache_interface import AttentionSpec

        groups = self.runner.kv_cache_config.kv_cache_groups
        if all(isinstance(group.kv_cache_spec, AttentionSpec) for group in groups):
            return resumed(decoding)
        return decoding_requests(self.runner, len(decoding), self.limits)

    def _step(self, output: Any, requests: dict[str, Request], lead_seconds: float) -> StepSeconds:
        self.clock.start(lead_seconds)
        self.execute(output, requests)
        self.clock.target_done()
        sampled = self.worker.sample_tokens(None)
        seconds = self.clock.stop()
        self.take(sampled, output, requests)
        return seconds


def distinct_modes(chosen: Mapping[frozenset[str], Sequence[CapturedShape]]) -> Iterator[TimedMode]:
    """Those that differ for the target, the engine's own choice first.

    Eager is where no graph at all is allowed, if that is among the choices.
    """
    known = set[str]()
    for allowed, shapes in chosen.items():
        target = [shape for shape in shapes if shape.is_target][-1]
        if target.mode not in known and (target.mode != NONE or not allowed or _NO_GRAPHS not in chosen):
            known.add(target.mode)
            drafter = tuple(dict.fromkeys(shape for shape in shapes if not shape.is_target))
            yield TimedMode(mode=target.mode, allowed=allowed, padded_tokens=target.tokens, drafter=drafter)


def rotated(modes: Sequence[TimedMode], number: int) -> tuple[TimedMode, ...]:
    """Another one first in each turn, so that none always follows the same one's warmth."""
    first = number % len(modes)
    return (*modes[first:], *modes[:first])

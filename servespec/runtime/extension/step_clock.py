"""Times one step of an engine in parts: the target, what is sampled from it, the drafter.

On a GPU the marks are events of its stream, so that no part waits for the one before; on a CPU they are readings of a
clock.  The device has nothing to do when a step starts, so the first part holds the host's preparation too.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from servespec.runtime.extension.substitution import substitute


class StepSeconds(NamedTuple):
    """Their sum is the step; ``drafter_seconds`` is 0 where nothing is drafted."""

    target_seconds: float
    sampling_seconds: float
    drafter_seconds: float


class StepClock:
    """Marks in the step at hand."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self._start: Any = None
        self._target_done: Any = None
        self._drafter_starts: Any = None

    def start(self) -> None:
        self._wait()
        self._drafter_starts = None
        self._start = self._mark()

    def target_done(self) -> None:
        self._target_done = self._mark()

    def drafter_starts(self) -> None:
        self._drafter_starts = self._mark()

    def stop(self) -> StepSeconds:
        """Waits until the device has done the step."""
        end = self._mark()
        self._wait()
        drafter = end if self._drafter_starts is None else self._drafter_starts
        marks = (self._start, self._target_done, drafter, end)
        return StepSeconds(*(self._between(one, other) for one, other in pairwise(marks)))

    def _wait(self) -> None:
        if self.on_gpu:
            import torch

            torch.accelerator.synchronize()

    def _mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, one: Any, other: Any) -> float:
        return float(one.elapsed_time(other)) / 1000 if self.on_gpu else float(other - one)


@contextmanager
def step_clock(runner: Any) -> Iterator[StepClock]:
    """A clock that the drafter of ``runner`` tells when it starts."""
    clock, speculator = StepClock(on_gpu=runner.device.type == "cuda"), runner.speculator
    with ExitStack() as undo:
        if speculator is not None:
            engines_own = speculator.propose

            def propose(*given: Any, **named: Any) -> Any:
                clock.drafter_starts()
                return engines_own(*given, **named)

            substitute(undo, speculator, "propose", propose)
        yield clock

"""Times one step of an engine in parts: the target, what is sampled from it, the drafter.

On a GPU the marks are events of its stream, so that no part waits for the one before; on a CPU they are readings of a
clock.  A server that schedules asynchronously prepares a step while the device still runs the one before.  So that a
timed step is like one of its, the device can be given a lead: it has something else to do until the host has started
the step's kernels.  Without a lead it has nothing to do when a step starts, and the first part holds the host's
preparation too.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, Final, NamedTuple

from servespec.runtime.extension.substitution import substitute

_CALIBRATION_CYCLES: Final = 20_000_000
"""About ten milliseconds."""


class StepSeconds(NamedTuple):
    """The first three add up to the step; ``drafter_seconds`` is 0 where nothing is drafted.

    ``host_seconds`` is how long the host took to start all of it.
    """

    target_seconds: float
    sampling_seconds: float
    drafter_seconds: float
    host_seconds: float


class _Mark(NamedTuple):
    """When the host came to a place in the step, and the device's event there; no event on a CPU."""

    host: float
    event: Any


class StepClock:
    """Marks in the step at hand.

    ``can_lead`` says whether the host of a busy server is ahead of its device, in this engine and on this device.
    """

    def __init__(self, *, on_gpu: bool, can_lead: bool) -> None:
        self.on_gpu = on_gpu
        self.can_lead = can_lead
        self._lead: tuple[_Mark, _Mark] | None = None
        self._start: Any = None
        self._target_done: Any = None
        self._drafter_starts: Any = None
        self._cycles_per_second = self._calibrated() if can_lead else 0.0

    def start(self, lead_seconds: float = 0.0) -> None:
        """With a lead the device is busy for about ``lead_seconds`` before it comes to the step."""
        self._wait()
        self._drafter_starts = None
        self._lead = self._given_lead(lead_seconds) if lead_seconds else None
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
        host = [other.host - one.host for one, other in pairwise(marks)]
        device = [self._between(one, other) for one, other in pairwise(marks)]
        lead = self._between(*self._lead) if self._lead is not None else 0.0
        target, sampling, drafting = slower_parts(host, device, lead)
        return StepSeconds(target, sampling, drafting, host_seconds=sum(host))

    def _given_lead(self, seconds: float) -> tuple[_Mark, _Mark]:
        import torch

        before = self._mark()
        torch.cuda._sleep(int(seconds * self._cycles_per_second))
        return before, self._mark()

    def _calibrated(self) -> float:
        import torch

        for _ in range(2):  # the first is no measure: the kernel is loaded, and the clock of the device goes up
            self._wait()
            before = self._mark()
            torch.cuda._sleep(_CALIBRATION_CYCLES)
            after = self._mark()
            self._wait()
        return _CALIBRATION_CYCLES / self._between(before, after)

    def _wait(self) -> None:
        if self.on_gpu:
            import torch

            torch.accelerator.synchronize()

    def _mark(self) -> _Mark:
        if not self.on_gpu:
            return _Mark(time.perf_counter(), None)
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return _Mark(time.perf_counter(), event)

    def _between(self, one: _Mark, other: _Mark) -> float:
        if not self.on_gpu:
            return other.host - one.host
        return float(one.event.elapsed_time(other.event)) / 1000


def slower_parts(host: list[float], device: list[float], lead_seconds: float) -> list[float]:
    """The parts of whichever takes longer, since each of them goes on while the other is a step ahead or behind.

    A host that took longer than the lead waited for the device somewhere, or was too slow for it: then the device's
    parts hold what it waited for the host.
    """
    is_ahead = sum(host) < lead_seconds
    return host if is_ahead and sum(host) > sum(device) else device


@contextmanager
def step_clock(runner: Any) -> Iterator[StepClock]:
    """A clock that the drafter of ``runner`` tells when it starts."""
    on_gpu, speculator = runner.device.type == "cuda", runner.speculator
    clock = StepClock(on_gpu=on_gpu, can_lead=on_gpu and _prepares_ahead(runner))
    with ExitStack() as undo:
        if speculator is not None:
            engines_own = speculator.propose

            def propose(*given: Any, **named: Any) -> Any:
                clock.drafter_starts()
                return engines_own(*given, **named)

            substitute(undo, speculator, "propose", propose)
        yield clock


def _prepares_ahead(runner: Any) -> bool:
    """Whether a busy engine prepares a step during the one before; on one rank, as leads of several would differ.

    Source: vllm/v1/engine/core.py: EngineCore.step_with_batch_queue.
    """
    alone = runner.vllm_config.parallel_config.world_size_across_dp == 1
    return alone and bool(runner.scheduler_config.async_scheduling)

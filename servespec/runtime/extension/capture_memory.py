"""What each captured graph took of the device, read between the engine's captures.

The engine asks for the forward function of every graph before it runs it eagerly and captures it.  Those calls are
where the memory is read, so that what a graph took lies between its own call and the next.
Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple


class Reading(NamedTuple):
    """Bytes that the allocator holds, its pools of graphs with them, and bytes of the device that are free."""

    reserved_bytes: int
    free_bytes: int


def device_reading() -> Reading:
    import torch

    return Reading(torch.accelerator.memory_reserved(), torch.accelerator.get_memory_info()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedGraph:
    """What the eager run and the capture of one graph took.

    ``pool_bytes`` grew in the allocator, ``device_bytes`` went from the device; the difference is the driver's.
    Either is below zero where a capture gives back what an earlier one left free.
    """

    manager: Any
    descriptor: Any
    pool_bytes: int
    device_bytes: int
    seconds: float


@dataclass(slots=True)
class CaptureMeter:
    """Reads memory at the start of each graph while it is on; it is off while the engine only profiles."""

    read: Callable[[], Reading] = device_reading
    clock: Callable[[], float] = time.perf_counter
    captured: list[CapturedGraph] = field(default_factory=list)
    is_on: bool = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """From here on graphs are metered, and those of an earlier capture forgotten."""
        self.captured.clear()
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


class _Laps:
    """The graphs of one manager, one after the other; what opens its capture is part of the first."""

    def __init__(self, meter: CaptureMeter, manager: Any) -> None:
        self.meter, self.manager, self.descriptor = meter, manager, None
        self.since, self.began = meter.read(), meter.clock()

    def begin(self, descriptor: Any) -> None:
        self.end()
        self.descriptor = descriptor

    def end(self) -> None:
        if self.descriptor is None:
            return
        now, moment = self.meter.read(), self.meter.clock()
        self.meter.captured.append(
            CapturedGraph(
                manager=self.manager,
                descriptor=self.descriptor,
                pool_bytes=now.reserved_bytes - self.since.reserved_bytes,
                device_bytes=self.since.free_bytes - now.free_bytes,
                seconds=moment - self.began,
            )
        )
        self.descriptor, self.since, self.began = None, now, moment


def meter_captures(manager_type: type, meter: CaptureMeter) -> None:
    """From now on every manager of the type is metered while ``meter`` is on; it captures as before."""
    engines_own = manager_type.capture  # type: ignore[attr-defined]

    @wraps(engines_own)
    def capture(manager: Any, create_forward_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if not meter.is_on:
            engines_own(manager, create_forward_fn, *args, **kwargs)
            return
        laps = _Laps(meter, manager)

        def begin_and_create(descriptor: Any, warmup: bool) -> Any:
            if warmup:
                laps.begin(descriptor)
            return create_forward_fn(descriptor, warmup=warmup)

        engines_own(manager, begin_and_create, *args, **kwargs)
        laps.end()

    manager_type.capture = capture  # type: ignore[attr-defined]

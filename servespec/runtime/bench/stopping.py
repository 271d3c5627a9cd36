"""A bench that is told to stop: its servers are stopped first, so that the next command finds a free device."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType


class Stopped(BaseException):
    """A signal ended the bench; no error, so that nothing on its way takes it for one."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@dataclass(slots=True)
class StopSignals:
    """The stop signals that a bench was sent.  Each raises :class:`Stopped`, after what must not be cut short."""

    received: list[int] = field(default_factory=list)
    _deferring: bool = False

    @property
    def is_urgent(self) -> bool:
        """Whether one came that is not the first."""
        return len(self.received) > 1

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A signal of the time of a block is heeded at its end."""
        seen = len(self.received)
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if len(self.received) > seen:
            raise Stopped(self.received[0])

    def take(self, signum: int, _frame: FrameType | None) -> None:
        self.received.append(signum)
        if not self._deferring:
            raise Stopped(self.received[0])


@contextmanager
def stopped_by_signals() -> Iterator[StopSignals]:
    """Ctrl-C, SIGTERM and SIGHUP raise :class:`Stopped` for the time of a block.

    One that was ignored stays ignored: a shell without job control has its background jobs ignore SIGINT.
    """
    stops = StopSignals()
    wanted = [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {signum: signal.signal(signum, stops.take) for signum in wanted}
    try:
        yield stops
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)

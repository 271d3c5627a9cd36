"""A bench that is told to stop: its servers are stopped first, so that the next command finds a free device."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """A signal ended the bench; no error, so that nothing on its way takes it for one."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP raise :class:`Stopped` for the time of a block.

    One that was ignored stays ignored: a shell without job control has its background jobs ignore SIGINT.
    """
    wanted = [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {signum: signal.signal(signum, _stop) for signum in wanted}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _stop(signum: int, _frame: FrameType | None) -> None:
    raise Stopped(signum)

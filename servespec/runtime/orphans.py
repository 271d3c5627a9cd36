"""What is left of an engine whose keeper was killed: adopted by this process, and ended.

The kernel kills the engine's first process with the keeper.  The children of that one would run on for nobody, with all
of the GPU's memory.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from servespec.runtime.keeper import descendants

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_SWEEP_SECONDS = 0.05
# A process that loses its parent while /proc is read may be missed in one look.
_QUIET_LOOKS = 2

EndOrphans = Callable[[int, float], None]
"""Kills all that descends from this process and came during the block, but ``keeper_pid``; waits so many seconds."""


@contextmanager
def adopted_orphans() -> Iterator[EndOrphans]:
    """Makes this process the parent of whatever loses its own below it, for the time of the block."""
    before = descendants(os.getpid())
    was_subreaper = _is_subreaper()
    _set_subreaper(True)
    try:
        yield lambda keeper_pid, seconds: _end_all_but({*before, keeper_pid}, seconds)
    finally:
        _set_subreaper(was_subreaper)


def _end_all_but(kept: set[int], seconds: float) -> None:
    deadline, quiet_looks = time.monotonic() + seconds, 0
    while quiet_looks < _QUIET_LOOKS and time.monotonic() < deadline:
        left = descendants(os.getpid()) - kept
        quiet_looks = 0 if left else quiet_looks + 1
        for pid in left:
            _end(pid)
        time.sleep(_SWEEP_SECONDS)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    # Ours to reap once its parent is gone.
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _is_subreaper() -> bool:
    flag = ctypes.c_int()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(flag))
    return bool(flag.value)


def _set_subreaper(is_on: bool) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_on))

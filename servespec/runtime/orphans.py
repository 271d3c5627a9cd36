"""What is left of an engine whose keeper was killed: adopted by this process, and ended.

The kernel kills the engine's first process with the keeper.  The children of that one would run on for nobody, with all
of the GPU's memory.

This process may have descendants that are not the engine's: what a shell started before it became servespec, and, as
the first process of a container, whatever loses its parent there.  The engine's are known by their session, which its
first process began, or by the mark in the environment that it was started with.  Neither alone is enough: one may begin
a session of its own, and one that writes its title over its arguments, as a worker of vLLM does, loses the environment
that /proc shows.  One that did both is found below its parent, and left where that has ended.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servespec.runtime.keeper import descendants
from servespec.runtime.launch import EngineProcess

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_SWEEP_SECONDS = 0.05
# A process that loses its parent while /proc is read may be missed in one look.
_QUIET_LOOKS = 2


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Makes this process the parent of whatever loses its own below it, for the time of the block."""
    was_subreaper = _is_subreaper()
    _set_subreaper(True)
    try:
        yield
    finally:
        _set_subreaper(was_subreaper)


def end_orphans(engine: EngineProcess, timeout_seconds: float) -> None:
    """Kills what is left of ``engine`` below this process, and reaps it; waits so many seconds at most."""
    deadline, quiet_looks = time.monotonic() + timeout_seconds, 0
    unreaped: set[int] = set()
    while quiet_looks < _QUIET_LOOKS and time.monotonic() < deadline:
        known = {pid for pid in descendants(os.getpid()) if _is_of(engine, pid)}
        left = known | descendants(*known)
        for pid in left:
            _kill(pid)
        unreaped = {pid for pid in unreaped | left if not _is_reaped(pid)}
        quiet_looks = 0 if left or unreaped else quiet_looks + 1
        time.sleep(_SWEEP_SECONDS)


def _is_of(engine: EngineProcess, pid: int) -> bool:
    with suppress(OSError):
        if os.getsid(pid) == engine.pid:
            return True
    with suppress(OSError):
        return engine.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _is_reaped(pid: int) -> bool:
    """One that still has another parent is that one's to reap, or becomes ours, and is found again."""
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


def _is_subreaper() -> bool:
    flag = ctypes.c_int()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(flag))
    return bool(flag.value)


def _set_subreaper(is_on: bool) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_on))

"""The small process between servespec and the engine, which leaves none of the engine's processes behind.

It runs by its path with the standard library alone.  It starts the engine in a session of its own, adopts
whatever the engine's processes abandon (``PR_SET_CHILD_SUBREAPER``), and stops all of them when

- servespec asks for it, or dies: its end of standard input closes, whatever killed it;
- it is sent SIGTERM, SIGINT or SIGHUP itself, as a service manager does to every process it stops;
- the engine's first process ends.

Where it is killed itself, its own parent adopts what is left and ends it (``servespec.runtime.orphans``).

Stopping is SIGTERM to the engine's first process, then, once that has ended or half of the grace period is over, to
its group and every descendant outside it, then SIGKILL after the grace period until no descendant is left.  A second
request on standard input ends the grace period.

Standard output carries one JSON object a line: ``{"pid": N}`` or ``{"errno": N}`` when started, and
``{"returncode": N, "forced": bool}`` when nothing is left; a negative code is a signal, as in ``subprocess``.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

STOP = b"s"
# How often abandoned processes are looked for while the engine stops; each look reads /proc once.
_SWEEP_SECONDS = 0.05
# What the engine leaves behind when it ends by itself has lost its parent and serves nobody.
_ORPHAN_GRACE_SECONDS = 3.0
# Of the grace period: how long the first process has before all are asked.
_FIRST_SHARE = 0.5
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(argv: list[str]) -> int:
    grace_seconds, *command = float(argv[0]), *argv[1:]
    wakeups = _watch_signals()
    _prctl()(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        # The output is inherited: servespec opened the log as our standard error.
        engine = subprocess.Popen(  # noqa: S603 - one thread, and a command of the user's
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            start_new_session=True,
            preexec_fn=ended_with_us(),  # noqa: PLW1509 - one thread here
        )
    except OSError as error:
        _say({"errno": error.errno})
        return 0
    _say({"pid": engine.pid})
    asked = _wait(engine, wakeups)
    forced = _stop(engine, grace_seconds if asked else _ORPHAN_GRACE_SECONDS)
    _say({"returncode": engine.returncode, "forced": forced})
    return 0


def ended_with_us() -> Callable[[], object]:
    """What a child calls before its program starts: the kernel kills it when this process ends, whatever ended it."""
    prctl, parent = _prctl(), os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # A parent that ended before that word would never be told of.
        if os.getppid() != parent:
            os._exit(1)

    return bind


def descendants(*roots: int) -> set[int]:
    """The processes below ``roots``, by the parent that /proc names now."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [*roots]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the reading.
        with contextlib.suppress(OSError):
            # The name in parentheses may itself hold spaces and parentheses.
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
            yield int(stat.parent.name), int(fields[1])


def _wait(engine: "subprocess.Popen[bytes]", wakeups: int) -> bool:
    """True when a stop was asked for, False when the engine ended."""
    while True:
        ready, _, _ = select.select([sys.stdin.fileno(), wakeups], [], [])
        if sys.stdin.fileno() in ready:
            return True
        if set(os.read(wakeups, 512)) & set(_SIGNALS):
            return True
        if _reap(engine):
            return False


def _stop(engine: "subprocess.Popen[bytes]", grace_seconds: float) -> bool:
    """Ends every descendant; True when one had to be killed."""
    began, requests, asked_all = time.monotonic(), 0, False
    _ask_first(engine)
    while _is_left(engine):
        requests += len(_read_request())
        waited_seconds = time.monotonic() - began
        # Signals to us don't count: a service manager sends one beside the request that servespec makes.
        if requests > 1 or waited_seconds >= grace_seconds:
            _kill(engine)
            return True
        if not asked_all and (engine.returncode is not None or waited_seconds >= grace_seconds * _FIRST_SHARE):
            asked_all = True
            _send(engine, signal.SIGTERM)
        time.sleep(_SWEEP_SECONDS)
    return False


def _ask_first(engine: "subprocess.Popen[bytes]") -> None:
    """The first process ends the others in their order; one that is signalled twice ends before it has tidied up."""
    if engine.poll() is None:
        engine.send_signal(signal.SIGTERM)


def _kill(engine: "subprocess.Popen[bytes]") -> None:
    while _is_left(engine):
        _send(engine, signal.SIGKILL)
        time.sleep(_SWEEP_SECONDS)


def _read_request() -> bytes:
    """What servespec has asked for since the last look; nothing once its end is closed."""
    ready, _, _ = select.select([sys.stdin.fileno()], [], [], 0)
    return os.read(sys.stdin.fileno(), 512) if ready else b""


def _send(engine: "subprocess.Popen[bytes]", signum: int) -> None:
    """To the engine's group, and one by one to the descendants that left it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(engine.pid, signum)
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) != engine.pid:
                os.kill(pid, signum)


def _is_left(engine: "subprocess.Popen[bytes]") -> bool:
    """Whether any descendant lives or waits to be reaped."""
    _reap(engine)
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _reap(engine: "subprocess.Popen[bytes]") -> bool:
    """Reaps what has ended; whether the engine's first process has."""
    engine.poll()
    with contextlib.suppress(ChildProcessError):
        while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if dead.si_pid == engine.pid:
                engine.poll()
            else:
                os.waitpid(dead.si_pid, os.WNOHANG)
    return engine.returncode is not None


def _watch_signals() -> int:
    """A descriptor that receives the number of each signal we are sent, SIGCHLD included."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for signum in (*_SIGNALS, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)
    return read_end


def _prctl() -> Callable[[int, int], object]:
    """Linux's prctl, looked up before the fork; elsewhere nothing, and the group alone is stopped."""
    if not sys.platform.startswith("linux"):
        return lambda *_: None
    call: Callable[[int, int], object] = ctypes.CDLL(None).prctl
    return call


def _say(line: dict[str, object]) -> None:
    # Nobody listens any more when servespec was killed.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

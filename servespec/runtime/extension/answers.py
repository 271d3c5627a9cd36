"""A worker says what it holds whenever it is asked, through a pipe that lies beside its reports.

A thread of its own waits at the pipe.  So it does not matter in which thread the worker was made, and an engine whose
main thread waits for its device, where no handler of a signal would run, answers too: all that it takes is the
interpreter's lock for a moment.
"""

import os
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, Final

from servespec.runtime.extension.report import ask_name, own_path, write_left

_MANY_BYTES: Final = 512
"""Questions that came during one answer are answered together."""


class Answers:
    """What one worker answers, from its first capture to the end of its process."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Makes the pipe and answers from now on; again, or where there can be no pipe, it does nothing.

        A pipe of an earlier worker with this one's rank is replaced.
        """
        path = own_path(self._worker, ask_name)
        if path is None or self._thread is not None:
            return
        # The engine is to start all the same where there can be no pipe, or no thread more.
        with suppress(OSError, RuntimeError):
            pipe = _new_pipe(path)
            self._thread = Thread(target=_answer, args=(self._worker, pipe), name=path.name, daemon=True)
            self._thread.start()


def end_answers(worker: Any) -> None:
    """Nobody can ask any more; an answer that is under way is still given."""
    path = own_path(worker, ask_name)
    if path is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _new_pipe(path: Path) -> int:
    """Open both ways: there is a reader for as long as the process lives, and reading waits instead of ending.

    Linux allows that; see fifo(7).
    """
    if path.is_fifo():
        path.unlink()
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR)


def _answer(worker: Any, pipe: int) -> None:
    """The thread: asleep until somebody writes.  Once it has ended, whatever ended it, the pipe has no reader."""
    with os.fdopen(pipe, "rb", buffering=0) as questions:
        while questions.read(_MANY_BYTES):
            # No room on the disk, or graphs that change while they are read: the engine is left alone.
            with suppress(OSError, RuntimeError):
                write_left(worker)

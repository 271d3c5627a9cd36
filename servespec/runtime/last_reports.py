"""Asks the workers of an engine that is about to stop what they hold.

The engine gives its processes no time to end, so that a worker of a large model is killed before it could say so by
itself.  Each worker waits at a pipe from when it has captured its graphs on (``extension/answers.py``); what it had
answered, it says again if it does come to its end.
Source: vllm/v1/engine/core_client.py: MPClient.shutdown; vllm/v1/utils.py: shutdown.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from stat import S_ISFIFO
from typing import Final

from servespec.runtime.extension.report import ask_beside, left_beside

_WAIT_SECONDS: Final = 2.0
"""A worker answers beside the step of its engine; its thread has to come in between."""
_POLL_SECONDS: Final = 0.02


def ask_for_last_reports(reports: Iterable[Path], wait_seconds: float = _WAIT_SECONDS) -> None:
    """Returns once every worker that is there has answered, or after ``wait_seconds``.

    ``reports`` are the workers' reports of their captures, beside which their pipes lie.
    """
    awaited = [left_beside(report) for report in reports if _ask(report)]
    deadline = time.monotonic() + wait_seconds
    while not all(path.is_file() for path in awaited) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _ask(report: Path) -> bool:
    """Whether its worker was there to be asked; then an earlier answer is gone.

    A worker of another machine, or one that has ended, has no pipe here or does not read it, which Linux says at once.
    """
    with suppress(OSError):
        pipe = os.open(ask_beside(report), os.O_WRONLY | os.O_NONBLOCK)
        with os.fdopen(pipe, "wb", buffering=0) as question:
            if S_ISFIFO(os.fstat(pipe).st_mode):
                left_beside(report).unlink(missing_ok=True)
                return question.write(b"?") == 1
    return False

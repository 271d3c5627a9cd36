"""Asks the workers of an engine that is about to stop what they hold.

The engine gives its processes no time to end, so that a worker of a large model is killed before it could say so by
itself.  Each worker answers a signal from when it has captured its graphs on; what it had answered, it says again if it
does come to its end.
Source: vllm/v1/engine/core_client.py: MPClient.shutdown; vllm/v1/utils.py: shutdown.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from servespec.runtime.extension.report import LAST_REPORT_SIGNAL, left_beside
from servespec.runtime.keeper import descendants

_WAIT_SECONDS: Final = 2.0
"""A worker answers between two steps of its engine."""
_POLL_SECONDS: Final = 0.02


def ask_for_last_reports(reports: Iterable[Path], root_pid: int, wait_seconds: float = _WAIT_SECONDS) -> None:
    """Returns once every worker below the process ``root_pid`` has answered, or after ``wait_seconds``.

    ``reports`` are the workers' reports of their captures, which name the processes of those that answer.
    """
    asked = list(_asked(reports, root_pid))
    deadline = time.monotonic() + wait_seconds
    while not all(path.is_file() for path in asked) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _asked(reports: Iterable[Path], root_pid: int) -> Iterator[Path]:
    """Where each worker that was asked writes its answer, and an earlier one is gone.

    A process that is no worker of this engine is left alone.
    """
    ours = descendants(root_pid)
    for path in reports:
        pid = _pid_in(path)
        if pid in ours:
            answer = left_beside(path)
            with suppress(OSError):
                answer.unlink(missing_ok=True)
                os.kill(pid, LAST_REPORT_SIGNAL)
                yield answer


def _pid_in(report: Path) -> int | None:
    """None in what is no whole report: the engine stops all the same."""
    with suppress(OSError, ValueError):
        content = json.loads(report.read_text(encoding="utf-8"))
        pid = content.get("pid") if isinstance(content, dict) else None
        return pid if type(pid) is int else None
    return None

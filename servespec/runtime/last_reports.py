"""Asks the workers of an engine that is about to stop what they hold.

The engine gives its processes no time to end, so that a worker of a large model is killed before it could say so by
itself.  Each worker answers a signal from when it has captured its graphs on; what it had answered, it says again if it
does come to its end.
Source: vllm/v1/engine/core_client.py: MPClient.shutdown; vllm/v1/utils.py: shutdown.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from servespec.runtime.extension.report import LAST_REPORT_SIGNAL
from servespec.runtime.keeper import descendants

_CAPTURED, _LEFT = "captured", "left"
_WAIT_SECONDS: Final = 2.0
"""A worker answers between two steps of its engine."""
_POLL_SECONDS: Final = 0.02


def ask_for_last_reports(folder: Path, root_pid: int, wait_seconds: float = _WAIT_SECONDS) -> None:
    """Returns once every worker below the process ``root_pid`` has answered, or after ``wait_seconds``.

    ``folder`` holds the workers' reports of their captures, which name the processes of those that answer.
    """
    asked = list(_asked(folder, root_pid))
    deadline = time.monotonic() + wait_seconds
    while not all(path.is_file() for path in asked) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _asked(folder: Path, root_pid: int) -> Iterator[Path]:
    """Where each worker that was asked writes its answer, and an earlier one is gone.

    A process that is no worker of this engine is left alone.
    """
    ours = descendants(root_pid)
    for path in sorted(folder.glob(f"{_CAPTURED}-*.json")):
        pid = json.loads(path.read_text(encoding="utf-8")).get("pid")
        if pid in ours:
            answer = path.with_name(path.name.replace(_CAPTURED, _LEFT, 1))
            with suppress(OSError):
                answer.unlink(missing_ok=True)
                os.kill(pid, LAST_REPORT_SIGNAL)
                yield answer

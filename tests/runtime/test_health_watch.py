"""When a ready server counts as failing, and when it is only slow."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from servespec.runtime import health_watch
from servespec.runtime.health import Health
from servespec.runtime.health_watch import HealthWatch
from servespec.runtime.launch import LaunchCommand

F, C, G, S, OK = Health.FAILED, Health.CLOSED, Health.GARBLED, Health.SILENT, Health.OK


def failing_after(answers: Sequence[Health], monkeypatch: pytest.MonkeyPatch) -> int | None:
    """How many of the answers it took until the failure was certain."""
    left = list(answers)
    monkeypatch.setattr(health_watch, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(health_watch, "health_of", lambda _: left.pop(0) if left else Health.OK)
    command = LaunchCommand(argv=("x",), env={}, host="127.0.0.1", port=1, log_path=Path("log"))
    deadline = time.monotonic() + 10
    with HealthWatch(command) as watch:
        while time.monotonic() < deadline:
            if failing := watch.failing():
                assert failing.health is answers[len(answers) - len(left) - 1]
                return len(answers) - len(left)
            if not left and watch._asked is None:
                return None
            time.sleep(0.001)
    raise AssertionError("no end")


@pytest.mark.parametrize(
    ("answers", "after"),
    [
        ([F, F, F], 3),
        ([C, C, C], 3),
        ([G, G, G], 3),
        ([F, F, OK, F, F, OK, OK], None),
        ([F, S, F, S, F], 5),
        ([S] * 85 + [OK] + [S] * 85, None),
        ([S] * 86, 86),
        ([Health.OTHER] * 200, None),
        ([OK, OK, C, C, C], 5),
    ],
)
def test_failures_in_a_row_end_the_run(
    answers: list[Health], after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failing_after(answers, monkeypatch) == after

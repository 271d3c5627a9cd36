"""A ready server's health check, asked now and then beside whatever else is done.

A failure that the server itself states, a refused connection, or an answer that is no HTTP counts quickly; no answer
in time counts slowly, because a busy server answers late and is not to be stopped for it.
"""

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from types import TracebackType
from typing import Final

from servespec.runtime.health import Health, health_of
from servespec.runtime.launch import LaunchCommand

_EVERY_SECONDS = 5.0
_ENOUGH: Final = {Health.FAILED: 3, Health.CLOSED: 3, Health.GARBLED: 3, Health.SILENT: 86}
"""Answers of a kind since the last good one; silent ones take two seconds more each, ten minutes in all.

A kind that is not here, such as a request that some middleware turned away, ends nothing.
"""


@dataclass(frozen=True, slots=True)
class Failing:
    """What the server last said, and how long it has not been well."""

    health: Health
    for_seconds: float


@dataclass(slots=True)
class HealthWatch:
    """Asks in a thread of its own, so that nobody waits for an answer."""

    command: LaunchCommand
    _executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _asked: "Future[Health] | None" = None
    _well_at: float = field(default_factory=time.monotonic)
    _next_at: float = field(default_factory=lambda: time.monotonic() + _EVERY_SECONDS)
    _answers: "Counter[Health]" = field(default_factory=Counter)

    def __enter__(self) -> "HealthWatch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(wait=False)

    def failing(self) -> Failing | None:
        """The failure that is certain by now; never waits, and asks again when it is time."""
        if self._asked is None and time.monotonic() >= self._next_at:
            self._asked = self._executor.submit(health_of, self.command)
        if self._asked is None or not self._asked.done():
            return None
        health, self._asked = self._asked.result(), None
        return self._count(health)

    def _count(self, health: Health) -> Failing | None:
        now = time.monotonic()
        self._next_at = now + _EVERY_SECONDS
        if health is Health.OK:
            self._well_at = now
            self._answers.clear()
            return None
        self._answers[health] += 1
        is_enough = self._answers[health] >= _ENOUGH.get(health, inf)
        return Failing(health, now - self._well_at) if is_enough else None

"""The meter in the engine's own capture: every graph is metered once, in order, with what was allocated for it."""

from typing import Any

import pytest

from servespec.compiler.graphs.managers import managers_of
from servespec.runtime.extension.capture_memory import CaptureMeter, Reading, meter_captures
from tests.differential.test_extension import (
    INTERLEAVED,
    SPECIAL,
    WIDE_DECODE,
    Installed,
    golden_plan,
    needs_engine,
    plan_of,
)

pytestmark = pytest.mark.usefixtures("quiet_shell")


class Memory:
    """A device on which each graph takes three bytes a token when it warms up and five when it is captured."""

    def __init__(self) -> None:
        self.reserved_bytes, self.free_bytes, self.now_seconds = 1000, 1 << 30, 0.0
        self.taken: dict[Any, int] = {}

    def prepare(self, descriptor: Any, warmup: bool) -> Any:
        def forward(_mode: Any) -> None:
            took = descriptor.num_tokens * (3 if warmup else 5)
            self.taken[descriptor] = self.taken.get(descriptor, 0) + took
            self.reserved_bytes += took
            self.free_bytes -= took + 1
            self.now_seconds += 0.5

        return forward

    def meter(self) -> CaptureMeter:
        return CaptureMeter(lambda: Reading(self.reserved_bytes, self.free_bytes), lambda: self.now_seconds)


@needs_engine
@pytest.mark.parametrize("case", ["interleaved", "wide", *SPECIAL])
def test_every_graph_of_every_manager_is_metered(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"interleaved": INTERLEAVED, "wide": WIDE_DECODE}
    plan = plan_of(own[case]) if case in own else golden_plan(case, monkeypatch)
    installed, memory = Installed(plan), Memory()
    meter = memory.meter()
    meter_captures(installed.base, meter)

    for planned in managers_of(plan.resolution.frame):
        manager = installed.manager(planned)._manager
        manager.graphs.clear()
        memory.taken.clear()
        with meter.on():
            installed.base.capture(manager, memory.prepare)  # type: ignore[attr-defined]

        assert [one.descriptor for one in meter.captured] == list(memory.taken)
        assert [one.pool_bytes for one in meter.captured] == list(memory.taken.values())
        assert all(one.manager is manager for one in meter.captured)
        # Both runs of a graph are within its own lap; a compiled PIECEWISE graph is made once and run twice.
        assert all(one.device_bytes - one.pool_bytes == 2 and one.seconds == 1.0 for one in meter.captured)


@needs_engine
def test_a_profiling_capture_is_not_metered() -> None:
    plan = plan_of(INTERLEAVED)
    installed, memory = Installed(plan), Memory()
    meter = memory.meter()
    meter_captures(installed.base, meter)
    manager = installed.manager(managers_of(plan.resolution.frame)[0])._manager
    manager.graphs.clear()

    installed.base.capture(manager, memory.prepare)  # type: ignore[attr-defined]

    assert memory.taken
    assert meter.captured == []

"""What narrows an engine's choice of graphs, the clock of a step, and the order of turns."""

import itertools
import sys
from types import ModuleType, SimpleNamespace

import pytest

from servespec.runtime.extension import step_clock as step_clock_module
from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.graph_choice import CHOICES, GraphChoice, noted
from servespec.runtime.extension.step_clock import StepClock, step_clock
from servespec.runtime.extension.step_requests import Request, resumed
from servespec.runtime.extension.timed_engine import TimedMode, distinct_modes, rotated
from tests.runtime.engine_types import Descriptor, Mode

FULL, PIECEWISE = Descriptor(Mode.FULL, 8, 2, 4), Descriptor(Mode.PIECEWISE, 16)


class CudaGraphManager:
    decode_query_len = 4

    def __init__(self) -> None:
        self._candidates = {(8, 0): [FULL, PIECEWISE], (9, 0): [PIECEWISE]}

    def dispatch(self, tokens: int) -> Descriptor:
        return next(iter(self._candidates[tokens, 0]), Descriptor(Mode.NONE, tokens))


def test_each_choice_leaves_the_engine_fewer_graphs_and_gives_them_back() -> None:
    manager = CudaGraphManager()
    before, choice = manager._candidates, GraphChoice([manager])
    found = []

    for allowed in CHOICES:
        with choice.only(allowed):
            found.append([manager.dispatch(tokens) for tokens in (8, 9)])

    eager = [Descriptor(Mode.NONE, 8), Descriptor(Mode.NONE, 9)]
    assert found == [[FULL, PIECEWISE], [PIECEWISE, PIECEWISE], eager]
    assert manager._candidates is before


def test_a_fault_gives_the_graphs_back_too() -> None:
    manager = CudaGraphManager()
    before, choice = manager._candidates, GraphChoice([manager])

    with pytest.raises(RuntimeError), choice.only(CHOICES[-1]):
        raise RuntimeError

    assert manager._candidates is before


def test_what_is_chosen_is_noted_meanwhile_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm.v1.worker.gpu.cudagraph_utils")
    vars(module)["CudaGraphManager"] = CudaGraphManager
    monkeypatch.setitem(sys.modules, module.__name__, module)
    manager, seen = CudaGraphManager(), []  # type: ignore[var-annotated]
    own = CudaGraphManager.dispatch

    with noted(seen):
        assert manager.dispatch(8) is FULL
    manager.dispatch(9)

    assert [(shape.mode, shape.tokens, shape.requests) for shape in seen] == [("FULL", 8, 2)]
    assert CudaGraphManager.dispatch is own


# The clock


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first two readings lies one second, between the next two seconds, then four, and so on."""
    readings = (2.0**count for count in itertools.count())
    monkeypatch.setattr(step_clock_module.time, "perf_counter", lambda: next(readings))


@pytest.mark.usefixtures("ticks")
def test_a_step_is_told_in_parts() -> None:
    clock = StepClock(on_gpu=False)

    clock.start()
    clock.target_done()
    clock.drafter_starts()

    assert clock.stop() == (1.0, 2.0, 4.0)


@pytest.mark.usefixtures("ticks")
def test_a_step_without_a_drafter_has_no_time_of_one_even_after_one_that_had() -> None:
    clock = StepClock(on_gpu=False)
    clock.start()
    clock.target_done()
    clock.drafter_starts()
    clock.stop()

    clock.start()
    clock.target_done()

    assert clock.stop() == (16.0, 32.0, 0.0)


def test_on_a_gpu_the_marks_are_events_and_the_host_waits_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_milliseconds = 2.0 ** len(done)
            done.append("record")

        def elapsed_time(self, end: "Event") -> float:
            return end.at_milliseconds - self.at_milliseconds

    torch = ModuleType("torch")
    vars(torch)["cuda"] = SimpleNamespace(Event=Event)
    vars(torch)["accelerator"] = SimpleNamespace(synchronize=lambda: done.append("wait"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    clock = StepClock(on_gpu=True)

    clock.start()
    clock.target_done()
    clock.drafter_starts()
    step = clock.stop()

    assert done == ["wait", "record", "record", "record", "record", "wait"]
    assert step == pytest.approx((0.002, 0.004, 0.008))


def test_the_drafter_tells_the_clock_when_it_starts() -> None:
    class Speculator:
        def propose(self, count: int) -> int:
            return count + 1

    speculator = Speculator()
    runner = SimpleNamespace(device=SimpleNamespace(type="cpu"), speculator=speculator)

    with step_clock(runner) as clock:
        clock.start()
        clock.target_done()
        assert speculator.propose(2) == 3
        assert clock.stop().drafter_seconds > 0
    assert vars(speculator) == {}
    with step_clock(SimpleNamespace(device=SimpleNamespace(type="cuda"), speculator=None)) as clock:
        assert clock.on_gpu


# Modes, turns and requests


def target(mode: str, tokens: int = 8) -> CapturedShape:
    return CapturedShape("ModelCudaGraphManager", 4, mode, tokens, 0, 0, 0, 0, 1, 0)


def drafter(mode: str) -> CapturedShape:
    return CapturedShape("SpeculatorCudaGraphManager", 1, mode, 2, 0, 0, 0, 0, 1, 0)


def modes_for(*targets: str) -> list[tuple[str, int, list[str]]]:
    """Each mode with how many modes of graphs are allowed in it, where the target chooses so in turn."""
    steps = [[target(mode), target(mode), drafter(mode), drafter(mode)] for mode in targets]
    found = distinct_modes(dict(zip(CHOICES, steps, strict=True)))
    return [(one.mode, len(one.allowed), [shape.mode for shape in one.drafter]) for one in found]


def test_a_mode_is_what_the_target_runs_in() -> None:
    assert modes_for("FULL", "PIECEWISE", "NONE") == [
        ("FULL", 2, ["FULL"]), ("PIECEWISE", 1, ["PIECEWISE"]), ("NONE", 0, ["NONE"]),
    ]  # fmt: skip


def test_the_engines_own_choice_stands_for_a_mode_that_comes_twice() -> None:
    assert [mode for mode, *_ in modes_for("PIECEWISE", "PIECEWISE", "NONE")] == ["PIECEWISE", "NONE"]
    assert modes_for("PIECEWISE", "PIECEWISE", "NONE")[0][1] == 2


def test_eager_is_without_graphs_of_the_drafter_too() -> None:
    assert [(mode, allowed) for mode, allowed, _ in modes_for("FULL", "NONE", "NONE")] == [("FULL", 2), ("NONE", 0)]
    assert [(mode, allowed) for mode, allowed, _ in modes_for("NONE", "NONE", "NONE")] == [("NONE", 0)]


def test_another_mode_is_first_in_each_turn() -> None:
    modes = [TimedMode(mode=name, allowed=frozenset(), padded_tokens=1, drafter=()) for name in "ABC"]

    turns = ["".join(mode.mode for mode in rotated(modes, number)) for number in range(4)]

    assert turns == ["ABC", "BCA", "CAB", "ABC"]


def test_requests_start_anew_on_their_prompts() -> None:
    used = Request("a", prompt=[5, 6, 7], first_tokens=3, blocks=([1], [2]), computed=9, emitted=[8, 8])

    (again,) = resumed([used])

    assert (again.prompt, again.blocks) == (used.prompt, used.blocks)
    assert (again.first_tokens, again.computed, again.emitted) == (1, 2, [])
    assert used.emitted == [8, 8]

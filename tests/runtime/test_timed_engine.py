"""What narrows an engine's choice of graphs, the clock of a step, and the order of turns."""

import itertools
import sys
from types import ModuleType, SimpleNamespace

import pytest

from servespec.runtime.extension import step_clock as step_clock_module
from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.graph_choice import CHOICES, GraphChoice, noted
from servespec.runtime.extension.step_clock import StepClock, StepSeconds, step_clock
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
    clock = StepClock(on_gpu=False, can_lead=False)

    clock.start()
    clock.target_done()
    clock.drafter_starts()
    step = clock.stop()

    assert step == (1.0, 2.0, 4.0, 7.0)


@pytest.mark.usefixtures("ticks")
def test_a_step_without_a_drafter_has_no_time_of_one_even_after_one_that_had() -> None:
    clock = StepClock(on_gpu=False, can_lead=False)
    clock.start()
    clock.target_done()
    clock.drafter_starts()
    clock.stop()

    clock.start()
    clock.target_done()

    assert clock.stop() == (16.0, 32.0, 0.0, 48.0)


class Device:
    """A stream that runs what it is given in turn, each after it was given; the host takes time to give it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.host_seconds = 0.0
        self.free_from = 0.0
        device = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = max(device.host_seconds, device.free_from)
                device.done.append("record")

            def elapsed_time(self, end: "Event") -> float:
                return (end.at - self.at) * 1000

        torch = ModuleType("torch")
        vars(torch)["cuda"] = SimpleNamespace(Event=Event, _sleep=self.sleep)
        vars(torch)["accelerator"] = SimpleNamespace(synchronize=self.wait)
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(step_clock_module.time, "perf_counter", lambda: self.host_seconds)

    def run(self, *, host: float, device: float) -> None:
        """The host takes so long to start work that takes the device so long."""
        self.host_seconds += host
        self.free_from = max(self.host_seconds, self.free_from) + device

    def sleep(self, cycles: int) -> None:
        self.done.append("sleep")
        self.run(host=0.0, device=cycles / 2e9)

    def wait(self) -> None:
        self.done.append("wait")
        self.host_seconds = max(self.host_seconds, self.free_from)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def stepped(clock: StepClock, device: Device, *, host: float, of_device: float, lead: float) -> StepSeconds:
    """One step of three parts alike."""
    clock.start(lead)
    device.run(host=host, device=of_device)
    clock.target_done()
    device.run(host=host, device=of_device)
    clock.drafter_starts()
    device.run(host=host, device=of_device)
    return clock.stop()


def test_on_a_gpu_the_marks_are_events_and_the_host_waits_before_and_after(device: Device) -> None:
    clock = StepClock(on_gpu=True, can_lead=False)

    step = stepped(clock, device, host=0.001, of_device=0.004, lead=0.0)

    assert device.done == ["wait", "record", "record", "record", "record", "wait"]
    assert step == pytest.approx((0.005, 0.004, 0.004, 0.003))


def test_a_device_that_is_busy_before_a_step_does_not_wait_for_the_host_in_it(device: Device) -> None:
    clock = StepClock(on_gpu=True, can_lead=True)

    step = stepped(clock, device, host=0.001, of_device=0.004, lead=0.0045)

    assert step == pytest.approx((0.004, 0.004, 0.004, 0.003))


def test_a_step_takes_as_long_as_its_host_where_that_is_the_slower_one(device: Device) -> None:
    """The next step cannot start before the host has started this one."""
    clock = StepClock(on_gpu=True, can_lead=True)

    step = stepped(clock, device, host=0.004, of_device=0.001, lead=0.018)

    assert step == pytest.approx((0.004, 0.004, 0.004, 0.012))


def test_a_host_that_is_not_ahead_is_in_the_devices_parts(device: Device) -> None:
    """The lead is over when the host has done half of it, so that from there on the device waits for it."""
    clock = StepClock(on_gpu=True, can_lead=True)

    step = stepped(clock, device, host=0.004, of_device=0.001, lead=0.006)

    assert step == pytest.approx((0.001, 0.002, 0.004, 0.012))


def test_a_lead_lasts_as_long_as_was_asked_for(device: Device) -> None:
    clock = StepClock(on_gpu=True, can_lead=True)
    before = device.free_from

    clock.start(0.25)

    assert device.free_from - before == pytest.approx(0.25)


def runner_of(kind: str, *, ahead: bool = True, ranks: int = 1, speculator: object = None) -> SimpleNamespace:
    return SimpleNamespace(
        device=SimpleNamespace(type=kind),
        speculator=speculator,
        scheduler_config=SimpleNamespace(async_scheduling=ahead),
        vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(world_size_across_dp=ranks)),
    )


def test_the_drafter_tells_the_clock_when_it_starts() -> None:
    class Speculator:
        def propose(self, count: int) -> int:
            return count + 1

    speculator = Speculator()

    with step_clock(runner_of("cpu", speculator=speculator)) as clock:
        clock.start()
        clock.target_done()
        assert speculator.propose(2) == 3
        assert clock.stop().drafter_seconds > 0
    assert vars(speculator) == {}


@pytest.mark.parametrize(
    ("runner", "on_gpu", "can_lead"),
    [
        (runner_of("cuda"), True, True),
        (runner_of("cuda", ahead=False), True, False),
        (runner_of("cuda", ranks=2), True, False),
        (runner_of("cpu"), False, False),
    ],
)
@pytest.mark.usefixtures("device")
def test_a_device_has_a_lead_where_the_engine_prepares_ahead(
    runner: SimpleNamespace, on_gpu: bool, can_lead: bool
) -> None:
    with step_clock(runner) as clock:
        assert (clock.on_gpu, clock.can_lead) == (on_gpu, can_lead)


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

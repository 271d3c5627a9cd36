"""The switch between all drafts and those worth their time, on stand-ins for the engine's parts."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.graphs.hand_off import LOAD_AWARE_KEY, digest
from servespec.runtime.extension.install import varlen_tokens
from servespec.runtime.extension.load_aware import LoadSwitch, follow_load, rest_in_warm_ups
from servespec.runtime.extension.worker import uses_of
from tests.plans import compiled, model_folder, spec_of
from tests.strategies import EXTENSION

DEBUG = "vllm.utils.gpu_sync_debug"
ADAPTIVE = "vllm.v1.worker.gpu.spec_decode.adaptive_verification"


class Filled(list[float]):
    """A tensor or array, as far as it is filled."""

    def fill_(self, value: float) -> None:
        self[:] = [value] * len(self)

    fill = fill_


class Manager:
    """The engine's manager of adaptive verification, as far as it is looked into."""

    def __init__(self, costs: Any = ([0.1], [0.2])) -> None:
        self.cost_tables = costs
        self.waited: list[int] = []
        self._copy_events = [SimpleNamespace(synchronize=lambda at=at: self.waited.append(at)) for at in (0, 1)]
        self._confidence_probs = Filled([0.1, 0.2])
        self._stale_confidences = [SimpleNamespace(np=Filled([0.3])), SimpleNamespace(np=Filled([0.4]))]
        self._pending_resets = [3]
        self._batch_budget: Any = ({}, {}, 5)
        self.req_states = SimpleNamespace(max_num_reqs=100, max_model_len=4096)
        self.priced: list[Any] = []

    def batches_to_profile(self, capture_sizes: list[int]) -> Iterator[dict[str, int]]:
        return iter({"num_tokens": size, "context_len": 8192} for size in capture_sizes)

    def set_initial_cost_curves(self, samples: list[Any]) -> None:
        self.priced = samples

    def get_num_tokens(self, num_tokens_per_req: dict[str, int], draft_tokens: dict[str, list[int]]) -> int:
        return len(num_tokens_per_req) + len(draft_tokens)

    @property
    def confidences(self) -> list[float]:
        return [*self._confidence_probs, *(one for slot in self._stale_confidences for one in slot.np)]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> type:
    """The engine's modules that the switch imports; a class of its own each time, as its method is replaced."""
    fresh = type("AdaptiveVerificationManager", (Manager,), {})
    for name, content in ((DEBUG, {"gpu_sync_allowed": nullcontext}), (ADAPTIVE, {fresh.__name__: fresh})):
        parts = name.split(".")
        for depth in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), ModuleType(parts[depth - 1]))
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return fresh


def runner_of(manager: Any) -> Any:
    ran: list[tuple[int, bool]] = []
    graded: list[str] = []
    runner = SimpleNamespace(
        adaptive_verification=manager,
        rejection_sampler=SimpleNamespace(enable_adaptive_verification=manager is not None),
        speculator=SimpleNamespace(observe_verification=lambda *_, **__: graded.append("graded")),
        ran=ran,
        graded=graded,
    )

    def execute_model(output: Any, intermediate: Any = None, dummy_run: bool = False) -> str:
        ran.append((len(output.num_scheduled_tokens), runner.adaptive_verification is not None))
        runner.speculator.observe_verification()
        return "ran"

    runner.execute_model = execute_model
    return runner


def step(requests: int) -> Any:
    return SimpleNamespace(num_scheduled_tokens=dict.fromkeys(range(requests), 8))


def test_small_steps_run_without_the_manager_and_with_the_samplers_fixed_way() -> None:
    manager = Manager()
    runner = runner_of(manager)
    follow_load(runner, 4, 4, frozenset())

    for requests in (1, 64, 1, 3, 4):
        assert runner.execute_model(step(requests)) == "ran"
        is_adaptive = requests >= 4
        assert runner.adaptive_verification is (manager if is_adaptive else None)
        assert runner.rejection_sampler.enable_adaptive_verification is is_adaptive

    assert runner.ran == [(1, False), (64, True), (1, False), (3, False), (4, True)]


def test_a_manager_that_comes_back_knows_nothing_of_requests_it_did_not_see() -> None:
    manager = Manager()
    switch = LoadSwitch(runner_of(manager), 4, 4)

    switch.before_step(8)
    assert manager.confidences == [0.1, 0.2, 0.3, 0.4]  # it was never away
    switch.before_step(2)
    switch.before_step(8)

    assert manager.confidences == [1.0] * 4
    assert (manager._pending_resets, manager._batch_budget, manager.waited) == ([], None, [0, 1])


def test_only_adaptive_steps_teach_the_estimate() -> None:
    runner = runner_of(Manager())
    follow_load(runner, 4, 4, frozenset())

    for requests in (1, 5, 2, 9):
        runner.execute_model(step(requests))

    assert runner.graded == ["graded"] * 2


class Start:
    """A runner whose start is run as the engine's: kernels warm up, then all kernels once, then the capture.

    Source: vllm/v1/worker/gpu_worker.py: Worker._compile_or_warm_up_model.
    """

    def __init__(self, from_requests: int) -> None:
        self.manager = Manager(costs=None)
        self.runner = runner_of(self.manager)
        self.switch = follow_load(self.runner, from_requests, from_requests, frozenset())

    def steps(self, *requests: int) -> None:
        for count in requests:
            self.runner.execute_model(step(count))

    def all_kernels(self, *requests: int) -> None:
        """As warmup_kernels: without the manager, which it puts back as it found it."""
        found, self.runner.adaptive_verification = self.runner.adaptive_verification, None
        self.runner.rejection_sampler.enable_adaptive_verification = False
        self.steps(*requests)
        self.runner.adaptive_verification = found
        self.runner.rejection_sampler.enable_adaptive_verification = True

    def capture(self) -> None:
        """As capture_model: costs are measured where there is a manager."""
        if self.runner.adaptive_verification is not None:
            self.runner.adaptive_verification.cost_tables = ([0.1], [0.2])


@pytest.mark.parametrize("kernels", [(), (1, 2, 0), (1, 6, 0), (6, 1)])
@pytest.mark.parametrize("every_kernel", [(), (6, 6), (3, 6, 1)])
def test_a_start_finds_its_manager_where_it_left_it(kernels: tuple[int, ...], every_kernel: tuple[int, ...]) -> None:
    start = Start(4)

    start.steps(*kernels)
    assert start.runner.adaptive_verification is start.manager
    start.all_kernels(*every_kernel)
    start.capture()
    start.steps(6)

    assert start.runner.adaptive_verification is start.manager
    assert start.manager.cost_tables is not None
    assert start.runner.rejection_sampler.enable_adaptive_verification
    assert start.switch.counts() == {"fixed_steps": 0, "adaptive_steps": 1}


@pytest.mark.parametrize("load", [1, 6])
@pytest.mark.parametrize("kernels", [(), (1,), (6,)])
@pytest.mark.parametrize("every_kernel", [(), (6, 6), (1, 6, 1)])
def test_a_server_that_scales_times_its_steps_again_and_follows_the_load_after_it(
    load: int, kernels: tuple[int, ...], every_kernel: tuple[int, ...]
) -> None:
    """Its new workers time theirs at that moment, in steps that all workers take together."""
    start = Start(4)

    def warm_up() -> str:
        start.steps(*kernels)
        start.all_kernels(*every_kernel)
        start.capture()
        return "times"

    worker = SimpleNamespace(compile_or_warm_up_model=warm_up)
    rest_in_warm_ups(worker, start.switch)
    worker.compile_or_warm_up_model()
    start.steps(load)
    start.manager.cost_tables = "of a smaller server"

    assert worker.compile_or_warm_up_model() == "times"
    assert start.manager.cost_tables == ([0.1], [0.2])
    for requests, adapts in ((1, False), (6, True)):
        start.steps(requests)
        assert (start.runner.adaptive_verification is start.manager) is adapts
    assert sum(start.switch.counts().values()) == 3


def test_no_step_of_a_start_teaches_the_estimate() -> None:
    start = Start(4)

    start.steps(1, 6)
    start.all_kernels(6, 6, 1)
    start.capture()
    assert start.runner.graded == []

    start.steps(6)
    assert start.runner.graded == ["graded"]


@pytest.mark.parametrize("how", [{"dummy_run": True}, {"args": (None, True)}])
def test_steps_that_are_not_the_schedulers_are_left_alone(how: dict[str, Any]) -> None:
    """As those of captures and cost curves, which are of few requests and run with the manager."""
    manager = Manager()
    runner = runner_of(manager)
    switch = follow_load(runner, 4, 4, frozenset())

    runner.execute_model(step(1), *how.get("args", ()), **{k: v for k, v in how.items() if k != "args"})

    assert runner.adaptive_verification is manager
    assert (switch.fixed_steps, switch.adaptive_steps) == (0, 0)


def test_the_runner_keeps_the_switch_whose_counts_a_worker_reports_at_its_end() -> None:
    runner = runner_of(Manager())
    follow_load(runner, 4, 4, frozenset())

    for requests in (1, 8, 2):
        runner.execute_model(step(requests))

    assert runner.servespec_load_switch.counts() == {"fixed_steps": 2, "adaptive_steps": 1}


def test_a_step_without_requests_changes_nothing() -> None:
    manager = Manager()
    switch = LoadSwitch(runner_of(manager), 4, 4)
    switch.before_step(0)
    assert not switch.is_fixed
    switch.before_step(1)
    switch.before_step(0)
    assert switch.is_fixed


def test_warm_up_without_a_manager_holds_none() -> None:
    """The engine takes its manager off for the warm-up, and puts it back itself."""
    runner = runner_of(None)
    switch = LoadSwitch(runner, 4, 4)
    for requests in (1, 8, 1):
        switch.before_step(requests)
    assert (runner.adaptive_verification, switch.fixed_steps, switch.adaptive_steps) == (None, 0, 0)


def test_costs_are_measured_on_graphs_of_any_query_length_alone(engine: type) -> None:
    follow_load(runner_of(engine()), 4, 4, frozenset({64, 128}))

    profiled = [(one["num_tokens"], one["context_len"]) for one in engine().batches_to_profile([8, 64, 96, 128])]

    assert profiled == [(64, 1), (128, 1), (64, 8192)], "of 128 tokens there are not as many requests"


def test_what_a_cached_token_takes_is_agreed_on_by_all_ranks(engine: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank that times says 0.5 ms; what this one timed is 0 and not taken."""
    asked: list[tuple[float, int]] = []

    def broadcast_object(value: float, src: int) -> float:
        asked.append((value, src))
        return 0.5

    parallel = ModuleType("vllm.distributed.parallel_state")
    vars(parallel)["get_tp_group"] = lambda: SimpleNamespace(broadcast_object=broadcast_object)
    monkeypatch.setitem(sys.modules, "vllm.distributed", ModuleType("vllm.distributed"))
    monkeypatch.setitem(sys.modules, parallel.__name__, parallel)
    follow_load(runner_of(engine()), 4, 4, frozenset({64}))
    manager = engine()
    timed = SimpleNamespace(forward_ms=1.0, drafter_ms=1.0, num_target_tokens=64, num_reqs=64, full_cudagraph=True)
    samples = [timed for _ in manager.batches_to_profile([64])]

    manager.set_initial_cost_curves(samples)

    assert asked == [(0.0, 0)]
    assert manager.servespec_ms_per_cached_token == 0.5
    assert manager.priced == samples[:1], "the engine's curves are of short requests alone"


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(2, 10), st.integers(0, 4))
def test_each_step_has_the_kind_of_its_own_load_and_within_the_band_that_of_the_step_before(
    loads: list[int], from_requests: int, band: int
) -> None:
    fixed_below = max(2, from_requests - band)
    runner, chooses = runner_of(Manager()), False
    switch = LoadSwitch(runner, from_requests, fixed_below)
    kinds: list[bool] = []
    for requests in loads:
        switch.before_step(requests)
        if requests:
            chooses = requests >= from_requests or (chooses and requests >= fixed_below)
            kinds.append(chooses)
            assert switch.is_fixed is not chooses
            assert (runner.adaptive_verification is None) == switch.is_fixed
    assert switch.counts() == {"fixed_steps": kinds.count(False), "adaptive_steps": kinds.count(True)}


def test_a_load_that_swings_by_a_request_keeps_what_is_known_of_its_drafts() -> None:
    manager = Manager()
    switch = LoadSwitch(runner_of(manager), 64, 56)
    for requests in (60, 64):
        switch.before_step(requests)
    manager._confidence_probs[:] = [0.1, 0.2]

    for requests in (63, 64, 57, 63, 56):
        switch.before_step(requests)
        assert not switch.is_fixed
    assert list(manager._confidence_probs) == [0.1, 0.2]

    switch.before_step(55)
    assert switch.is_fixed
    switch.before_step(63)
    assert switch.is_fixed


@pytest.mark.usefixtures("quiet_shell")
def test_the_hand_off_says_from_when_on_and_which_graphs_take_any_query_length() -> None:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}
    given = {
        "speculative": {**draft, "load_aware": {"from_requests": 64}},
        "scheduler": {"max_num_seqs": 256},
        "compilation": {"max_decode_cudagraph_capture_requests": 256},
        "engine": EXTENSION,
    }
    plan = compiled(spec_of("qwen3-8b", "h200", **given))
    flag = plan.lowered.argv.index("--additional-config")
    handed = json.loads(plan.lowered.argv[flag + 1])["servespec"]

    assert handed[LOAD_AWARE_KEY] == [64, 56]
    assert handed["sha256"] == digest(handed)
    assert "load aware" in uses_of(handed)
    assert min(varlen_tokens(handed["managers"])) == 56
    (target,) = [one for one in handed["managers"] if one["class"] == "ModelCudaGraphManager"]
    uniform = [entry for entry in target["full"] if entry[2] is not None]
    assert max(requests for _, requests, *_ in uniform) == 63

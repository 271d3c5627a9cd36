"""The extension at work in a worker: what it refuses, and what it leaves behind. Its graphs: tests/differential."""

import errno
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from servespec.compiler.graphs.hand_off import HAND_OFF_KEY
from servespec.compiler.lower import EXTENSION_CLASS
from servespec.runtime.extension import answers, replay, step_times
from servespec.runtime.extension import worker as extension_worker
from servespec.runtime.extension.failure import PHASES
from servespec.runtime.extension.install import PlanMismatchError
from servespec.runtime.extension.report import write_left
from servespec.runtime.extension.split_rule import widest_full_tokens
from servespec.runtime.extension.step_times_batches import Wanted
from servespec.runtime.extension.worker import PlannedGraphs, check_engine, hand_off_of
from servespec.runtime.last_reports import ask_for_last_reports
from tests.differential.engine_oracle import engine_root
from tests.plans import Json, compiled, model_folder, spec_of
from tests.runtime.engine_types import Descriptor, Mode
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")


def handed(**sections: Any) -> Json:
    """What the launch line of a plan hands to the workers."""
    argv = compiled(spec_of("qwen3-8b", "h200", engine=EXTENSION, **sections)).lowered.argv
    config: Json = json.loads(argv[argv.index("--additional-config") + 1])
    return config


def test_the_launch_line_names_the_class() -> None:
    argv = compiled(spec_of("qwen3-8b", "h200", engine=EXTENSION)).lowered.argv
    module, _, name = EXTENSION_CLASS.rpartition(".")

    assert argv[argv.index("--worker-extension-cls") + 1] == EXTENSION_CLASS
    assert getattr(sys.modules[module], name) is PlannedGraphs
    assert [one for one in dir(PlannedGraphs) if not one.startswith("__")] == [
        "destroy_worker_extension",
        "init_worker_extension",
    ]


def test_the_hand_off_arrives() -> None:
    given = hand_off_of(handed())

    assert [entry["class"] for entry in given["managers"]] == ["ModelCudaGraphManager"]
    assert given["engine"] == "0.33.0"


def changed(**changes: Any) -> Json:
    config = handed()
    config[HAND_OFF_KEY].update(changes)
    return config


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "holds no `servespec`"),
        (None, "holds no `servespec`"),
        ({HAND_OFF_KEY: "text"}, "holds no `servespec`"),
        (changed(managers=[]), "was changed on its way"),
        (changed(format=2), "was changed on its way"),
        (changed(sha256="0"), "was changed on its way"),
    ],
)
def test_a_hand_off_that_is_not_whole_is_refused(config: Any, said: str) -> None:
    with pytest.raises(PlanMismatchError, match=said):
        hand_off_of(config)


@pytest.mark.skipif(engine_root("0.33.0") is None or engine_root("0.32.0") is None, reason="needs the engines' source")
def test_another_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install_vllm(monkeypatch, engine_root("0.33.0"))
    check_engine("0.33.0")

    install_vllm(monkeypatch, engine_root("0.32.0"))
    with pytest.raises(PlanMismatchError, match=r"this engine is not vLLM 0\.33\.0: vllm/.* and \d+ more differ"):
        check_engine("0.33.0")


def install_vllm(monkeypatch: pytest.MonkeyPatch, root: Path | None) -> None:
    module = ModuleType("vllm")
    module.__file__ = f"{root}/vllm/__init__.py"
    monkeypatch.setitem(sys.modules, "vllm", module)


class Manager:
    def __init__(self) -> None:
        self.cudagraph_mode = SimpleNamespace(name="FULL_AND_PIECEWISE")
        self.decode_query_len, self.breakable_cg_runner = 1, None
        self.graphs = {Descriptor(Mode.FULL, count, count, 1): None for count in (4, 2)}

    def _init_candidates(self) -> None:
        raise AssertionError("the engine's own method ran")

    def capture(self, create_forward_fn: Callable[..., object]) -> None:
        """As the engine's: each graph is made once to warm up and once more to be captured."""
        for descriptor in self.graphs:
            create_forward_fn(descriptor, warmup=True)
            create_forward_fn(descriptor, warmup=False)
            Device.reserved_bytes += 10 * descriptor.num_tokens
            Device.free_bytes -= 11 * descriptor.num_tokens


class Device:
    """Memory of the one device: what the allocator holds, and what is free."""

    reserved_bytes, free_bytes = 4000, 100_000


class Runner:
    def __init__(self) -> None:
        self.cudagraph_manager, self.speculator = Manager(), None
        self.profiled: list[bool] = []
        self.attn_groups: list[list[SimpleNamespace]] = []
        self.model_memory_usage = 3000
        self.kv_cache_config = SimpleNamespace(kv_cache_tensors=[SimpleNamespace(size=500, host_resident=False)])

    def initialize_kv_cache(self, *_: object, **__: object) -> None:
        """As the engine's: the builders of before are gone."""
        with_the_rule, without = SimpleNamespace(max_cudagraph_size=8192), SimpleNamespace()
        self.attn_groups = [[SimpleNamespace(metadata_builders=[with_the_rule, without])]]

    def capture_model(self, *, profile_only: bool = False) -> int:
        self.profiled.append(profile_only)
        sys.modules["vllm.v1.worker.gpu.cudagraph_utils"].CudaGraphManager.capture(self.cudagraph_manager, made)
        return 1 << 20


def made(descriptor: object, warmup: bool) -> None:
    """The forward function of a graph."""


class Snapshot:
    """As the engine's: of the moment that it is made in."""

    def __init__(self, device: str) -> None:
        self.device_, self.free_memory, self.total_memory = device, Device.free_bytes, 140_000


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A worker of one rank in an engine whose modules are stand-ins, with its source that of 0.33.0."""
    switches: list[bool] = []
    descriptor = Descriptor(Mode.PIECEWISE, 8, 8, 1)
    wrapper = SimpleNamespace(concrete_cudagraph_entries={descriptor: SimpleNamespace(cudagraph=object())})
    modules = {
        "torch": {
            "accelerator": SimpleNamespace(
                get_memory_info=lambda: (Device.free_bytes, 140_000),
                memory_reserved=lambda: Device.reserved_bytes,
                synchronize=lambda: None,
                empty_cache=lambda: None,
            )
        },
        "vllm.distributed.parallel_state": {"get_world_group": lambda: SimpleNamespace(world_size=1)},
        "vllm.config.compilation": {"CUDAGraphMode": SimpleNamespace(FULL=2, PIECEWISE=1)},
        "vllm.v1.worker.gpu.cudagraph_utils": {
            "CudaGraphManager": type("CudaGraphManager", (Manager,), {}),
            "BatchExecutionDescriptor": Descriptor,
        },
        "vllm.compilation.monitor": {"set_cudagraph_capturing_enabled": switches.append},
        "vllm.compilation.cuda_graph": {"CUDAGraphWrapper": SimpleNamespace(_all_instances=[wrapper])},
    }
    install_vllm(monkeypatch, engine_root("0.33.0"))
    envs = SimpleNamespace(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=True, VLLM_ELASTIC_EP_SCALE_UP_LAUNCH=False)
    monkeypatch.setattr(sys.modules["vllm"], "envs", envs, raising=False)
    monkeypatch.setattr(Device, "reserved_bytes", 4000)
    monkeypatch.setattr(Device, "free_bytes", 100_000)
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("SERVESPEC_RECORD_FOLDER", str(tmp_path))
    parallel = SimpleNamespace(data_parallel_rank=0, data_parallel_index=1)
    config = SimpleNamespace(additional_config=handed(), parallel_config=parallel)
    calls = {name: lambda: None for name in PHASES}
    own = {"init_snapshot": Snapshot("cuda:0"), "peak_activation_memory": 900, "cudagraph_memory_estimate": 200}
    return SimpleNamespace(vllm_config=config, model_runner=Runner(), rank=0, switches=switches, **own, **calls)


needs_engine = pytest.mark.skipif(engine_root("0.33.0") is None, reason="needs the engine's source")


@needs_engine
def test_a_report_is_left_after_the_real_capture_alone(worker: SimpleNamespace, tmp_path: Path) -> None:
    PlannedGraphs.init_worker_extension(worker)
    worker.model_runner.initialize_kv_cache(object())

    assert worker.model_runner.capture_model(profile_only=True) == 1 << 20
    assert list(tmp_path.iterdir()) == []
    assert worker.model_runner.capture_model() == 1 << 20

    report = json.loads((tmp_path / "captured-1-0.json").read_text())
    assert report["managers"] == [
        {
            "class": "Manager",
            "query_len": 1,
            "mode": "FULL_AND_PIECEWISE",
            "full": [[2, 2, 1, 0, 0, 1, 0], [4, 4, 1, 0, 0, 1, 0]],
            "breakable": None,
        }
    ]
    assert report["compiled_pieces"] == [{"pieces": 1, "sizes": [[8, 0]]}]
    assert report["sha256"] == worker.vllm_config.additional_config[HAND_OFF_KEY]["sha256"]
    assert report["graph_bytes"] == 1 << 20
    assert report["split_rule_tokens"] == [max(tokens for tokens, *_ in planned_full(worker))]
    (captures,) = report["captures"]
    assert [one["graph"] for one in captures["graphs"]] == [[4, 4, 1, 0, 0, 1, 0], [2, 2, 1, 0, 0, 1, 0]]
    assert [(one["pool_bytes"], one["device_bytes"]) for one in captures["graphs"]] == [(40, 44), (20, 22)]
    assert report["memory"] == {
        "device_bytes": 140_000,
        "free_at_start_bytes": 100_000,
        "weights_bytes": 3000,
        "held_bytes": 2 * (44 + 22) - 500,  # the profiled capture's memory was not given back
        "peak_bytes": 700,
        "engine_estimate_bytes": 200,
        "kv_cache_bytes": 500,
    }


@needs_engine
def test_what_the_engine_does_not_profile_is_not_known(worker: SimpleNamespace, tmp_path: Path) -> None:
    """With a KV cache of given size."""
    del worker.peak_activation_memory, worker.cudagraph_memory_estimate
    PlannedGraphs.init_worker_extension(worker)

    worker.model_runner.capture_model()

    memory = json.loads((tmp_path / "captured-1-0.json").read_text())["memory"]
    assert (memory["peak_bytes"], memory["engine_estimate_bytes"]) == (None, None)


@needs_engine
@pytest.mark.parametrize("asked", [False, True])
def test_remedies_are_applied_and_reported(
    worker: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    own: Json = {"maybe_apply_startup_plan": print, "maybe_save_startup_plan": print}
    gpu_worker = SimpleNamespace(**own)
    monkeypatch.setitem(sys.modules, "vllm.v1.worker", ModuleType("vllm.v1.worker"))
    monkeypatch.setattr(sys.modules["vllm.v1.worker"], "gpu_worker", gpu_worker, raising=False)
    worker.vllm_config.additional_config = handed(remedies={"kv_from_measurement": asked})

    PlannedGraphs.init_worker_extension(worker)
    worker.model_runner.capture_model()

    report = json.loads((tmp_path / "captured-1-0.json").read_text())
    assert report["remedies"] == ({"kv_from_measurement": 0} if asked else {})
    assert (vars(gpu_worker) == own) is not asked


@needs_engine
def test_a_worker_that_follows_the_load_does_not_while_it_warms_up(
    worker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = type("AdaptiveVerificationManager", (), {"cost_tables": ([0.1], [0.2])})
    for name in ("batches_to_profile", "set_initial_cost_curves", "get_num_tokens"):
        setattr(manager, name, None)
    module = ModuleType("adaptive_verification")
    monkeypatch.setattr(module, manager.__name__, manager, raising=False)
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu.spec_decode.adaptive_verification", module)
    monkeypatch.setattr(extension_worker, "apply_remedies", lambda _: {})
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}
    graphs = {"max_decode_cudagraph_capture_requests": 256}
    follows = {"speculative": {**draft, "load_aware": {"from_requests": 64}}, "scheduler": {"max_num_seqs": 256}}
    runner, adapts = worker.model_runner, list[bool]()
    runner.adaptive_verification, runner.rejection_sampler = manager(), SimpleNamespace()
    runner.execute_model = lambda *_: adapts.append(runner.adaptive_verification is not None)
    worker.compile_or_warm_up_model = lambda: runner.execute_model(step_of_one)
    worker.vllm_config.speculative_config = SimpleNamespace(rejection_sample_method="standard")
    worker.vllm_config.additional_config = handed(**follows, compilation=graphs)
    step_of_one = SimpleNamespace(num_scheduled_tokens={"one": 8})

    PlannedGraphs.init_worker_extension(worker)
    worker.compile_or_warm_up_model()
    runner.execute_model(step_of_one)

    assert adapts == [True, False]


def planned_full(worker: SimpleNamespace) -> list[list[int]]:
    entries = worker.vllm_config.additional_config[HAND_OFF_KEY]["managers"]
    return [graph for entry in entries for graph in entry["full"]]


@needs_engine
@pytest.mark.parametrize("listed_tokens", [8192, 4, None])
def test_the_split_rule_reaches_the_widest_full_graph_at_most(worker: SimpleNamespace, listed_tokens: int) -> None:
    PlannedGraphs.init_worker_extension(worker)
    runner, drafter = worker.model_runner, SimpleNamespace(max_cudagraph_size=listed_tokens)
    runner.speculator = SimpleNamespace(attn_groups=[[SimpleNamespace(metadata_builders=[drafter])]])
    widest = max(tokens for tokens, *_ in planned_full(worker))
    assert 4 < widest < 8192

    for is_profiling in (True, False):  # the builders are made twice
        runner.initialize_kv_cache(object(), is_profiling=is_profiling)

        with_the_rule, without = runner.attn_groups[0][0].metadata_builders
        assert with_the_rule.max_cudagraph_size == widest
        assert vars(without) == {}
        assert drafter.max_cudagraph_size == (listed_tokens and min(listed_tokens, widest))


def test_a_plan_without_full_graphs_leaves_every_step_to_the_kernel() -> None:
    assert widest_full_tokens([]) == 0
    assert (
        widest_full_tokens([{"full": []}, {"full": [[16, 4, 4, None], [32, 8, 4, None]]}, {"full": [[9, 9, 1, 0]]}])
        == 32
    )


@needs_engine
def test_the_graphs_are_read_again_when_the_worker_ends(worker: SimpleNamespace, tmp_path: Path) -> None:
    PlannedGraphs.init_worker_extension(worker)
    worker.model_runner.capture_model()
    worker.model_runner.cudagraph_manager.graphs.popitem()

    PlannedGraphs.destroy_worker_extension(worker)

    captured, left = (json.loads((tmp_path / f"{name}-1-0.json").read_text()) for name in ("captured", "left"))
    assert [len(one["managers"][0]["full"]) for one in (captured, left)] == [2, 1]
    assert left["compiled_pieces"] == captured["compiled_pieces"]


@needs_engine
def test_a_worker_answers_from_its_first_report_on(worker: SimpleNamespace, tmp_path: Path) -> None:
    """What processes of all kinds answer: tests/runtime/test_last_reports.py."""
    PlannedGraphs.init_worker_extension(worker)
    worker.model_runner.capture_model(profile_only=True)
    assert list(tmp_path.iterdir()) == []
    worker.model_runner.capture_model()
    worker.model_runner.cudagraph_manager.graphs.popitem()

    ask_for_last_reports([tmp_path / "captured-1-0.json"], 30.0)

    captured, left = (json.loads((tmp_path / f"{name}-1-0.json").read_text()) for name in ("captured", "left"))
    assert "pid" not in captured
    assert [len(one["managers"][0]["full"]) for one in (captured, left)] == [2, 1]


@needs_engine
def test_one_that_captures_again_answers_once(
    worker: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an engine changes its ranks."""
    answered: list[SimpleNamespace] = []
    monkeypatch.setattr(answers, "write_left", lambda one: (answered.append(one), write_left(one)))
    before = threading.active_count()
    PlannedGraphs.init_worker_extension(worker)
    worker.model_runner.capture_model()
    pipe = (tmp_path / "ask-1-0").stat().st_ino

    worker.model_runner.capture_model()
    ask_for_last_reports([tmp_path / "captured-1-0.json"], 30.0)

    assert (threading.active_count() - before, (tmp_path / "ask-1-0").stat().st_ino) == (1, pipe)
    assert answered == [worker]


@needs_engine
@pytest.mark.parametrize(
    ("place", "name", "error"),
    [(os, "mkfifo", OSError(errno.EPERM, "not permitted")), (threading.Thread, "start", RuntimeError("no thread"))],
)
def test_a_worker_that_cannot_answer_serves_all_the_same(
    worker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, place: object, name: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    PlannedGraphs.init_worker_extension(worker)
    monkeypatch.setattr(place, name, fail)

    assert worker.model_runner.capture_model() == 1 << 20


@needs_engine
def test_nobody_can_ask_a_worker_that_has_ended(worker: SimpleNamespace, tmp_path: Path) -> None:
    PlannedGraphs.init_worker_extension(worker)
    worker.model_runner.capture_model()

    PlannedGraphs.destroy_worker_extension(worker)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["captured-1-0.json", "left-1-0.json"]


@needs_engine
def test_a_worker_that_captured_nothing_leaves_nothing(worker: SimpleNamespace, tmp_path: Path) -> None:
    """A start that fails ends here too, with a worker that may have no runner yet."""
    PlannedGraphs.init_worker_extension(worker)
    worker.model_runner = None

    PlannedGraphs.destroy_worker_extension(worker)

    assert list(tmp_path.iterdir()) == []


@needs_engine
def test_late_capture_is_off_after_the_real_one_and_on_while_it_runs(worker: SimpleNamespace) -> None:
    PlannedGraphs.init_worker_extension(worker)

    worker.model_runner.capture_model(profile_only=True)
    assert worker.switches == [True]
    worker.model_runner.capture_model()
    assert worker.switches == [True, True, False]


@needs_engine
def test_nothing_is_written_where_no_folder_is_named(
    worker: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERVESPEC_RECORD_FOLDER")
    PlannedGraphs.init_worker_extension(worker)

    worker.model_runner.capture_model()

    assert list(tmp_path.iterdir()) == []


@needs_engine
@pytest.mark.parametrize("asked", [None, "0", "1"])
def test_graphs_are_replayed_after_the_warm_up_where_that_is_asked_for(
    worker: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None
) -> None:
    if asked is not None:
        monkeypatch.setenv("SERVESPEC_VERIFY", asked)
    worker.compile_or_warm_up_model = lambda: "times"

    def replayed(given: SimpleNamespace, result: Any, write: Any) -> None:
        assert given is worker
        result.complete = True
        write(result)

    monkeypatch.setattr(replay, "replay", replayed)
    PlannedGraphs.init_worker_extension(worker)

    assert worker.compile_or_warm_up_model() == "times"
    left = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()}
    assert list(left) == (["verified-1-0.json"] if asked == "1" else [])
    assert all(one["complete"] for one in left.values())


@needs_engine
def test_steps_are_timed_after_the_warm_up_where_that_is_asked_for(
    worker: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Wanted(requests=(1, 8), tokens=None, repeats=3)
    monkeypatch.setenv("SERVESPEC_STEPS", json.dumps(wanted.to_json()))
    worker.compile_or_warm_up_model = lambda: "times"

    def timed(given: SimpleNamespace, result: Any, write: Any) -> None:
        assert given is worker
        assert result.wanted == wanted
        result.complete = True
        write(result)

    monkeypatch.setattr(step_times, "time_steps", timed)
    PlannedGraphs.init_worker_extension(worker)

    assert worker.compile_or_warm_up_model() == "times"
    left = json.loads((tmp_path / "steps-1-0.json").read_text(encoding="utf-8"))
    assert (left["complete"], left["sha256"]) == (True, worker.vllm_config.additional_config[HAND_OFF_KEY]["sha256"])


@needs_engine
def test_ranks_with_different_plans_capture_nothing(worker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(everyone: list[str | None], own: str, group: object) -> None:
        everyone[:] = [own, "another"]

    group = SimpleNamespace(world_size=2, cpu_group=object())
    monkeypatch.setattr(sys.modules["vllm.distributed.parallel_state"], "get_world_group", lambda: group)
    monkeypatch.setattr(sys.modules["torch"], "distributed", SimpleNamespace(all_gather_object=gather), raising=False)

    with pytest.raises(PlanMismatchError, match="2 different plans"):
        PlannedGraphs.init_worker_extension(worker)


@needs_engine
def test_a_worker_that_joins_a_server_asks_no_rank(worker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks that serve would never answer."""

    def gather(*_: object, **__: object) -> None:
        raise AssertionError("a collective that the other ranks do not take part in")

    group = SimpleNamespace(world_size=4, cpu_group=object())
    monkeypatch.setattr(sys.modules["vllm.distributed.parallel_state"], "get_world_group", lambda: group)
    monkeypatch.setattr(sys.modules["torch"], "distributed", SimpleNamespace(all_gather_object=gather), raising=False)
    monkeypatch.setattr(sys.modules["vllm"].envs, "VLLM_ELASTIC_EP_SCALE_UP_LAUNCH", True)
    installed = worker.model_runner.capture_model

    PlannedGraphs.init_worker_extension(worker)

    assert worker.model_runner.capture_model != installed


@needs_engine
def test_a_failed_start_leaves_a_record(worker: SimpleNamespace, tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("no such weight")

    worker.load_model = fail
    PlannedGraphs.init_worker_extension(worker)

    with pytest.raises(ValueError, match="no such weight"):
        worker.load_model()
    assert json.loads((tmp_path / "failed-1-0.json").read_text())["message"] == "no such weight"

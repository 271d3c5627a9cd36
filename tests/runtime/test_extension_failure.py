"""What a worker leaves when its start fails, and that it fails as before."""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from servespec.runtime.engine_log import Phase
from servespec.runtime.extension.failure import CAPTURING, PHASES, record_failures
from tests.runtime.engine_types import Descriptor, Mode


def decorated(function: Callable[..., None]) -> Callable[..., None]:
    """As the engine's method is, which hides its code."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)

    return run


class CudaGraphManager:
    decode_query_len = 2

    @decorated
    def capture(self, create_forward_fn: Callable[[Descriptor], None]) -> None:
        for desc in [Descriptor(Mode.FULL, tokens, 4, 2) for tokens in (8, 4, 2)]:
            create_forward_fn(desc)


class ModelCudaGraphManager(CudaGraphManager):
    def capture(self, create_forward_fn: Callable[[Descriptor], None]) -> None:
        desc = "not the loop's"
        assert desc
        super().capture(create_forward_fn)


class Worker:
    """Fails in one of its calls; in a capture, at the graph of four tokens."""

    def __init__(self, fails_in: str, error: BaseException, *, captures: bool) -> None:
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=1))
        self.rank, self.fails_in, self.error, self.captures = 3, fails_in, error, captures

    def load_model(self, *, load_dummy_weights: bool = False) -> bool:
        self._run("load_model")
        return load_dummy_weights

    def determine_available_memory(self) -> None:
        self._run("determine_available_memory")

    def initialize_from_config(self, config: object) -> None:
        assert config
        self._run("initialize_from_config")

    def compile_or_warm_up_model(self) -> None:
        self._run("compile_or_warm_up_model")

    def _run(self, name: str) -> None:
        if name != self.fails_in:
            return
        if self.captures:
            self.capture_model()
        raise self.error

    def capture_model(self) -> None:
        start_free_gpu_memory = 900
        assert start_free_gpu_memory

        def fail(desc: Descriptor) -> None:
            if desc.num_tokens == 4:
                raise self.error

        ModelCudaGraphManager().capture(fail)


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch, graphs = ModuleType("torch"), ModuleType("vllm.v1.worker.gpu.cudagraph_utils")
    vars(torch)["accelerator"] = SimpleNamespace(get_memory_info=lambda: (100, 1000))
    vars(graphs)["CudaGraphManager"] = CudaGraphManager
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, graphs.__name__, graphs)
    monkeypatch.setenv("SERVESPEC_RECORD_FOLDER", str(tmp_path))


def start(fails_in: str, error: BaseException, *, captures: bool = False) -> None:
    worker = Worker(fails_in, error, captures=captures)
    record_failures(worker)
    assert worker.load_model(load_dummy_weights=True)
    worker.determine_available_memory()
    worker.initialize_from_config(object())
    worker.compile_or_warm_up_model()


def test_the_graph_that_was_being_captured_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(MemoryError, match="out of memory"):
        start("compile_or_warm_up_model", MemoryError("out of memory"), captures=True)

    assert json.loads((tmp_path / "failed-1-3.json").read_text()) == {
        "format": 1,
        "phase": "capturing graphs",
        "error": "MemoryError",
        "message": "out of memory",
        "free_bytes": 100,
        "class": "ModelCudaGraphManager",
        "query_len": 2,
        "mode": "FULL",
        "graph": [4, 4, 2, 0, 0, 1, 0],
    }


@pytest.mark.parametrize("name", PHASES)
def test_each_call_of_the_start_has_its_phase(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="odd"):
        start(name, ValueError("odd"))

    record = json.loads((tmp_path / "failed-1-3.json").read_text())
    assert (record["phase"], record["graph"]) == (PHASES[name], None)


def test_a_graph_of_the_profiling_pass_is_recorded_as_such(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        start("determine_available_memory", MemoryError(), captures=True)

    record = json.loads((tmp_path / "failed-1-3.json").read_text())
    assert (record["phase"], record["graph"][0]) == ("profiling memory", 4)


def test_a_stop_by_a_signal_is_no_failure(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        start("load_model", SystemExit())

    assert list(tmp_path.iterdir()) == []


def test_a_start_that_succeeds_leaves_nothing(tmp_path: Path) -> None:
    start("nothing", ValueError())

    assert list(tmp_path.iterdir()) == []


def test_neither_a_full_disk_nor_a_broken_device_hides_the_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr(sys.modules["torch"], "accelerator", SimpleNamespace(get_memory_info=broken))
    with pytest.raises(ValueError, match="odd"):
        start("load_model", ValueError("odd"))
    assert json.loads((tmp_path / "failed-1-3.json").read_text())["free_bytes"] is None

    monkeypatch.setenv("SERVESPEC_RECORD_FOLDER", str(tmp_path / "gone"))
    with pytest.raises(ValueError, match="odd"):
        start("load_model", ValueError("odd"))


def test_the_phases_are_those_of_the_log() -> None:
    assert {*PHASES.values(), CAPTURING} <= set(Phase)

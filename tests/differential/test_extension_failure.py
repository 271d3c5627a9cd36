"""A graph that fails in the engine's own capture loop is found on its stack, and at its place in the plan's order."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from servespec.compiler.graphs.managers import Manager, managers_of, own_shapes
from servespec.compiler.plan import Plan
from servespec.runtime.extension.failure import record_failures
from servespec.runtime.shortage import capture_order, read_shortage
from tests.differential.test_extension import Installed, golden_plan, needs_engine, plan_of
from tests.plans import model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

EAGLE3 = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}


def eagle3_plan(**sections: Any) -> Plan:
    return plan_of(spec_of("qwen3-8b", "h200", speculative=EAGLE3, scheduler={"max_num_seqs": 64}, **sections))


def fail_at(plan: Plan, manager: Manager, place: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the engine's loop of one manager until it prepares the graph at ``place``, in a worker that records."""
    installed = Installed(plan)
    engines_own = installed.manager(manager)._manager
    graphs = ModuleType("vllm.v1.worker.gpu.cudagraph_utils")
    vars(graphs)["CudaGraphManager"] = installed.base
    torch = ModuleType("torch")
    vars(torch)["accelerator"] = SimpleNamespace(get_memory_info=lambda: (3, 4))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, graphs.__name__, graphs)
    monkeypatch.setenv("SERVESPEC_RECORD_FOLDER", str(folder))
    prepared = 0

    def create_forward_fn(desc: Any, warmup: bool) -> Any:
        nonlocal prepared
        if warmup and prepared == place:
            raise MemoryError("CUDA out of memory")
        prepared += warmup
        return lambda _: None

    def compile_or_warm_up_model() -> None:
        engines_own.capture(create_forward_fn)

    config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=0))
    calls = dict.fromkeys(("load_model", "determine_available_memory", "initialize_from_config"))
    worker = SimpleNamespace(vllm_config=config, rank=0, **calls, compile_or_warm_up_model=compile_or_warm_up_model)
    record_failures(worker)
    with pytest.raises(MemoryError):
        worker.compile_or_warm_up_model()


@needs_engine
@pytest.mark.parametrize("case", ["two kinds", "wide decode", "lora", "adaptive-verification-gb200"])
def test_every_manager_and_place(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = {
        "two kinds": eagle3_plan,
        "wide decode": lambda: eagle3_plan(compilation={"prefill_cudagraph_capture_token_sizes": [64]}),
        "lora": lambda: golden_plan("lora", monkeypatch),
    }
    plan = plans.get(case, lambda: golden_plan(case, monkeypatch))()
    (tmp_path / "engine.log").write_text("")
    before = 0
    for manager in managers_of(plan.resolution.frame):
        own = len(own_shapes(manager, plan.graphs.shapes))
        for place in sorted({0, 1, own // 2, own - 1} & set(range(own))):
            fail_at(plan, manager, place, tmp_path, monkeypatch)
            found = read_shortage(plan, tmp_path, tmp_path / "engine.log")

            record = json.loads((tmp_path / "failed-0-0.json").read_text())
            assert found.shape is capture_order(plan)[before + place], (record, found)
            assert (found.captured_graphs, found.free_bytes) == (before + place, 3)
        before += own
    assert before == len(plan.graphs.shapes) > 0

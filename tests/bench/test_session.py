"""The order of a bench, what is measured and what is not, and going on where a file ends."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from servespec.diagnostics import Place, SpecError
from servespec.runtime.bench.bench_rules import ARM_FAILED, CLIENT_FAILED
from servespec.runtime.bench.client_process import Load
from servespec.runtime.bench.design import BenchDesign
from servespec.runtime.bench.results import BENCH_SCHEMA, Results, open_results
from servespec.runtime.bench.session import ArmStarting, Bench, BenchEvent, CellDone, run_bench
from servespec.runtime.bench.steps import steps_between
from tests.bench.test_design import DESIGN

HEAD = {
    "format": 1,
    "what": "a test",
    "servespec": "0",
    "versions": {"vllm": "0.33.0", "torch": None},
    "device": [],
    "driver": None,
    "date": "2026-01-01",
    "command": "servespec bench",
    "spec_sha256": "0",
    "spec_text": "servespec: 1",
    "acceptance": "none",
    "design": {},
    "arms": {"stock": {}, "legacy": {}, "extension": {}},
}


MEASURED = {
    "verdict": "as_planned",
    "evidence": "workers",
    "ranks": [{"data_parallel_rank": 0, "rank": 0, "capture_seconds": 9.5, "graph_bytes": 1 << 30}],
    "engine_said": {"model_bytes": 1, "kv_cache_tokens": 2, "graph_pool_bytes": 3},
}


@dataclass
class Machine:
    """Stand-ins for servers and client, which write down what is asked of them."""

    told: list[str] = field(default_factory=list)
    up: set[str] = field(default_factory=set)
    most_up: int = 0
    fail_after: int = 10_000
    dead: bool = False
    steps: Counter[tuple[str, str]] = field(default_factory=Counter)
    loads: list[Load] = field(default_factory=list)

    def check_alive(self) -> None:
        if self.dead:
            raise SpecError([ARM_FAILED.at(Place("serve.log"), "arm `stock` is not served")])

    def observe(self, _: Any, run: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        before = self.steps.copy()
        result = run()
        seen = {"steps": steps_between(before, self.steps), "client_cores": 0.5, "api_server_cores": None}
        return result, seen

    @contextmanager
    def arm_up(self, arm: Any, folder: Path) -> Iterator[Any]:
        self.told.append(f"start {folder.name}")
        self.up.add(arm.label)
        self.most_up = max(self.most_up, len(self.up))
        url, measured = f"http://{arm.label}", lambda: MEASURED
        yield SimpleNamespace(
            arm=arm,
            base_url=url,
            folder=folder,
            wait_until_ready=lambda: 1.5,
            measured=measured,
            check_alive=self.check_alive,
        )
        self.up.remove(arm.label)
        self.told.append(f"stop {arm.label}")

    def run(self, load: Load) -> dict[str, Any]:
        assert load.base_url.removeprefix("http://") in self.up
        if len(self.told) >= self.fail_after:
            raise SpecError([CLIENT_FAILED.at(Place("client.log"), "gone")])
        self.told.append(f"{load.base_url.removeprefix('http://')} {load.concurrency}x{load.prompts}")
        self.loads.append(load)
        self.steps["FULL", "steps"] += load.prompts
        return {"completed": load.prompts, "first_error": None, "output_throughput": 100.0, "mean_tpot_ms": 2.0}


def bench_of(design: BenchDesign, machine: Machine, folder: Path, events: list[BenchEvent] | None = None) -> Bench:
    arms = {label: SimpleNamespace(label=label, tokenizer="t", served_name="m") for label in design.arms}
    on_event = events.append if events is not None else lambda _: None
    return Bench(
        design=design,
        arms=arms,  # type: ignore[arg-type]
        folder=folder,
        arm_up=machine.arm_up,
        client=machine,
        observe=machine.observe,
        on_event=on_event,
    )


def full_steps(steps: int) -> dict[str, Any]:
    return {"FULL": {"steps": steps, "unpadded_tokens": 0, "padding_tokens": 0}}


SMALL = replace(DESIGN, arms=("stock", "extension"), concurrencies=(1, 4), rounds=2, prompts_per_request=3)
TOGETHER = replace(SMALL, side_by_side_kv_bytes=1 << 30)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "bench.json", HEAD)


def test_arms_that_take_turns_are_never_up_together(results: Results, tmp_path: Path) -> None:
    machine = Machine()
    run_bench(bench_of(SMALL, machine, tmp_path), results)

    assert machine.most_up == 1
    assert machine.told == [
        *("start stock-0", "stop stock", "start extension-0", "stop extension"),
        *("start stock-1", "stock 1x1", "stock 4x4", "stock 1x3", "stock 4x12", "stop stock"),
        *("start extension-1", "extension 1x1", "extension 4x4", "extension 1x3", "extension 4x12", "stop extension"),
        *("start extension-2", "extension 1x1", "extension 4x4", "extension 1x3", "extension 4x12", "stop extension"),
        *("start stock-2", "stock 1x1", "stock 4x4", "stock 1x3", "stock 4x12", "stop stock"),
    ]


def test_arms_side_by_side_are_launched_once_and_have_requests_in_turns(results: Results, tmp_path: Path) -> None:
    machine = Machine()
    run_bench(bench_of(TOGETHER, machine, tmp_path), results)

    assert machine.most_up == 2
    assert machine.told == [
        *("start stock-1", "start extension-1"),
        *("stock 1x1", "stock 4x4", "extension 1x1", "extension 4x4"),
        *("stock 1x3", "extension 1x3", "stock 4x12", "extension 4x12"),
        *("extension 1x3", "stock 1x3", "extension 4x12", "stock 4x12"),
        *("stop extension", "stop stock"),
    ]


@pytest.mark.parametrize("design", [SMALL, TOGETHER])
def test_no_server_meets_prompts_again_and_all_arms_meet_the_same(
    results: Results, tmp_path: Path, design: BenchDesign
) -> None:
    """A prefix cache would hold them, and the prefill that a round is to measure would not be run."""
    machine = Machine()
    run_bench(bench_of(design, machine, tmp_path), results)
    measured = [load for load in machine.loads if load.prompts > load.concurrency]
    warm_up = {load.seed for load in machine.loads if load.prompts == load.concurrency}

    by_arm = {
        arm: [load.seed for load in sorted(measured, key=lambda one: one.concurrency) if load.base_url.endswith(arm)]
        for arm in design.arms
    }
    assert by_arm["stock"] == by_arm["extension"]
    assert len(set(by_arm["stock"])) == len(by_arm["stock"]) == 4
    assert not warm_up & set(by_arm["stock"])


def test_the_file_holds_every_cell_and_only_measured_launches(results: Results, tmp_path: Path) -> None:
    events: list[BenchEvent] = []
    run_bench(bench_of(SMALL, Machine(), tmp_path, events), results)
    document = json.loads(results.path.read_text())

    jsonschema.validate(document, BENCH_SCHEMA)
    assert document == json.loads(json.dumps(results.document()))
    assert len(document["cells"]) == 8
    assert [(one["arm"], one["round"]) for one in document["launches"]] == [
        ("stock", 1), ("extension", 1), ("extension", 2), ("stock", 2),
    ]  # fmt: skip
    assert document["cells"][0]["output_tokens_per_second"] == 100.0
    assert document["cells"][0]["p90_ttft_ms"] is None
    assert [one["steps"] for one in document["cells"][:2]] == [full_steps(3), full_steps(12)]
    assert {(one["arm"], one["over"]) for one in document["ratios"]} == {("extension", "stock")}
    assert [one.number for one in events if isinstance(one, CellDone)] == list(range(1, 9))
    assert [one.round for one in events if isinstance(one, ArmStarting)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("design", [SMALL, TOGETHER])
def test_a_bench_goes_on_where_its_file_ends(design: BenchDesign, results: Results, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        run_bench(bench_of(design, Machine(fail_after=8), tmp_path), results)
    kept = json.loads(results.path.read_text())["cells"]
    assert 0 < len(kept) < 8

    again = open_results(results.path, HEAD)
    machine = Machine()
    run_bench(bench_of(design, machine, tmp_path), again)

    assert again.cells[: len(kept)] == kept
    keys = [(one["round"], one["arm"], one["concurrency"]) for one in again.cells]
    assert len(set(keys)) == len(keys) == 8
    measured = [told for told in machine.told if told.endswith(("1x3", "4x12"))]
    assert len(measured) == 8 - len(kept)


@pytest.mark.parametrize(("design", "is_alone"), [(SMALL, True), (TOGETHER, False)])
def test_memory_is_told_only_of_a_launch_that_had_the_gpu_alone(
    design: BenchDesign, is_alone: bool, results: Results, tmp_path: Path
) -> None:
    run_bench(bench_of(design, Machine(), tmp_path), results)
    launch = results.launches[0]

    assert ("graph_bytes" in launch["ranks"][0]) is is_alone
    assert ("graph_pool_bytes" in launch["engine_said"]) is is_alone
    assert launch["engine_said"]["kv_cache_tokens"] == 2


def test_a_cell_in_which_the_server_died_is_not_kept(results: Results, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not served"):
        run_bench(bench_of(SMALL, Machine(dead=True), tmp_path), results)

    assert results.cells == []


def test_a_finished_bench_starts_nothing(results: Results, tmp_path: Path) -> None:
    run_bench(bench_of(SMALL, Machine(), tmp_path), results)
    machine = Machine()
    run_bench(bench_of(SMALL, machine, tmp_path), open_results(results.path, HEAD))

    assert machine.told == []


def test_a_file_of_another_bench_is_left_alone(results: Results) -> None:
    results.write()
    before = results.path.read_bytes()

    with pytest.raises(SpecError, match="its `spec_sha256` and `design` differ"):
        open_results(results.path, {**HEAD, "spec_sha256": "1", "design": {"rounds": 1}})
    assert results.path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "[" * 100_000])
def test_a_file_that_is_no_results_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text)

    with pytest.raises(SpecError, match="it is no results file"):
        open_results(path, HEAD)


def test_the_date_is_that_of_the_beginning(results: Results) -> None:
    results.write()

    assert open_results(results.path, {**HEAD, "date": "2027-01-01"}).head["date"] == "2026-01-01"

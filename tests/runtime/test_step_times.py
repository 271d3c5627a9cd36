"""From the workers' step times to findings, a document and text."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.render.explanation import explanation
from servespec.render.step_times_text import step_times_text
from servespec.runtime import measured_launch
from servespec.runtime.extension.step_times_batches import Wanted
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.serving import Serving
from servespec.runtime.step_times import findings_of, time_steps, wanted_of
from servespec.runtime.step_times_document import STEP_TIMES_SCHEMA, document_of
from servespec.runtime.supervise import Outcome
from tests.plans import Json, compiled, model_folder, spec_of
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

WANTED = Wanted(requests=None, tokens=None, repeats=4)
FULL_SHAPE = ["SpeculatorCudaGraphManager", 4, "FULL", 32, 8, 4, 0, 0, 1, 0]


def plan_of(**sections: Any) -> Plan:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    given = {"speculative": draft, "scheduler": {"max_num_seqs": 16}, "engine": EXTENSION, **sections}
    return compiled(spec_of("qwen3-8b", "h200", **given))


def mode_of(mode: str, milliseconds: float, padded_tokens: int = 32, *, lead_over_step: float = 0.75) -> Json:
    """Two steps a repeat, of which the drafter takes a quarter and sampling an eighth; turns differ a little.

    The host takes half as long as the step.
    """
    parts = [(5 / 8, 1 / 8, 2 / 8, 1 / 2)] * 2
    repeats = [
        [[milliseconds * (1 + turn / 100) / 1000 * part for part in step] for step in parts] for turn in range(4)
    ]
    return {
        "mode": mode,
        "padded_tokens": padded_tokens,
        "drafter": [FULL_SHAPE],
        "lead_seconds": milliseconds / 1000 * lead_over_step,
        "repeats": repeats,
    }


def batch_of(modes: list[Json], **changes: Any) -> Json:
    return {
        "requests": 8, "tokens": 32, "decodes": [[4, 8]], "prompts": [], "next_drafts": 3, "because": None,
        "error": None, "modes": modes, **changes,
    }  # fmt: skip


def result_of(*batches: Json, **changes: Any) -> Json:
    return {
        "format": 1, "sha256": "", "complete": True, "seconds": 12.5, "refused": None, "wanted": WANTED.to_json(),
        "batches": list(batches), **changes,
    }  # fmt: skip


def graph_pays() -> Json:
    return batch_of([mode_of("FULL", 8), mode_of("PIECEWISE", 10), mode_of("NONE", 16)])


def mixed() -> Json:
    modes = [mode_of("PIECEWISE", 20, 64), mode_of("NONE", 10, 60)]
    return batch_of(modes, requests=4, tokens=60, decodes=[[4, 3]], prompts=[48])


def left(folder: Path, result: Json, name: str = "steps-0-0.json") -> None:
    (folder / name).write_text(json.dumps(result), encoding="utf-8")


def found(plan: Plan, folder: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.message) for finding in findings_of(plan, folder)]


def documented(plan: Plan, folder: Path) -> Json:
    document = document_of(plan, folder, findings_of(plan, folder))
    jsonschema.validate(document, STEP_TIMES_SCHEMA)
    return document


def test_a_graph_that_pays_has_no_finding_and_its_ratios(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, result_of(graph_pays()))

    (size,) = documented(plan, tmp_path)["sizes"]

    assert found(plan, tmp_path) == []
    assert (size["kind"], size["requests"], size["query_len"], size["tokens"]) == ("decode", 8, 4, 32)
    full, piecewise, eager = size["modes"]
    two = {"ratio": 2.0, "low_95": 2.0, "high_95": 2.0}
    assert full["eager_over_graph"] == full["target_eager_over_graph"] == full["drafter_eager_over_graph"] == two
    assert piecewise["eager_over_graph"]["ratio"] == 1.6
    assert [mode["verdict"] for mode in size["modes"]] == ["pays", "pays", None]
    assert (eager["median_seconds"], eager["repeats"]) == (pytest.approx(0.01624), 4)
    assert eager["parts"] == pytest.approx({"target": 0.01015, "sampling": 0.00203, "drafter": 0.00406})
    assert [mode["host_seconds"] for mode in size["modes"]] == pytest.approx([0.00406, 0.005075, 0.00812])


@pytest.mark.parametrize("lead_over_step", [0.0, 0.5])
def test_a_host_that_was_not_ahead_has_no_time_of_its_own(tmp_path: Path, lead_over_step: float) -> None:
    plan = plan_of()
    modes = [mode_of(mode, 8, lead_over_step=lead_over_step) for mode in ("FULL", "NONE")]
    left(tmp_path, result_of(batch_of(modes)))

    document = documented(plan, tmp_path)

    assert [mode["host_seconds"] for mode in document["sizes"][0]["modes"]] == [None, None]
    assert "2.030 - 1.000" in " ".join(step_times_text(document).split())


def test_a_served_graph_that_is_slower_is_a_warning_with_its_interval(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, result_of(graph_pays(), mixed()))

    ((code, message),) = found(plan, tmp_path)

    assert code == "L036"
    assert message == (
        "a step of 60 tokens with prompts is slower as PIECEWISE than eager: eager takes 0.500 of its time"
        " (0.500 to 0.500)"
    )
    assert documented(plan, tmp_path)["sizes"][1]["modes"][0]["verdict"] == "does_not_pay"


@pytest.mark.parametrize("slower", [mixed(), batch_of([mode_of("FULL", 20), mode_of("NONE", 16)])])
def test_the_fields_to_change_are_fields_of_a_spec(tmp_path: Path, slower: Json) -> None:
    plan = plan_of()
    left(tmp_path, result_of(slower))

    (finding,) = findings_of(plan, tmp_path)

    fields = re.findall("`([^`]+)`", finding.help)
    assert len(fields) == 2
    assert all(explanation(field).found for field in fields)


def test_a_mode_that_is_never_served_is_no_warning(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, result_of(batch_of([mode_of("FULL", 8), mode_of("PIECEWISE", 20), mode_of("NONE", 16)])))

    assert found(plan, tmp_path) == []
    assert documented(plan, tmp_path)["sizes"][0]["modes"][1]["verdict"] == "does_not_pay"


def test_the_slowest_worker_counts_and_all_are_needed(tmp_path: Path) -> None:
    plan = plan_of(parallel={"tensor_parallel_size": 2}, hardware={"gpu": "h200", "count": 2})
    left(tmp_path, result_of(graph_pays(), mixed()))
    slower = batch_of([mode_of("FULL", 32), mode_of("PIECEWISE", 10), mode_of("NONE", 16)])
    left(tmp_path, result_of(slower, complete=False), "steps-0-1.json")

    (size,) = documented(plan, tmp_path)["sizes"]

    assert size["modes"][0]["eager_over_graph"]["ratio"] == 0.5
    assert [code for code, _ in found(plan, tmp_path)] == ["L034", "L036"]


def a_batch_that_failed(result: Json) -> None:
    result["batches"].append(batch_of([], error="RuntimeError: broken"))


def too_few_blocks(result: Json) -> None:
    result["batches"].append(batch_of([], because="about 90 KV blocks are needed, and there are 8"))


def an_end_that_did_not_come(result: Json) -> None:
    result["complete"] = False


def an_engine_that_takes_no_steps(result: Json) -> None:
    result.update(batches=[], refused="a pooling model samples no tokens", complete=False)


def nothing_at_all(result: Json) -> None:
    result["batches"].clear()


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (a_batch_that_failed, "L034", "a decode of 8 requests, q=4, failed: RuntimeError: broken"),
        (too_few_blocks, "L035", "q=4, was not timed: about 90 KV blocks are needed, and there are 8"),
        (an_end_that_did_not_come, "L034", "the timing did not come to its end"),
        (an_engine_that_takes_no_steps, "L034", "can be timed in this engine: a pooling model samples no tokens"),
        (nothing_at_all, "L034", "no size could be timed"),
    ],
)
def test_what_is_not_known_is_said(tmp_path: Path, change: Callable[[Json], None], code: str, said: str) -> None:
    plan, result = plan_of(), result_of(graph_pays())
    change(result)
    left(tmp_path, result)

    ((found_code, message),) = found(plan, tmp_path)

    assert found_code == code
    assert said in message
    documented(plan, tmp_path)


def test_a_worker_without_a_result_is_an_error(tmp_path: Path) -> None:
    plan = plan_of()

    assert found(plan, tmp_path) == [("L034", "1 of 1 workers left no step times")]
    assert documented(plan, tmp_path)["sizes"] == []


def test_the_text_has_a_line_for_each_size_and_mode(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, result_of(graph_pays(), mixed(), batch_of([], because="no graph takes it")))

    lines = step_times_text(documented(plan, tmp_path)).splitlines()

    assert lines[0] == "step times on vLLM 0.33.0, h200: 1 of 1 workers came to the end, in 12 s"
    assert lines[2].split()[:5] == ["step", "run", "as", "padded", "ms"]
    words = [" ".join(line.split()) for line in lines[3:]]
    assert words == [
        "decode 8 requests q=4 FULL 32 8.120 0.120 5.075 1.015 2.030 4.060 2.000 2.000 to 2.000 pays",
        "PIECEWISE 32 10.150 0.150 6.344 1.269 2.537 5.075 1.600 1.600 to 1.600 pays",
        "eager 32 16.240 0.240 10.150 2.030 4.060 8.120",
        "mixed 60 tokens PIECEWISE 64 20.300 0.300 12.688 2.537 5.075 10.150 0.500 0.500 to 0.500 does not pay",
        "eager 60 10.150 0.150 6.344 1.269 2.537 5.075",
        "decode 8 requests q=4 not timed",
    ]


def test_sizes_are_sorted_and_named_once() -> None:
    asked = wanted_of(plan_of(), requests="8, 1,8", tokens="auto", repeats=5)

    assert asked == Wanted(requests=(1, 8), tokens=None, repeats=5)


def test_another_lowering_is_refused() -> None:
    with pytest.raises(SpecError) as refused:
        time_steps(plan_of(engine={"version": "0.33.0", "lowering": "legacy"}), WANTED, None, lambda _: None)

    assert [finding.code for finding in refused.value.diagnostics] == ["L032"]


@pytest.mark.parametrize(
    ("sections", "message", "help_text"),
    [
        ({"hardware": {"gpu": "cpu"}}, "a CPU captures no graphs", "run it on a GPU"),
        ({"model": {"enforce_eager": True}}, "this plan captures no graphs", "delete `enforce_eager`"),
        ({"compilation": {"cudagraph_mode": "NONE"}}, "this plan captures no graphs", "delete `cudagraph_mode`"),
        ({"engine": {"model_runner": "v1"}}, "the spec gets V1", "servespec bench"),
    ],
)
def test_where_the_extension_cannot_be_it_is_not_advised(sections: Json, message: str, help_text: str) -> None:
    given = spec_of("qwen3-8b", "h200", engine={"version": "0.33.0"})
    merged = {**given, **{name: {**given.get(name, {}), **section} for name, section in sections.items()}}

    with pytest.raises(SpecError) as refused:
        time_steps(compiled(merged), WANTED, None, lambda _: None)

    (finding,) = refused.value.diagnostics
    assert finding.code == "L032"
    assert message in finding.message
    assert help_text in finding.help
    assert "lowering" not in finding.help


def test_the_engine_is_started_with_what_is_wanted_and_its_result_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = plan_of()
    command = LaunchCommand(argv=("vllm",), env={"A": "b"}, host="", port=1, log_path=tmp_path / "engine.log")
    serving = Serving(command=command, folder=tmp_path, ready_timeout_seconds=1.0)

    def run(_plan: Plan, given: Serving, _event: object, task: Any, *, also_check: Any) -> Outcome:
        assert replace(given, command=replace(given.command, env={"A": "b"})) == serving
        assert Wanted.from_json(json.loads(given.command.env["SERVESPEC_STEPS"])) == WANTED
        left(tmp_path, result_of(graph_pays(), mixed()))
        task("http://localhost")
        return Outcome(0, also_check(), command.log_path)

    monkeypatch.setattr(measured_launch, "serving_of", lambda _plan, _folder, _uses: serving)
    monkeypatch.setattr(measured_launch, "run", run)

    done = time_steps(plan, WANTED, tmp_path, lambda _: None)

    assert [finding.code for finding in done.outcome.diagnostics] == ["L036"]
    assert len(done.document["sizes"]) == 2

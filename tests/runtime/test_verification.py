"""From the workers' results of a replay to findings, a document and text."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from servespec.compiler.graphs.hand_off import manager_class
from servespec.compiler.graphs.managers import managers_of, own_shapes
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.render.verification_text import verification_text
from servespec.runtime import measured_launch
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.serving import Serving
from servespec.runtime.supervise import Outcome
from servespec.runtime.verification import findings_of, verify
from servespec.runtime.verification_document import VERIFICATION_SCHEMA, document_of
from tests.plans import Json, compiled, model_folder, spec_of
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

OUTPUTS = {"target": "hidden states", "drafter": "draft tokens"}


def plan_of(**sections: Any) -> Plan:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    given = {"speculative": draft, "scheduler": {"max_num_seqs": 16}, "engine": EXTENSION, **sections}
    return compiled(spec_of("qwen3-8b", "h200", **given))


def captured(plan: Plan) -> list[list[Any]]:
    frame, shapes = plan.resolution.frame, plan.graphs.shapes
    return [
        [
            manager_class(frame, manager), manager.query_len, str(shape.mode), shape.tokens, shape.requests or 0,
            shape.query_len or 0, shape.max_query_len or 0, shape.active_loras, shape.ubatches, shape.draft_steps or 0,
        ]
        for manager in managers_of(frame)
        for shape in own_shapes(manager, shapes)
    ]  # fmt: skip


def compared(**changes: Any) -> Json:
    equal = {"equal": True, "eager_reproduces": True, "values": 64, "differing": 0, "not_numbers": 0}
    return {**equal, "largest_absolute": 0.0, "largest_relative": 0.0, **changes}


def batch_of(shape: list[Any], **changes: Any) -> Json:
    step = {side: {name: compared()} for side, name in OUTPUTS.items()}
    return {
        "requests": 1, "tokens": shape[3], "decodes": [[1, 1]], "prompts": [], "next_drafts": 3, "because": None,
        "error": None, "steps": [{**step, "shapes": [shape], "accepted": {"graphs": 2, "eager": 2}}], **changes,
    }  # fmt: skip


def result_of(plan: Plan) -> Json:
    """What a worker writes that replayed each graph in a batch of its own, all equal."""
    shapes = captured(plan)
    return {
        "format": 1, "sha256": "", "complete": True, "seconds": 12.5, "refused": None, "shapes": shapes,
        "speculation": {"applies": True, "because": None, "requests": 8, "equal": 7},
        "batches": [batch_of(shape) for shape in shapes],
    }  # fmt: skip


def left(folder: Path, result: Json, name: str = "verified-0-0.json") -> None:
    (folder / name).write_text(json.dumps(result), encoding="utf-8")


def found(plan: Plan, folder: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.message) for finding in findings_of(plan, folder)]


def changed(result: Json, change: Callable[[Json], None]) -> Json:
    change(result)
    return result


def target_batch(result: Json) -> Json:
    """Of the widest decode graph of the target."""
    batches = [
        batch
        for batch in result["batches"]
        if batch["steps"][0]["shapes"][0][:3:2] == ["ModelCudaGraphManager", "FULL"]
    ]
    widest: Json = max(batches, key=lambda batch: batch["tokens"])
    return widest


def test_equal_graphs_have_no_findings(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, result_of(plan))

    document = document_of(plan, tmp_path, ())

    assert found(plan, tmp_path) == []
    jsonschema.validate(document, VERIFICATION_SCHEMA)
    assert {(row["runner"], row["routine"], row["query_len"]) for row in document["rows"]} == {
        (str(row.runner), str(row.routine), row.query_len) for row in plan.graphs.rows
    }
    assert {(row["graphs"], row["equal"]) for row in document["rows"]} == {
        (row.graphs, row.graphs) for row in plan.graphs.rows
    }


def test_a_graph_that_differs_is_an_error_with_its_largest_difference(tmp_path: Path) -> None:
    plan, result = plan_of(), result_of(plan_of())
    batch = target_batch(result)
    batch["steps"][0]["target"]["hidden states"] = compared(
        equal=False, differing=3, largest_absolute=0.25, largest_relative=0.5
    )
    batch["steps"][0]["target"]["sampled tokens"] = compared()
    left(tmp_path, result)

    ((code, message),) = found(plan, tmp_path)

    graphs = next(row.graphs for row in plan.graphs.rows if row.routine == "uniform_decode")
    assert code == "L023"
    assert message == (
        f"`target uniform_decode q=4`: 1 of {graphs} graphs differ from eager; most in the hidden states, by 0.25"
        " (relative 0.5) at 64 tokens"
    )


def test_a_drafters_output_says_nothing_of_the_target(tmp_path: Path) -> None:
    """One step runs a graph of the target and one of the drafter."""
    plan, result = plan_of(), result_of(plan_of())
    later = next(shape for shape in result["shapes"] if shape[1] == 1)
    step = target_batch(result)["steps"][0]
    step["shapes"].append(later)
    step["drafter"]["draft tokens"] = compared(equal=False)
    left(tmp_path, result)

    ((code, message),) = found(plan, tmp_path)

    assert (code, message.partition(":")[0]) == ("L023", "`drafter later_steps q=1`")


def test_a_kernel_that_does_not_reproduce_is_a_warning(tmp_path: Path) -> None:
    plan, result = plan_of(), result_of(plan_of())
    target_batch(result)["steps"][0]["target"]["hidden states"] = compared(equal=False, eager_reproduces=False)
    left(tmp_path, result)

    assert [code for code, _ in found(plan, tmp_path)] == ["L024"]


def test_the_worst_worker_counts(tmp_path: Path) -> None:
    plan = plan_of(parallel={"tensor_parallel_size": 2}, hardware={"gpu": "h200", "count": 2})
    left(tmp_path, result_of(plan))
    other = result_of(plan)
    target_batch(other)["steps"][0]["target"]["hidden states"] = compared(equal=False)
    left(tmp_path, other, "verified-0-1.json")

    assert [code for code, _ in found(plan, tmp_path)] == ["L023"]
    assert document_of(plan, tmp_path, ())["workers"] == {"expected": 2, "complete": 2}


def test_a_worker_without_a_result_is_an_error(tmp_path: Path) -> None:
    plan = plan_of()

    assert found(plan, tmp_path) == [("L025", "1 of 1 workers left no result of their replay")]
    jsonschema.validate(document_of(plan, tmp_path, ()), VERIFICATION_SCHEMA)


def a_batch_that_failed(result: Json) -> None:
    result["batches"].append(batch_of(result["shapes"][0], steps=[], error="RuntimeError: broken"))


def an_end_that_did_not_come(result: Json) -> None:
    result["complete"] = False


def a_graph_that_no_batch_reached(result: Json) -> None:
    result["batches"].remove(target_batch(result))


def too_few_blocks(result: Json) -> None:
    target_batch(result).update(steps=[], because="about 90 KV blocks are needed, and there are 8")


def an_engine_that_takes_no_steps(result: Json) -> None:
    result.update(batches=[], refused="a pooling model samples no tokens", complete=False)


def no_room_at_all(result: Json) -> None:
    for batch in result["batches"]:
        batch.update(steps=[], because="about 90 KV blocks are needed, and there are 8")


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (a_batch_that_failed, "L025", "could not be replayed: RuntimeError: broken"),
        (an_end_that_did_not_come, "L025", "did not come to its end"),
        (a_graph_that_no_batch_reached, "L026", "graphs were not replayed: no batch of the replay came to them"),
        (too_few_blocks, "L026", "graphs were not replayed: about 90 KV blocks are needed, and there are 8"),
        (an_engine_that_takes_no_steps, "L025", "can be replayed in this engine: a pooling model samples no tokens"),
        (no_room_at_all, "L025", "no batch could be replayed"),
    ],
)
def test_what_is_not_known_is_said(tmp_path: Path, change: Callable[[Json], None], code: str, said: str) -> None:
    plan = plan_of()
    left(tmp_path, changed(result_of(plan), change))

    findings = found(plan, tmp_path)

    assert findings[0][0] == code
    assert {one for one, _ in findings} <= {code, "L026"}
    assert said in findings[0][1]
    jsonschema.validate(document_of(plan, tmp_path, ()), VERIFICATION_SCHEMA)


def test_many_failures_are_counted(tmp_path: Path) -> None:
    plan, result = plan_of(), result_of(plan_of())
    for _ in range(7):
        a_batch_that_failed(result)
    left(tmp_path, result)

    messages = [message for _, message in found(plan, tmp_path)]

    assert len(messages) == 5
    assert messages[-1] == "3 more batches could not be replayed"


def test_the_text_names_each_row_and_the_sums(tmp_path: Path) -> None:
    plan, result = plan_of(), result_of(plan_of())
    batch = target_batch(result)
    batch["steps"][0]["target"]["hidden states"] = compared(
        equal=False, differing=3, largest_absolute=0.25, largest_relative=0.5
    )
    left(tmp_path, result)

    lines = verification_text(document_of(plan, tmp_path, ())).splitlines()

    assert lines[0] == "replay against eager on vLLM 0.33.0: 1 of 1 workers came to the end, in 12 s"
    row = next(line for line in lines if "target uniform_decode q=4" in line)
    assert row.endswith("equal bit for bit, 1 differ")
    assert "    hidden states: at most 0.25 apart (relative 0.5), 3 of 64 values, at 64 tokens, 16 requests" in lines
    steps = len(result["batches"])
    assert f"  accepted drafts: {2 * steps} with graphs, {2 * steps} eagerly" in lines
    assert "  speculation on and off: 7 of 8 requests said the same tokens greedily" in lines


def test_speculation_that_does_not_apply_is_said(tmp_path: Path) -> None:
    plan, result = plan_of(), result_of(plan_of())
    result["speculation"] = {"applies": False, "because": "the spec has no speculation"}
    left(tmp_path, result)

    text = verification_text(document_of(plan, tmp_path, ()))

    assert "speculation on and off: not applicable, the spec has no speculation" in text


def test_another_lowering_is_refused() -> None:
    with pytest.raises(SpecError) as refused:
        verify(plan_of(engine={"version": "0.33.0", "lowering": "legacy"}), None, lambda _: None)

    (finding,) = refused.value.diagnostics
    assert finding.code == "L027"
    assert "lowered by `legacy`" in finding.message


def test_the_engine_is_started_with_the_variable_and_its_result_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Findings come from the check that runs once the server answers."""
    plan = plan_of()
    command = LaunchCommand(argv=("vllm",), env={"A": "b"}, host="", port=1, log_path=tmp_path / "engine.log")
    serving = Serving(command=command, folder=tmp_path, ready_timeout_seconds=1.0)

    def run(_plan: Plan, given: Serving, _event: object, task: Any, *, also_check: Any) -> Outcome:
        assert given == replace(serving, command=replace(command, env={"A": "b", "SERVESPEC_VERIFY": "1"}))
        left(tmp_path, changed(result_of(plan), a_batch_that_failed))
        task("http://localhost")
        return Outcome(6, also_check(), command.log_path)

    monkeypatch.setattr(measured_launch, "serving_of", lambda _plan, _folder, _uses: serving)
    monkeypatch.setattr(measured_launch, "run", run)

    done = verify(plan, tmp_path, lambda _: None)

    assert [finding.code for finding in done.outcome.diagnostics] == ["L025"]
    assert [one["code"] for one in done.document["diagnostics"]] == ["L025"]
    assert done.document["failures"][0]["error"] == "RuntimeError: broken"
    assert done.document["folder"] == tmp_path.name
    assert str(tmp_path) not in json.dumps(done.document)

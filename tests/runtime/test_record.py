"""The record of a launch: its form, what it keeps to itself, and when it is written."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from servespec.cli.exit_codes import refusal_code
from servespec.compiler.plan import PLAN_SCHEMA
from servespec.compiler.record_schema import RECORD_SCHEMA
from servespec.diagnostics import Place, SpecError
from servespec.runtime import serving
from servespec.runtime.capture import Capture, Evidence, RankCapture, RankMemory, RowCapture, RowCost, Verdict
from servespec.runtime.dispatch_counts import ModeCount, write_counts
from servespec.runtime.engine_log import COMPILED, SAID_MARKERS
from servespec.runtime.extension.report import FOLDER_VARIABLE
from servespec.runtime.record import Measured, read_record, record_of, write_record
from servespec.runtime.run_rules import CAPTURE_DIFFERS, DIED_AFTER_READY
from servespec.runtime.serving import Checked, Serving, run
from servespec.runtime.step_times_rules import GRAPH_DOES_NOT_PAY
from servespec.runtime.supervise import Started
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

COUNT = ModeCount(engine=0, mode="FULL", steps=3, unpadded_tokens=20, padding_tokens=4)
DIFFERS = CAPTURE_DIFFERS.at(Place("log"), "one graph less", "see the log")


def plan_of(**sections: Any) -> Any:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    return compiled(
        spec_of("qwen3-8b", "h200", **{"speculative": draft, "scheduler": {"max_num_seqs": 64}, **sections})
    )


def capture_of(plan: Any, **changes: Any) -> Capture:
    cost = RowCost(pool_bytes=7, device_bytes=-5, seconds=1.5)
    rows = tuple(RowCapture((row.graphs,), Verdict.AS_PLANNED, (cost,)) for row in plan.graphs.rows)
    memory = RankMemory(
        device_bytes=150 << 30,
        free_at_start_bytes=149 << 30,
        weights_bytes=16 << 30,
        held_bytes=18 << 30,
        peak_bytes=None,
        engine_estimate_bytes=None,
        kv_cache_bytes=100 << 30,
    )
    rank = RankCapture(data_parallel_rank=0, rank=0, capture_seconds=13.6, graph_bytes=1 << 31, memory=memory)
    return Capture(**{"evidence": Evidence.WORKERS, "rows": rows, "ranks": (rank,), "findings": (), **changes})


def checked(document: Json) -> Json:
    jsonschema.Draft202012Validator(RECORD_SCHEMA).validate(document)
    return document


def test_a_record_is_the_plan_with_measured_columns() -> None:
    plan = plan_of()
    findings = (DIED_AFTER_READY.at(Place("log"), "the engine exited", "see the log"),)
    measured = Measured(
        started=1_800_000_000.2,
        ready=1_800_000_060.0,
        ended=1_800_003_600.0,
        exit_code=7,
        capture=capture_of(plan),
        said={"kv_cache_tokens": 1234},
        counts=(COUNT,),
        findings=findings,
    )

    record = checked(record_of(plan, measured))

    said = record.pop("measured")
    columns = [row.pop("captured") for row in record["runners"]]
    assert record == json.loads(json.dumps(plan.to_json()))
    costs = [{"pool_bytes": 7, "device_bytes": -5, "seconds": 1.5}]
    assert columns == [
        {"graphs": [row["graphs"]], "verdict": "as_planned", "costs": costs} for row in record["runners"]
    ]
    assert (said["started_at"], said["ready_at"]) == ("2027-01-15T08:00:00+00:00", "2027-01-15T08:01:00+00:00")
    assert (said["ended_at"], said["exit_code"]) == ("2027-01-15T09:00:00+00:00", 7)
    assert (said["verdict"], said["evidence"]) == ("as_planned", "workers")
    (rank,) = said["ranks"]
    memory = rank.pop("memory")
    assert rank == {"data_parallel_rank": 0, "rank": 0, "capture_seconds": 13.6, "graph_bytes": 1 << 31}
    assert (memory["held_bytes"], memory["peak_bytes"]) == (18 << 30, None)
    assert said["engine_said"] == {"kv_cache_tokens": 1234}
    assert said["dispatch"] == [{"engine": 0, "mode": "FULL", "steps": 3, "unpadded_tokens": 20, "padding_tokens": 4}]
    assert [finding["code"] for finding in said["findings"]] == ["L009"]


def test_a_launch_that_never_answered_saw_nothing() -> None:
    record = checked(record_of(plan_of(), Measured(started=0.0, ended=1.0, exit_code=5)))

    assert {row["captured"]["verdict"] for row in record["runners"]} == {"unseen"}
    said = record["measured"]
    assert (said["verdict"], said["evidence"], said["ready_at"], said["dispatch"]) == ("unseen", None, None, [])


def test_a_drafter_without_graphs_has_its_row(tmp_path: Path) -> None:
    plan = plan_of(speculative={"method": "ngram", "num_speculative_tokens": 3})

    record = checked(record_of(plan, Measured(started=0.0, capture=capture_of(plan))))

    assert record["runners"][-1]["captured"] == {"graphs": [], "verdict": "as_planned", "costs": []}


def test_secrets_stay_out() -> None:
    """A spec that holds one is refused; the record masks one all the same."""
    plan = plan_of()
    argv = (*plan.lowered.argv, "--api-key", "hunter2hunter2")
    plan = replace(plan, lowered=replace(plan.lowered, argv=argv))

    record = checked(record_of(plan, Measured(started=0.0)))

    assert "hunter2" not in json.dumps(record)
    assert record["launch"]["argv"] == [*plan.lowered.argv[:-1], "***"]


def test_a_plan_is_no_record_and_its_schema_is_untouched() -> None:
    with pytest.raises(jsonschema.ValidationError):
        checked(plan_of().to_json())
    assert "captured" not in json.dumps(PLAN_SCHEMA)
    assert "captured" not in json.dumps(RECORD_SCHEMA["properties"]["stock"])


def test_the_schema_knows_every_number_that_is_read_off_a_log() -> None:
    said = RECORD_SCHEMA["properties"]["measured"]["properties"]["engine_said"]["properties"]

    assert list(said) == [*(name for name, _ in SAID_MARKERS), COMPILED]


def test_a_record_that_cannot_be_written_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "record.json").mkdir()

    found = write_record(tmp_path, plan_of(), Measured(started=0.0))

    assert [finding.code for finding in found] == ["L020"]
    assert f"`{tmp_path}/record.json` cannot be written: is a directory" in found[0].message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ("\\xff", "Expecting value"),
        ("[]", "$: [] is not of type 'object'"),
        ('{"format": 1}', "$: 'servespec' is a required property"),
    ],
)
def test_what_is_no_record_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(SpecError) as raised:
        read_record(path)

    (found,) = raised.value.diagnostics
    assert found.code == "L022"
    assert said in found.message


# A launch of the fake engine


def launched(
    fake: Any,
    monkeypatch: pytest.MonkeyPatch,
    findings: tuple[Any, ...] = (),
    *,
    fail: bool = True,
    capture: Callable[..., Capture] | None = None,
) -> tuple[Any, list[Any], list[Json]]:
    """The outcome, the events, and the records: when ready, if it ever was, and at the end."""
    plan, told, seen = plan_of(), [], []
    monkeypatch.setattr(serving, "_capture", capture or (lambda *_: capture_of(plan, findings=findings)))
    command = fake.command()

    def read() -> Json:
        return read_record(fake.folder / "record.json")

    def task(_: str) -> None:
        seen.append(read())
        write_counts(fake.folder, 1, [COUNT])

    launch = Serving(command=command, folder=fake.folder, ready_timeout_seconds=10.0)
    outcome = run(plan, launch, told.append, task, fail_on_drift=fail)
    return outcome, told, [*seen, read()]


def test_the_record_is_there_when_ready_and_whole_at_the_end(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, told, (ready, ended) = launched(fake, monkeypatch)

    assert outcome.exit_code == 0
    assert [event.capture.verdict for event in told if isinstance(event, Checked)] == [Verdict.AS_PLANNED]
    assert (ready["measured"]["exit_code"], ready["measured"]["ended_at"], ready["measured"]["dispatch"]) == (
        None,
        None,
        [],
    )
    assert ready["measured"]["ready_at"] == ended["measured"]["ready_at"] is not None
    assert (ended["measured"]["exit_code"], ended["measured"]["dispatch"][0]["steps"]) == (0, 3)
    assert ended["measured"]["ended_at"] is not None
    assert ended["measured"]["engine_said"] == {"kv_cache_bytes": 1 << 30}
    assert oct((fake.folder / "record.json").stat().st_mode & 0o777) == "0o600"


def test_a_folder_that_is_gone_before_ready_stops_nothing(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the engine's log in it: what was captured is then not seen, and the record has nowhere to go."""
    folder = fake.folder / "launch"
    command = fake.command("--stage-seconds", "0.1", log_path=folder / "engine.log")
    launch = Serving(command=command, folder=folder, ready_timeout_seconds=10.0)

    def lose(event: Any) -> None:
        if isinstance(event, Started):
            shutil.rmtree(folder)

    outcome = run(plan_of(engine={"version": "0.33.0", "lowering": "legacy"}), launch, lose, lambda _: None)

    assert (outcome.exit_code, fake.alive()) == (0, [])
    assert [finding.code for finding in outcome.diagnostics] == ["L017", "L020"]


def test_steps_of_an_earlier_launch_are_not_counted(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_counts(fake.folder, 2, [COUNT])

    _, _, (_, ended) = launched(fake, monkeypatch)

    assert [one["steps"] for one in ended["measured"]["dispatch"]] == [COUNT.steps]


def test_a_server_with_other_graphs_leaves_its_record_too(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, (record,) = launched(fake, monkeypatch, (DIFFERS,))

    ended = record["measured"]
    assert (ended["exit_code"], ended["verdict"], ended["ready_at"]) == (6, "differs", None)
    assert [finding["code"] for finding in ended["findings"]] == ["L016"]


def test_a_tolerated_difference_is_in_the_record(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, _, (_, ended) = launched(fake, monkeypatch, (DIFFERS,), fail=False)

    assert outcome.exit_code == 0
    # With its place and its help, which the line at ready has no room for.
    assert [(one.code, one.severity, one.help) for one in outcome.diagnostics] == [("L016", "warning", "see the log")]
    said = ended["measured"]
    assert (said["verdict"], [finding["severity"] for finding in said["findings"]]) == ("differs", ["warning"])


def test_graphs_that_changed_are_told_at_the_end(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"managers": [], "compiled_pieces": [{"pieces": 2, "sizes": [[8, 0]]}]}
    lost = {"managers": [], "compiled_pieces": []}

    def capture(*_: object) -> Capture:
        for name, report in (("captured", entries), ("left", lost)):
            (fake.folder / f"{name}-0-0.json").write_text(json.dumps(report), encoding="utf-8")
        return capture_of(plan_of())

    outcome, _, (ready, ended) = launched(fake, monkeypatch, capture=capture)

    assert (outcome.exit_code, [finding.code for finding in outcome.diagnostics]) == (0, ["L021"])
    assert (ready["measured"]["graphs_at_exit"], ended["measured"]["graphs_at_exit"]) == (None, "changed")
    assert [finding["code"] for finding in ended["measured"]["findings"]] == ["L021"]


def test_workers_that_are_killed_are_asked_first(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def capture(*_: object) -> Capture:
        worker = [sys.executable, str(Path(__file__).with_name("asked_worker.py")), "0", "waits", "[]"]
        environment = {**os.environ, FOLDER_VARIABLE: str(fake.folder)}
        started.append(subprocess.Popen(worker, env=environment, stdout=subprocess.PIPE, text=True))
        assert started[0].stdout is not None
        assert started[0].stdout.readline() == "up\n"
        return capture_of(plan_of())

    try:
        outcome, _, (ready, ended) = launched(fake, monkeypatch, capture=capture)
    finally:
        for one in started:
            one.kill()
            one.communicate()

    assert (outcome.exit_code, outcome.diagnostics) == (0, ())
    assert (ready["measured"]["graphs_at_exit"], ended["measured"]["graphs_at_exit"]) == (None, "same")
    assert not [path for path in fake.folder.iterdir() if path.is_fifo()]


def test_steps_of_verification_are_in_the_last_record(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"fixed_steps": 3, "adaptive_steps": 4}

    def capture(*_: object) -> Capture:
        report = {"managers": [], "compiled_pieces": [], "verification": counts}
        (fake.folder / "left-0-0.json").write_text(json.dumps(report), encoding="utf-8")
        return capture_of(plan_of())

    _, _, (ready, ended) = launched(fake, monkeypatch, capture=capture)

    assert (ready["measured"]["verification"], ended["measured"]["verification"]) == (None, counts)


def test_a_folder_that_cannot_be_written_starts_nothing(fake: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file" / "records"
    blocked.parent.write_text("in the way")
    launch = Serving(command=fake.command(), folder=blocked, ready_timeout_seconds=10.0)

    with pytest.raises(SpecError) as raised:
        run(plan_of(), launch, lambda _: None)

    (finding,) = raised.value.diagnostics
    assert (refusal_code(raised.value), finding.code, fake.pids()) == (5, "L010", [])
    assert finding.message == f"the folder `{blocked}` for the log and the records cannot be written: not a directory"


def test_a_folder_that_a_running_launch_has_is_left_alone(fake: Any) -> None:
    """Its log would be cut, its workers' reports be taken away, and its record be written over."""
    folder = fake.folder / "launch"
    plan = plan_of(engine={"version": "0.33.0", "lowering": "legacy"})
    command = fake.command(log_path=folder / "engine.log")
    launch = Serving(command=command, folder=folder, ready_timeout_seconds=10.0)

    def serve_again(_: str) -> None:
        (folder / "captured-0-0.json").write_text("{}")
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(SpecError) as raised:
            run(plan, launch, lambda _: None)
        (finding,) = raised.value.diagnostics
        assert (refusal_code(raised.value), finding.code) == (5, "L010")
        assert finding.message == f"the folder `{folder}` is in use by another servespec that still runs"
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    outcome = run(plan, launch, lambda _: None, serve_again)

    assert (outcome.exit_code, len(fake.pids())) == (0, 1)
    assert run(plan, launch, lambda _: None, lambda _: None).exit_code == 0


def test_what_a_measurement_warns_of_is_in_the_outcome(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From there `verify`, `steps` and `profile` print it, and write it into their documents."""
    plan = plan_of()
    monkeypatch.setattr(serving, "_capture", lambda *_: capture_of(plan))
    launch = Serving(command=fake.command(), folder=fake.folder, ready_timeout_seconds=10.0)
    slower = GRAPH_DOES_NOT_PAY.at(Place("launch"), "a decode of 8 requests is slower as FULL than eager", "less")

    outcome = run(plan, launch, lambda _: None, lambda _: None, also_check=lambda: (slower,))

    assert (outcome.exit_code, outcome.diagnostics) == (0, (slower,))
    record = read_record(fake.folder / "record.json")
    assert [finding["code"] for finding in record["measured"]["findings"]] == ["L036"]

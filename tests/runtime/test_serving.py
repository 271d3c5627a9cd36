"""What a launch is made of: the engine's environment, and whom it asks before it stops."""

import json
import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.runtime.device_memory import DeviceUse
from servespec.runtime.serving import run, serving_of
from servespec.runtime.supervise import BeforeStop, Outcome
from tests.plans import compiled, spec_of


@pytest.fixture(autouse=True)
def at_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servespec.runtime.serving._problems", lambda *_: ())
    monkeypatch.delenv("PYTHONPATH", raising=False)


def environment_of(folder: Path, **engine: Any) -> dict[str, str]:
    spec = spec_of("qwen3-8b", "h200", engine={"version": "0.33.0", **engine})
    return dict(serving_of(compiled(spec), folder).command.env)


@pytest.mark.parametrize(("args", "is_tls"), [({}, False), ({"ssl_certfile": "a.pem", "ssl_keyfile": "a.key"}, True)])
def test_a_server_with_a_certificate_is_spoken_to_by_https(args: dict[str, str], is_tls: bool, tmp_path: Path) -> None:
    spec = spec_of("qwen3-8b", "h200", engine={"version": "0.33.0", "args": args})
    assert serving_of(compiled(spec), tmp_path).command.tls is is_tls


@pytest.mark.parametrize("lowering", ["none", "legacy", "extension"])
def test_every_lowering_names_its_record_folder_and_the_plug_in(lowering: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path, lowering=lowering)

    assert environment["SERVESPEC_RECORD_FOLDER"] == str(tmp_path)
    (entry_points,) = Path(environment["PYTHONPATH"]).glob("*.dist-info/entry_points.txt")
    assert "vllm.stat_logger_plugins" in entry_points.read_text(encoding="utf-8")
    assert "SERVESPEC_KEEP_STATISTICS" not in environment


def test_a_path_of_the_shell_is_kept_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")

    first, last = environment_of(tmp_path)["PYTHONPATH"].split(os.pathsep)

    assert (Path(first).name, last) == ("engine_plugin", "/mine")


def test_statistics_that_are_off_load_no_plug_in(tmp_path: Path) -> None:
    environment = environment_of(tmp_path, args={"cudagraph_metrics": False})

    assert "PYTHONPATH" not in environment


def test_statistics_that_the_spec_asks_for_stay_in_the_engines_log(tmp_path: Path) -> None:
    assert environment_of(tmp_path, args={"cudagraph_metrics": True})["SERVESPEC_KEEP_STATISTICS"] == "1"


def test_the_workers_of_the_plan_are_asked_before_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else lies in the folder."""
    sections = {"hardware": {"gpu": "h200", "count": 2}, "parallel": {"data_parallel_size": 2}}
    plan = compiled(spec_of("qwen3-8b", "h200", engine={"version": "0.33.0"}, **sections))
    asked: list[list[str]] = []

    def serve(*_: object, before_stop: BeforeStop, **__: object) -> Outcome:
        (tmp_path / "captured-copy.json").write_text("{")
        before_stop()
        return Outcome(0, (), tmp_path / "engine.log")

    def ask(reports: Iterable[Path]) -> None:
        asked.append([str(path.relative_to(tmp_path)) for path in reports])

    monkeypatch.setattr("servespec.runtime.serving.serve", serve)
    monkeypatch.setattr("servespec.runtime.serving.ask_for_last_reports", ask)

    run(plan, serving_of(plan, tmp_path), print)

    assert asked == [["captured-0-0.json", "captured-1-0.json"]]


@pytest.mark.parametrize("fails", [False, True])
def test_no_pipe_outlives_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Neither one of this launch, whose workers were killed, nor one of an earlier launch in the folder."""
    plan = compiled(spec_of("qwen3-8b", "h200", engine={"version": "0.33.0"}))
    os.mkfifo(tmp_path / "ask-3-1")
    (tmp_path / "ask-me-anything").write_text("mine")

    def serve(*_: object, **__: object) -> Outcome:
        assert not (tmp_path / "ask-3-1").exists()
        os.mkfifo(tmp_path / "ask-0-0")
        if fails:
            raise RuntimeError("a fault of ours")
        return Outcome(0, (), tmp_path / "engine.log")

    monkeypatch.setattr("servespec.runtime.serving.serve", serve)

    with pytest.raises(RuntimeError) if fails else nullcontext():
        run(plan, serving_of(plan, tmp_path), print)

    assert [path.name for path in tmp_path.glob("ask-*")] == ["ask-me-anything"]


def test_memory_that_the_engine_did_not_give_back_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compiled(spec_of("qwen3-8b", "h200", engine={"version": "0.33.0"}))
    uses = iter([512, 72_704])
    said = Outcome(0, (), tmp_path / "engine.log", engine_pid=1)
    monkeypatch.setattr("servespec.runtime.serving.serve", lambda *_, **__: said)
    monkeypatch.setattr("servespec.runtime.device_memory._PATIENCE_SECONDS", 0.0)
    for module in ("serving", "device_memory"):
        monkeypatch.setattr(f"servespec.runtime.{module}.device_use", lambda _: DeviceUse({"a": next(uses)}, {"a": {}}))

    outcome = run(plan, serving_of(plan, tmp_path), print)

    assert [finding.code for finding in outcome.diagnostics] == ["L019"]


@pytest.mark.parametrize("command", ["serve", "verify", "steps", "bench"])
def test_a_record_folder_that_cannot_be_written_is_a_failed_launch(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(spec_of("qwen3-8b", "h200", engine={"version": "0.33.0", "lowering": "extension"})))
    further = ("--arms", "spec", "-o", str(tmp_path / "bench.json")) if command == "bench" else ()

    result = CliRunner().invoke(app, [command, str(spec), "--record", str(spec), *further])

    assert result.exit_code == 5, result.output
    said = "".join(result.stderr.split())
    assert "".join(f"error[L010]: the folder `{spec}` for the log and the records cannot be written".split()) in said

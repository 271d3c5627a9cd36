"""An arm's server: started under a keeper, awaited by its record, stopped with all of it."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.json_text import json_text
from servespec.diagnostics import SpecError
from servespec.runtime.bench import servers
from servespec.runtime.bench.arms import Arm, arm_of
from servespec.runtime.bench.servers import arm_up
from servespec.runtime.bench.stopping import Stopped, StopSignals, stopped_by_signals
from servespec.runtime.gather import Options
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.record import Measured, record_of
from tests.plans import REPOSITORY

pytestmark = pytest.mark.usefixtures("quiet_shell")

SPEC = str(REPOSITORY / "tests" / "golden" / "cases" / "cpu" / "spec.yaml")
WAITS = "import time; time.sleep(600)"
ENDS = "print('error[L005]: out of memory'); raise SystemExit(5)"


@pytest.fixture
def arm() -> Arm:
    return arm_of("spec", "spec", SPEC, Options(settings=("serve.host=127.0.0.1",)))


def serving(monkeypatch: pytest.MonkeyPatch, program: str) -> list[LaunchCommand]:
    """`servespec serve` is ``program`` instead; the commands that were meant."""
    meant: list[LaunchCommand] = []
    engines_own = servers.start

    def start(command: LaunchCommand, environ: Any) -> Any:
        meant.append(command)
        argv = (sys.executable, "-c", program)
        return engines_own(LaunchCommand(**{**fields_of(command), "argv": argv}), environ)

    monkeypatch.setattr(servers, "start", start)
    return meant


def fields_of(command: LaunchCommand) -> dict[str, Any]:
    return {name: getattr(command, name) for name in command.__dataclass_fields__}


def leave_record(arm: Arm, folder: Path, ready: float | None) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "record.json").write_text(json_text(record_of(arm.plan, Measured(started=1.0, ready=ready))))


def test_an_arm_is_ready_when_its_record_says_so(arm: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = serving(monkeypatch, WAITS)
    leave_record(arm, tmp_path, ready=5.0)  # of an earlier launch

    with arm_up(arm, tmp_path, StopSignals(), ("--allow-code",)) as server:
        assert not (tmp_path / "record.json").exists()
        leave_record(arm, tmp_path, ready=None)
        assert server.measured()["ready_at"] is None
        leave_record(arm, tmp_path, ready=5.0)
        assert server.wait_until_ready() < 60
        server.check_alive()

    assert server.process.exit is not None
    words = command[0].argv
    assert words[2:6] == ("-m", "servespec", "serve", SPEC)
    assert words[-1] == "--allow-code"
    assert f"serve.port={command[0].port}" in words
    assert server.base_url == f"http://127.0.0.1:{command[0].port}"


def test_an_arm_with_a_certificate_is_loaded_by_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("serve.host=127.0.0.1", "engine.args.ssl_certfile=a.pem", "engine.args.ssl_keyfile=a.key")
    serving(monkeypatch, WAITS)

    with arm_up(arm_of("spec", "spec", SPEC, Options(settings=settings)), tmp_path, StopSignals(), ()) as server:
        assert server.base_url.startswith("https://127.0.0.1:")


def test_an_arm_that_ends_says_why(arm: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, ENDS)

    with pytest.raises(SpecError, match=r"ended with code 5: error\[L005\]: out of memory"):  # noqa: SIM117
        with arm_up(arm, tmp_path, StopSignals(), ()) as server:
            server.wait_until_ready()


def test_what_a_program_leaves_running_is_stopped(arm: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "pid"
    child = f"import subprocess, sys, pathlib; p = subprocess.Popen([sys.executable, '-c', {WAITS!r}]);"
    serving(monkeypatch, f"{child} pathlib.Path({str(marker)!r}).write_text(str(p.pid)); p.wait()")

    with arm_up(arm, tmp_path / "records", StopSignals(), ()):
        while not marker.is_file() or not marker.read_text():
            pass
    assert not Path(f"/proc/{marker.read_text()}").exists()


def test_records_are_read_by_their_schema(arm: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, WAITS)

    with arm_up(arm, tmp_path, StopSignals(), ()) as server:
        (tmp_path / "record.json").write_text(json.dumps({"measured": {}}))
        with pytest.raises(SpecError, match="is no record"):
            server.measured()


def test_a_signal_while_a_server_starts_leaves_none(arm: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, WAITS)
    start, started = servers.start, list[Any]()

    def start_and_signal(command: LaunchCommand, environ: Mapping[str, str]) -> Any:
        started.append(start(command, environ))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    monkeypatch.setattr(servers, "start", start_and_signal)
    with pytest.raises(Stopped), stopped_by_signals() as stops, arm_up(arm, tmp_path, stops, ()):
        pass

    assert [one.exit is not None for one in started] == [True]

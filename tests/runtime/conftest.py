"""Fixtures to run the fake engine under the supervisor, in this process or in one that can be signalled."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servespec.runtime.health import free_port
from servespec.runtime.launch import LaunchCommand

HERE = Path(__file__).parent
_LONG_SECONDS = 15.0


@dataclasses.dataclass
class Fake:
    """A fake engine's command, and the processes that it was seen to start."""

    folder: Path
    port: int = dataclasses.field(default_factory=free_port)

    @property
    def pids_path(self) -> Path:
        return self.folder / "pids"

    def command(self, *switches: str, listens: bool = True, **fields: Any) -> LaunchCommand:
        where = ("--port", str(self.port)) if listens else ()
        argv = (
            sys.executable,
            "-I",
            "-S",
            str(HERE / "fake_engine.py"),
            *where,
            "--pids",
            str(self.pids_path),
            *switches,
        )
        defaults = {"env": {}, "host": "127.0.0.1", "port": self.port, "log_path": self.folder / "engine.log"}
        return LaunchCommand(**{"argv": argv, "grace_seconds": 5.0, **defaults, **fields})

    def pids(self) -> list[int]:
        return [int(line) for line in self.pids_path.read_text().split()] if self.pids_path.exists() else []

    def alive(self) -> list[int]:
        return [pid for pid in self.pids() if _is_alive(pid)]

    def alive_after(self, seconds: float) -> list[int]:
        """Those that still live when all have ended or ``seconds`` are over."""
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.alive()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    fake = Fake(tmp_path)
    yield fake
    for pid in fake.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@dataclasses.dataclass
class Supervised:
    """A supervisor in a process of its own."""

    process: "subprocess.Popen[str]"
    said: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def until(self, kind: str) -> dict[str, Any]:
        """The first line of ``kind``; fails when the output ends before it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if self.said[-1]["kind"] == kind:
                return self.said[-1]
        raise AssertionError(f"no {kind} in {self.said}")

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def code(self) -> int:
        return self.process.wait(_LONG_SECONDS)

    def kinds(self) -> list[str]:
        return [said["kind"] for said in self.said]


def heed_signals() -> None:
    """A test run in the background or under nohup ignores signals, and its children would too."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


@pytest.fixture
def supervised() -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def run(command: LaunchCommand, **extra: Any) -> Supervised:
        given = {f.name: getattr(command, f.name) for f in dataclasses.fields(command) if f.name != "withheld"}
        given["log_path"] = str(command.log_path)
        popen = {"preexec_fn": extra.pop("preexec_fn", heed_signals)}
        argv = [sys.executable, str(HERE / "run_supervised.py"), json.dumps({**given, **extra})]
        started.append(Supervised(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **popen)))
        return started[-1]

    yield run
    for one in started:
        one.process.kill()
        one.process.communicate()


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"

"""A bench, its `serve`, their keepers and the engine: whichever is killed, nothing of the engine is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from servespec.runtime.health import free_port
from servespec.runtime.keeper import descendants
from tests.plans import REPOSITORY

pytestmark = pytest.mark.timeout(60)

RUNTIME = REPOSITORY / "tests" / "runtime"
# What `arm_up` does, with another program in place of `servespec serve`.
BENCH = """
import json, os, sys, time
from pathlib import Path
from servespec.runtime.launch import LaunchCommand, start
argv, log = json.loads(sys.argv[1]), Path(sys.argv[2])
command = LaunchCommand(argv=tuple(argv), env={}, host="127.0.0.1", port=0, log_path=log, grace_seconds=2.0)
server = start(command, os.environ)
server.wait(600)
"""


class Chain:
    """A started bench of one arm; ``pids`` are those of the engine, one of which left its session."""

    def __init__(self, folder: Path) -> None:
        self._pids, self._log, port = folder / "pids", folder / "serve.log", str(free_port())
        engine = (sys.executable, "-I", "-S", str(RUNTIME / "fake_engine.py"), "--port", port, "--stubborn-family")
        command = {
            "argv": (*engine, "--pids", str(self._pids)),
            "env": {},
            "host": "127.0.0.1",
            "port": int(port),
            "log_path": str(folder / "engine.log"),
            "grace_seconds": 0.5,
        }
        serve = (sys.executable, str(RUNTIME / "run_supervised.py"), json.dumps(command))
        environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        words = (sys.executable, "-c", BENCH, json.dumps(serve), str(self._log))
        self.bench = subprocess.Popen(words, env=environ, start_new_session=True)
        self._until(lambda: self._log.is_file() and '"Ready"' in self._log.read_text())

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self._pids.read_text().split()]

    def member(self, name: str) -> int:
        """From the engine's first process up: the engine, its keeper, `serve`, the keeper of that, the bench."""
        pid = self.pids[0]
        for one in ("engine", "keeper of engine", "serve", "keeper of serve", "bench"):
            if one == name:
                return pid
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        raise AssertionError(name)

    def alive_at_last(self) -> list[int]:
        with suppress(AssertionError):
            self._until(lambda: not any(map(is_alive, self.pids)))
        return [pid for pid in self.pids if is_alive(pid)]

    def end(self) -> None:
        for pid in (*descendants(self.bench.pid), *self.pids, self.bench.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.bench.wait()

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    chain = Chain(tmp_path)
    yield chain
    chain.end()


@pytest.mark.parametrize(
    "killed",
    [
        ("bench",),
        ("keeper of serve",),
        ("serve",),
        ("keeper of engine",),
        ("engine",),
        ("bench", "keeper of serve", "serve"),
        ("bench", "serve", "keeper of engine"),
    ],
)
def test_nothing_is_left_of_the_engine_whoever_is_killed(chain: Chain, killed: tuple[str, ...]) -> None:
    victims = [chain.member(name) for name in killed]
    assert chain.bench.pid == chain.member("bench")
    assert len(chain.pids) == 3

    for pid in victims:
        os.kill(pid, signal.SIGKILL)

    assert chain.alive_at_last() == []

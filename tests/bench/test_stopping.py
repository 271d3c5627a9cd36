"""A bench that a signal ends: its servers are stopped in order before it ends itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plans import REPOSITORY

pytestmark = pytest.mark.timeout(60)

SPEC = REPOSITORY / "tests" / "golden" / "cases" / "cpu" / "spec.yaml"
# In place of `servespec serve`: takes its time to stop, and says that it did.
SERVER = """
import os, pathlib, signal, sys, time
def end(*_):
    time.sleep(0.5)
    pathlib.Path("stopped").touch()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path("started").touch()
time.sleep(600)
"""
# One that takes no offence at being asked.
STUBBORN_SERVER = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("asked").touch())
pathlib.Path("pid").write_text(str(os.getpid()))
pathlib.Path("started").touch()
while True:
    time.sleep(600)
"""
BENCH = """
import sys
from dataclasses import replace
from servespec.cli import main
from servespec.runtime.bench import client_process, servers
start, (_, server, spec) = servers.start, sys.argv
servers.start = lambda command, environ: start(replace(command, argv=(sys.executable, "-c", server)), environ)
client_process._CLIENT = "stand_in"
sys.argv = ["servespec", "bench", spec, "--arms", "spec", "--concurrency", "1"]
main()
"""


@contextmanager
def bench(folder: Path, heed: Callable[[], None], server: str = SERVER) -> Iterator["subprocess.Popen[str]"]:
    """A bench in ``folder`` whose one server has started."""
    (folder / "stand_in.py").write_text("input()")
    environ = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{folder}"}
    words = (sys.executable, "-c", BENCH, server, str(SPEC))
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environ,
        text=True,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed,  # noqa: PLW1509 - one thread here
    ) as process:
        wait_for(folder / "started", process)
        yield process
        process.kill()


def wait_for(file: Path, process: "subprocess.Popen[str]") -> None:
    while process.poll() is None and not file.exists():
        time.sleep(0.05)


def heed_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_servers_and_then_the_bench(tmp_path: Path, signum: signal.Signals) -> None:
    with bench(tmp_path, heed_signals) as process:
        process.send_signal(signum)
        _, said = process.communicate()

        assert process.returncode == 128 + signum, said
        assert f"{signum.name} received, and every server is stopped; nothing was measured" in said
        assert (tmp_path / "stopped").exists()
        assert not (tmp_path / "bench.json").exists()


def test_a_second_signal_kills_the_servers_at_once_and_leaves_none(tmp_path: Path) -> None:
    with bench(tmp_path, heed_signals, STUBBORN_SERVER) as process:
        process.send_signal(signal.SIGINT)
        wait_for(tmp_path / "asked", process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        is_left = Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()

        assert (process.returncode, is_left) == (128 + signal.SIGINT, False), said
        assert "SIGINT received, and every server is stopped" in said


def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """A shell without job control starts its background jobs so."""
    with bench(tmp_path, lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None) as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()

        assert (process.returncode, "SIGTERM received" in said) == (143, True)

"""A command that is started without one of its standard streams, as some service managers do."""

import os
import subprocess
import sys

import pytest

from tests.plans import REPOSITORY

SPEC = str(REPOSITORY / "tests" / "golden" / "cases" / "cpu" / "spec.yaml")
STDIN, STDOUT, STDERR = range(3)


def closed(spec: str, *streams: int) -> "subprocess.CompletedProcess[str]":
    """`servespec plan`, of which ``streams`` are closed."""

    def close() -> None:
        for one in streams:
            os.close(one)

    words = (sys.executable, "-m", "servespec", "plan", spec)
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(words, env=environ, text=True, capture_output=True, preexec_fn=close, check=False)


@pytest.mark.parametrize("streams", [(STDIN,), (STDERR,), (STDIN, STDERR)])
def test_a_plan_is_printed_all_the_same(streams: tuple[int, ...]) -> None:
    done = closed(SPEC, *streams)

    assert (done.returncode, done.stdout.startswith("plan for ")) == (0, True), done.stderr


def test_nothing_is_a_fault_of_ours_with_all_of_them_closed() -> None:
    assert closed(SPEC, STDIN, STDOUT, STDERR).returncode == 0


def test_a_spec_on_a_closed_stream_is_an_empty_one() -> None:
    done = closed("-", STDIN)

    assert (done.returncode, "the file holds no spec" in done.stderr) == (1, True)

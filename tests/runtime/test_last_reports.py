"""Workers of an engine that is about to stop are asked what they hold; the engine would kill them first."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servespec.runtime.last_reports import ask_for_last_reports

pytestmark = pytest.mark.timeout(60)

WORKER = """
import pathlib, signal, sys, time
path = pathlib.Path(sys.argv[1])

def answer(*_):
    time.sleep(0.2)  # until its step is done
    part = path.with_suffix(".part")
    part.write_text("{}")
    part.replace(path)


signal.signal(signal.SIGUSR1, answer)
print("up", flush=True)
time.sleep(600)
"""


class Worker:
    """A process that answers, as a worker under the extension does."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.captured, self.left = folder / f"captured-0-{rank}.json", folder / f"left-0-{rank}.json"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WORKER, str(self.left)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"
        self.captured.write_text(json.dumps({"pid": self.process.pid}))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[Worker]]:
    both = [Worker(tmp_path, rank) for rank in (0, 1)]
    yield both
    for one in both:
        one.end()


def reports_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("captured-*.json"))


def test_every_worker_has_answered_when_it_returns(workers: list[Worker], tmp_path: Path) -> None:
    ask_for_last_reports(reports_in(tmp_path), os.getpid(), 30.0)

    assert all(one.left.is_file() for one in workers)
    assert all(one.process.poll() is None for one in workers)


def test_an_earlier_answer_is_not_taken_for_the_one_asked_for(workers: list[Worker], tmp_path: Path) -> None:
    for one in workers:
        one.left.write_text("an earlier one")

    ask_for_last_reports(reports_in(tmp_path), os.getpid(), 30.0)

    assert [one.left.read_text() for one in workers] == ["{}", "{}"]


def test_processes_of_others_are_left_alone(workers: list[Worker], tmp_path: Path) -> None:
    """A number in a file may by now be that of another process: only those below the engine's are asked."""
    mine, other = workers

    ask_for_last_reports(reports_in(tmp_path), mine.process.pid, 0.2)

    assert not any(one.left.is_file() for one in workers)
    assert other.process.poll() is None


def test_a_worker_that_is_gone_is_not_waited_for(workers: list[Worker], tmp_path: Path) -> None:
    gone, alive = workers
    gone.end()

    began = time.monotonic()
    ask_for_last_reports(reports_in(tmp_path), os.getpid(), 600.0)

    assert alive.left.is_file()
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"pid"', '{"pid": [1]}', '{"pid": null}', "{}", None])
def test_a_report_that_is_none_is_skipped(workers: list[Worker], tmp_path: Path, text: str | None) -> None:
    damaged, whole = workers
    damaged.captured.unlink()
    if text is not None:
        damaged.captured.write_text(text)

    ask_for_last_reports([damaged.captured, whole.captured], os.getpid(), 30.0)

    assert [one.left.is_file() for one in workers] == [False, True]


def test_only_the_named_reports_are_read(workers: list[Worker]) -> None:
    named, other = workers

    ask_for_last_reports([named.captured], os.getpid(), 30.0)

    assert named.left.is_file()
    assert not other.left.is_file()


def test_without_workers_there_is_nobody_to_ask(tmp_path: Path) -> None:
    ask_for_last_reports(reports_in(tmp_path), os.getpid(), 600.0)

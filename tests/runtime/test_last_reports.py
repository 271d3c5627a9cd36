"""Workers of an engine that is about to stop are asked what they hold; the engine would kill them first."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servespec.runtime.extension.report import FOLDER_VARIABLE
from servespec.runtime.last_reports import ask_for_last_reports

pytestmark = pytest.mark.timeout(60)

HERE = Path(__file__).parent
ENOUGH_SECONDS = 30.0
"""Of a machine that does much else; an answer takes milliseconds."""


class Worker:
    """A process with a worker under the extension."""

    def __init__(self, folder: Path, rank: int = 0, doing: str = "waits", faults: tuple[str, ...] = ()) -> None:
        names = (f"captured-0-{rank}.json", f"left-0-{rank}.json", f"ask-0-{rank}")
        self.captured, self.left, self.pipe = (folder / name for name in names)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "asked_worker.py"), str(rank), doing, json.dumps(faults)],
            env={**os.environ, FOLDER_VARIABLE: str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    @property
    def graphs(self) -> int:
        """Of its answer."""
        return len(json.loads(self.left.read_text())["managers"][0]["full"])

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start_worker(*args: int | str | tuple[str, ...]) -> Worker:
        started.append(Worker(tmp_path, *args))  # type: ignore[arg-type]
        return started[-1]

    yield start_worker
    for one in started:
        one.kill()


def asked(*workers: Worker, seconds: float = ENOUGH_SECONDS) -> float:
    """How long it took to ask."""
    began = time.monotonic()
    ask_for_last_reports([one.captured for one in workers], seconds)
    return time.monotonic() - began


@pytest.mark.parametrize("doing", ["waits", "computes", "calls the device", "made in a thread", "changes its graphs"])
def test_a_worker_answers_whatever_its_main_thread_does(start: Callable[..., Worker], doing: str) -> None:
    worker = start(0, doing)

    for _ in range(3):
        assert asked(worker) < ENOUGH_SECONDS
        assert worker.graphs >= 399
        worker.left.unlink()
    assert worker.lives


def test_every_worker_has_answered_when_it_returns(start: Callable[..., Worker]) -> None:
    workers = [start(rank) for rank in (0, 1, 2)]

    asked(*workers)

    assert [one.graphs for one in workers] == [399] * 3


def test_only_the_named_workers_are_asked(start: Callable[..., Worker]) -> None:
    named, other = start(0), start(1)

    asked(named)

    assert (named.left.is_file(), other.left.is_file()) == (True, False)


def test_each_question_has_an_answer_of_its_own(start: Callable[..., Worker]) -> None:
    """Also where they come one right after the other."""
    worker = start()

    answers = []
    for _ in range(20):
        assert asked(worker) < ENOUGH_SECONDS
        answers.append(worker.left.stat().st_mtime_ns)

    assert answers == sorted(set(answers))


def test_an_earlier_answer_is_not_taken_for_the_one_asked_for(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.left.write_text("an earlier one")

    asked(worker)

    assert worker.graphs == 399


@pytest.mark.parametrize("fault", ["OSError", "RuntimeError"])
def test_an_answer_that_fails_is_none_and_the_next_one_comes(start: Callable[..., Worker], fault: str) -> None:
    worker = start(0, "waits", (fault,))

    assert asked(worker, seconds=0.5) >= 0.5
    assert (worker.left.exists(), worker.lives) == (False, True)

    asked(worker)
    assert worker.graphs == 399


def test_a_fault_of_ours_ends_the_answers_and_not_the_worker(start: Callable[..., Worker]) -> None:
    worker = start(0, "waits", ("KeyError",))

    asked(worker, seconds=1.0)

    assert asked(worker) < 1
    assert (worker.left.exists(), worker.lives) == (False, True)


def test_a_worker_that_is_gone_is_not_waited_for(start: Callable[..., Worker]) -> None:
    gone, alive = start(0), start(1)
    gone.kill()
    gone.left.write_text("what it left at its end")

    assert gone.pipe.is_fifo()
    assert asked(gone) < 1
    assert asked(gone, alive) < ENOUGH_SECONDS

    assert gone.left.read_text() == "what it left at its end"
    assert alive.graphs == 399


def test_a_worker_that_ends_by_itself_leaves_no_pipe(start: Callable[..., Worker]) -> None:
    worker = start(0, "ends when told")
    assert worker.pipe.is_fifo()

    worker.process.communicate("end\n")

    assert worker.process.returncode == 0
    assert (worker.pipe.exists(), worker.graphs) == (False, 399)


def test_a_worker_in_the_place_of_one_that_was_killed_answers(start: Callable[..., Worker]) -> None:
    start().kill()
    successor = start()

    asked(successor)

    assert successor.graphs == 399


def test_a_pipe_is_its_owners_alone(start: Callable[..., Worker]) -> None:
    assert start().pipe.stat().st_mode & 0o777 == 0o600


def test_what_is_no_pipe_is_neither_written_nor_waited_for(start: Callable[..., Worker], tmp_path: Path) -> None:
    """Somebody's file in the pipe's place stays, and the worker goes on without."""
    for rank in (0, 1):
        (tmp_path / f"ask-0-{rank}").write_text("mine")
    beside = start(0)
    beside.left.write_text("an earlier one")
    (tmp_path / "ask-0-1").unlink()
    (tmp_path / "ask-0-1").symlink_to(tmp_path / "ask-0-0")

    assert asked(beside, start(1)) < 1

    assert (beside.pipe.read_text(), beside.left.read_text(), beside.lives) == ("mine", "an earlier one", True)


def test_without_workers_there_is_nobody_to_ask(tmp_path: Path) -> None:
    began = time.monotonic()

    ask_for_last_reports([tmp_path / "captured-0-0.json"], 600.0)

    assert time.monotonic() - began < 1

"""The bar of a launch on a terminal, and the lines without one."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from servespec.cli.launch_bar import launch_bar
from servespec.cli.reporting import telling
from servespec.runtime.engine_log import Phase
from servespec.runtime.supervise import PhaseReached, Progressed, Ready, Started, Stopping
from tests.plans import compiled, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

EVENTS: tuple[Any, ...] = (
    Started(7, Path("[bold]engine.log")),
    PhaseReached(Phase.LOADING, 3.0),
    Progressed(Phase.LOADING, 1, 2),
    PhaseReached(Phase.CAPTURING, 20.0),
    Progressed(Phase.CAPTURING, 23, 51),
)


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_has_every_line_and_a_bar_with_the_engines_counts() -> None:
    console = terminal()
    with launch_bar(compiled(spec_of("qwen3-8b", "h200")), console) as on_event:
        for event in EVENTS:
            on_event(event)

    text = shown(console)
    assert "started the engine (process 7); its log is [bold]engine.log" in text
    assert "3 s  loading weights" in text
    assert "1/2" in text
    assert "capturing graphs" in text
    assert "23/51" in text
    assert "0/2" not in text
    assert text.rindex("23/51") > text.rindex("1/2")


@pytest.mark.parametrize("end", [Ready("http://127.0.0.1:8000", 30.0, ()), Stopping("SIGINT received")])
def test_the_bar_is_gone_once_the_launch_is_over(end: Any) -> None:
    """What is printed after it is the last thing on the screen."""
    console = terminal()
    with launch_bar(compiled(spec_of("qwen3-8b", "h200")), console) as on_event:
        for event in (*EVENTS, end):
            on_event(event)
        before = shown(console)
        console.print("an answer")
        assert shown(console) == f"{before}an answer\n"


def test_a_fault_in_between_leaves_no_bar_behind() -> None:
    console = terminal()

    def fail() -> None:
        with launch_bar(compiled(spec_of("qwen3-8b", "h200")), console) as on_event:
            on_event(EVENTS[0])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert shown(console).endswith("\x1b[2K")


def test_without_a_terminal_there_are_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with telling(compiled(spec_of("qwen3-8b", "h200"))) as on_event:
        for event in EVENTS:
            on_event(event)

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "started the engine (process 7); its log is [bold]engine.log",
        "     3 s  loading weights",
        "    20 s  capturing graphs",
    ]

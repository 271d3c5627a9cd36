"""Who waits at a terminal is told, and nobody else is."""

import io
import time
from typing import Any

import pytest

from servespec.cli.waiting import waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def shown_while(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, patience_seconds: float, work: Any) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    with waiting("planning", patience_seconds):
        work()
    monkeypatch.undo()
    return stream.getvalue()


def until(stream: io.StringIO, word: str) -> None:
    """Work that lasts until the word is there."""
    end = time.monotonic() + 30
    while word not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.01)


def test_a_long_wait_is_told_and_the_word_taken_away(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_while(terminal, monkeypatch, 0, lambda: until(terminal, "planning"))

    assert "planning" in shown
    assert shown.endswith("\x1b[2K")


def test_a_short_one_is_not(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_while(terminal, monkeypatch, 60, lambda: None) == ""


def test_a_file_gets_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_while(io.StringIO(), monkeypatch, 0, lambda: time.sleep(0.05)) == ""


def test_a_fault_ends_it_too(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        until(terminal, "planning")
        raise KeyError

    with pytest.raises(KeyError):
        shown_while(terminal, monkeypatch, 0, fails)

    assert terminal.getvalue().endswith("\x1b[2K")

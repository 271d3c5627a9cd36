"""What servespec says about a spec: rules, places and findings, as values.

A finding is a :class:`Diagnostic`; text, JSON and GitHub annotations are made from its JSON form in
``render/diagnostics.py``.  Lines and columns count from 1; a column counts characters, not bytes.

:class:`SpecError` is the only exception that leaves a stage because of what a user wrote.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    line: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """From the first character to the one after the last, as editors count."""

    start: Position
    end: Position


COMMAND_LINE = "command line"
"""The file of a place that is a command line, or a word of one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A range in a named file; ``range`` is None where a whole file or a command line is meant.

    ``word`` counts the words of a command line from 1; 0 anywhere else.
    """

    file: str
    range: Range | None = None
    word: int = 0


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a finding is about, with what stands there."""

    message: str
    place: Place


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be found. ``code`` is never reused; its letter names the stage.

    S spec file, R resolution, P plan, L launch and run.  ``summary`` is one line; ``explanation`` says why
    the rule exists and what to do; ``source`` says where it comes from.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    explanation: str
    source: str = ""

    def at(
        self,
        place: Place,
        message: str,
        help: str = "",  # noqa: A002 - the contract's name for it
        related: Iterable[Related] = (),
    ) -> "Diagnostic":
        """A finding of this rule at ``place``."""
        return Diagnostic(self, message, help, place, tuple(related))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    rule: Rule
    message: str
    help: str
    place: Place
    related: tuple[Related, ...] = ()

    @property
    def code(self) -> str:
        return self.rule.code

    @property
    def severity(self) -> Severity:
        return self.rule.severity

    def to_json(self) -> dict[str, Any]:
        """The form of the contract: file and range, related places, all in plain JSON types."""
        return {
            "code": self.code,
            "name": self.rule.name,
            "severity": str(self.severity),
            "message": self.message,
            "help": self.help,
            **_place_json(self.place),
            "related": [{"message": r.message, **_place_json(r.place)} for r in self.related],
        }


class SpecError(Exception):
    """What a user wrote cannot be used; ``diagnostics`` says what, where and how to mend it."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = in_file_order(diagnostics)
        super().__init__("; ".join(d.message for d in self.diagnostics))


def in_file_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorted by file, place, severity and code; duplicates removed."""
    return tuple(sorted(dict.fromkeys(diagnostics), key=_order))


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(d.severity is Severity.ERROR for d in diagnostics)


_SEVERITY_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def _order(diagnostic: Diagnostic) -> tuple[str, int, int, int, int, str, str]:
    start = diagnostic.place.range.start if diagnostic.place.range else Position(0, 0)
    rank = _SEVERITY_ORDER.index(diagnostic.severity)
    place = (start.line, start.column, diagnostic.place.word)
    return (diagnostic.place.file, *place, rank, diagnostic.code, diagnostic.message)


def _place_json(place: Place) -> dict[str, Any]:
    if place.range is None:
        return {"file": place.file, "range": None}
    start, end = place.range.start, place.range.end
    return {
        "file": place.file,
        "range": {
            "start": {"line": start.line, "column": start.column},
            "end": {"line": end.line, "column": end.column},
        },
    }

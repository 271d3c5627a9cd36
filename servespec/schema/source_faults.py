"""Lines and columns of a text, and the faults found in it while it is read."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NoReturn

from servespec.diagnostics import Diagnostic, Place, Position, Range, Related, Rule, SpecError
from servespec.schema import source_rules as rules

MAX_FAULTS = 100

# Indices of the first character and of the one after the last.
Span = tuple[int, int]

_LINE_END = re.compile(r"\r\n|\r|\n")


class Lines:
    """Turns indices into lines and columns; a line ends with a line feed, a carriage return or both."""

    __slots__ = ("_starts",)

    def __init__(self, text: str) -> None:
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]

    def range_of(self, span: Span) -> Range:
        return Range(self._position(span[0]), self._position(span[1]))

    def _position(self, index: int) -> Position:
        line = bisect_right(self._starts, index)
        return Position(line, index - self._starts[line - 1] + 1)


class Faults:
    """What is wrong so far with ``text``, the contents of the file ``name``."""

    __slots__ = ("_found", "lines", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text, self.lines = name, text, Lines(text)
        self._found: list[Diagnostic] = []

    def add(
        self,
        rule: Rule,
        span: Span,
        message: str,
        help: str,  # noqa: A002 - the contract's name for it
        related: Iterable[Related] = (),
    ) -> None:
        if len(self._found) == MAX_FAULTS:
            message = f"more than `{MAX_FAULTS}` faults; reading stops here"
            self.stop(rules.S019, span, message, "mend those above and try again")
        self._found.append(rule.at(self._place(span), message, help, related))

    def stop(
        self,
        rule: Rule,
        span: Span,
        message: str,
        help: str,  # noqa: A002 - the contract's name for it
        related: Iterable[Related] = (),
    ) -> NoReturn:
        """Ends reading with this fault and all before it."""
        self._found.append(rule.at(self._place(span), message, help, related))
        raise SpecError(self._found)

    def raise_any(self) -> None:
        if self._found:
            raise SpecError(self._found)

    def related(self, span: Span, message: str) -> tuple[Related, ...]:
        return (Related(message, self._place(span)),)

    def character(self, index: int) -> Span:
        """The character at ``index``; where the text has ended, the place after its last word."""
        index = min(index, len(self.text.rstrip()))
        return (index, min(index + 1, len(self.text)))

    def line_before(self, index: int) -> str:
        """What stands left of ``index`` on its line."""
        return _LINE_END.split(self.text[:index])[-1]

    def _place(self, span: Span) -> Place:
        return Place(self.name, self.lines.range_of(span))

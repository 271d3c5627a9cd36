"""A shell script taken apart into words and operators, with the variables that the words refer to put in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from servespec.compiler.command_line.shell_conditions import Condition
from servespec.schema.source_faults import Span

ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_OPERATOR: Final = re.compile(r"&&|\|\||;;&|;;|;&|[;&|()]|\r\n|\r|\n")
_REDIRECTION: Final = re.compile(r"(?:\d*|&)(?:<<<|<<-?|>>|>\||<>|[<>]&?)(?:\d+|-)?")
_HERE_DOCUMENT: Final = re.compile(r"\d*<<-?\Z")
_BLANKS: Final = re.compile(r"[ \t\n]+")
_REFERENCE: Final = re.compile(
    r"\$(?:(\w+)|\{(\w+)(\[[@*]\])?(?::?-([^}]*))?\}|(\{[^}]*\}?|\([^)]*\)?|[@*#?!$-]))|`[^`]*`?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Guess:
    """An assignment that happens under ``conditions`` alone; ``instead`` are those that hold where it does not."""

    name: str
    span: Span
    conditions: tuple[Condition, ...]
    instead: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class ShellWord:
    """``unset`` names what the word refers to and nothing above sets, ``guesses`` what is set only sometimes.

    ``array`` are the values of `NAME=(...)`, None for any other word.
    """

    text: str
    span: Span
    unset: tuple[str, ...] = ()
    guesses: tuple[Guess, ...] = ()
    array: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShellVariable:
    values: tuple[str, ...]
    span: Span
    conditions: tuple[Condition, ...]
    unset: tuple[str, ...]
    guesses: tuple[Guess, ...]


class Reader:
    """Takes a text apart; what stands between ``start`` and ``end`` is read once, from left to right.

    ``variables`` may change from one command to the next.
    """

    __slots__ = ("_at", "_end", "_here", "_text", "_variables")

    def __init__(self, text: str, start: int, end: int, variables: Mapping[str, ShellVariable]) -> None:
        self._text, self._at, self._end, self._variables = text, start, end, variables
        self._here: list[str] = []

    @property
    def at_end(self) -> bool:
        return self._at >= self._end

    def simple_command(self) -> tuple[tuple[ShellWord, ...], str, Span]:
        """The words up to the next operator or line, that operator, and where it stands."""
        words: list[ShellWord] = []
        while not self.at_end:
            self._skip_blanks()
            redirection = _REDIRECTION.match(self._text, self._at, self._end)
            if redirection is not None:
                self._redirect(redirection)
                continue
            start, operator = self._at, self._operator()
            if operator or self.at_end:
                return tuple(words), operator, (start, self._at)
            words += self._word()
        return tuple(words), "", (self._at, self._at)

    def _skip_blanks(self) -> None:
        blank = re.compile(r"(?:[ \t]|\\(?:\r\n|\r|\n))*(?:#[^\r\n]*)?").match(self._text, self._at, self._end)
        self._at = blank.end() if blank else self._at

    def _operator(self) -> str:
        found = _OPERATOR.match(self._text, self._at, self._end)
        if found is None:
            return ""
        self._at = found.end()
        if found[0] in ("\n", "\r", "\r\n"):
            self._skip_here_documents()
        return found[0]

    def _skip_here_documents(self) -> None:
        for delimiter in self._here:
            closing = re.compile(rf"^[ \t]*{re.escape(delimiter)}[ \t]*$", re.MULTILINE)
            found = closing.search(self._text, self._at, self._end)
            self._at = found.end() if found else self._end
        self._here = []

    def _redirect(self, redirection: re.Match[str]) -> None:
        """Where a command's output goes is no word of it."""
        self._at = redirection.end()
        if redirection[0][-1].isdigit() or redirection[0].endswith("-"):
            return
        self._skip_blanks()
        target = self._word()
        if _HERE_DOCUMENT.match(redirection[0]) and target:
            self._here.append(target[0].text)

    def _word(self) -> list[ShellWord]:
        """One word as written; it is more where it holds an array, or a variable without quotes that has blanks."""
        start = self._at
        array = ASSIGNMENT.match(self._text, start, self._end)
        if array is not None and self._text[array.end() : array.end() + 1] == "(":
            return [self._array(array)]
        made = _Word()
        while not self.at_end and not self._ends_word():
            self._take(made)
        if self._at == start:
            self._at += 1
        span, unset, guesses = (start, self._at), tuple(made.unset), tuple(made.guesses)
        return [ShellWord(text, span, unset, guesses) for text in made.texts]

    def _ends_word(self) -> bool:
        return self._text[self._at] in " \t\r\n;|&()<>"

    def _array(self, opening: re.Match[str]) -> ShellWord:
        """`NAME=(WORD ...)`, also over several lines."""
        self._at = opening.end() + 1
        words: list[ShellWord] = []
        while not self.at_end and self._text[self._at] != ")":
            before = self._at
            self._skip_blanks()
            if not self.at_end and self._text[self._at] in "\r\n":
                self._at += 1
            elif not self.at_end and self._text[self._at] != ")":
                words += self._word()
            self._at = max(self._at, before + (self._at == before))
        self._at += 1
        return ShellWord(
            opening[0],
            (opening.start(), self._at),
            tuple(one for word in words for one in word.unset),
            tuple(one for word in words for one in word.guesses),
            tuple(word.text for word in words),
        )

    def _take(self, made: "_Word") -> None:
        character = self._text[self._at]
        if character == "\\":
            following = self._text[self._at + 1 : self._at + 3]
            is_line = following[:1] in ("\n", "\r")
            made.add("" if is_line else following[:1])
            self._at += 3 if following == "\r\n" else 2
        elif character == "'":
            closing = self._text.find("'", self._at + 1, self._end)
            closing = self._end if closing < 0 else closing
            made.add(self._text[self._at + 1 : closing], quoted=True)
            self._at = closing + 1
        elif character == '"':
            self._at += 1
            self._take_quoted(made)
        elif character in "$`":
            self._take_reference(made, quoted=False)
        else:
            made.add(character)
            self._at += 1

    def _take_quoted(self, made: "_Word") -> None:
        """Up to the closing double quote."""
        made.add("", quoted=True)
        while not self.at_end and self._text[self._at] != '"':
            character, following = self._text[self._at], self._text[self._at + 1 : self._at + 2]
            if character == "\\" and following and following in '"\\$`\n':
                made.add("" if following == "\n" else following, quoted=True)
                self._at += 2
            elif character in "$`":
                self._take_reference(made, quoted=True)
            else:
                made.add(character, quoted=True)
                self._at += 1
        self._at += 1

    def _take_reference(self, made: "_Word", *, quoted: bool) -> None:
        found = _REFERENCE.match(self._text, self._at, self._end)
        if found is None:
            made.add("$", quoted=quoted)
            self._at += 1
            return
        self._at = found.end()
        name, default = found[1] or found[2], found[4]
        variable = self._variables.get(name) if name else None
        if variable is not None:
            made.unset += variable.unset
            made.guesses += variable.guesses
            is_array = found[3] == "[@]"
            made.expand(list(variable.values) if is_array else [" ".join(variable.values)], quoted=quoted)
        elif default is not None:
            made.expand([default.strip("\"'")], quoted=quoted)
        else:
            made.add(found[0], quoted=quoted)
            made.unset.append(found[0])


class _Word:
    """Texts of one word as written, the last of them still open; None while nothing of it is there."""

    __slots__ = ("_closed", "_open", "guesses", "unset")

    def __init__(self) -> None:
        self._closed: list[str] = []
        self._open: str | None = None
        self.unset: list[str] = []
        self.guesses: list[Guess] = []

    @property
    def texts(self) -> list[str]:
        return self._closed if self._open is None else [*self._closed, self._open]

    def add(self, text: str, *, quoted: bool = False) -> None:
        if text or quoted:
            self._open = (self._open or "") + text

    def expand(self, values: list[str], *, quoted: bool) -> None:
        """The values of a variable; without quotes each of their words is one."""
        parts = values if quoted else [part for value in values for part in _BLANKS.split(value)]
        for at, part in enumerate(parts):
            if at and self._open is not None:
                self._closed.append(self._open)
                self._open = None
            self.add(part, quoted=quoted)

"""A shell script taken apart into words and operators, with the variables that the words refer to put in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from servespec.compiler.command_line.shell_conditions import Condition
from servespec.compiler.command_line.shell_references import reference_at
from servespec.schema.source_faults import Span

ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_OPERATOR: Final = re.compile(r"&&|\|\||;;&|;;|;&|[;&|()]|\r\n|\r|\n")
_REDIRECTION: Final = re.compile(r"(?:\d*|&)(?:<<<|<<-?|>>|>\||<>|[<>]&?)(?:\d+|-)?")
_HERE_DOCUMENT: Final = re.compile(r"\d*<<-?\Z")
_BLANKS: Final = re.compile(r"[ \t\n]+")
# Chosen: scripts put a default into a default, and hardly another into that.
_DEEPEST_DEFAULT: Final = 8


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

    ``array`` are the values of `NAME=(...)`, None for any other word.  ``assigned`` are the assignments that happen
    where it is read, as by `${NAME:=VALUE}`.
    """

    text: str
    span: Span
    unset: tuple[str, ...] = ()
    guesses: tuple[Guess, ...] = ()
    array: tuple[str, ...] | None = None
    assigned: tuple["ShellWord", ...] = ()


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

    __slots__ = ("_at", "_depth", "_end", "_here", "_text", "_variables")

    def __init__(self, text: str, start: int, end: int, variables: Mapping[str, ShellVariable]) -> None:
        self._text, self._at, self._end, self._variables = text, start, end, variables
        self._here: list[str] = []
        self._depth = 0

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
        span, guesses, assigned = (start, self._at), tuple(made.guesses), tuple(made.assigned)
        return [ShellWord(text, span, made.unset_in(text), guesses, assigned=assigned) for text in made.texts]

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
            tuple(one for word in words for one in word.assigned),
        )

    def _take(self, made: "_Word", *, quoted: bool = False) -> None:
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
            self._take_reference(made, quoted=quoted)
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
        start = self._at
        found = reference_at(self._text, start, self._end, quoted=quoted)
        if found is None:
            made.add("$", quoted=quoted)
            self._at += 1
            return
        self._at = found.end
        variable = self._variables.get(found.name) if found.name else None
        if variable is not None:
            made.unset += variable.unset
            made.guesses += variable.guesses
            values = list(variable.values) if found.is_array else [" ".join(variable.values)]
            made.expand(values, quoted=quoted, whole=variable.unset)
        elif found.default is not None and self._depth < _DEEPEST_DEFAULT:
            self._take_default(found.default, made, quoted=quoted, splits=not quoted)
            if found.assigns:
                made.assigned.append(self._assigned(f"{found.name}=", found.default, quoted=quoted))
        else:
            text = self._text[start : found.end]
            made.add(text, quoted=quoted)
            made.unset.append(text)

    def _take_default(self, default: Span, made: "_Word", *, quoted: bool, splits: bool) -> None:
        """What stands for a variable that nothing sets."""
        outside = self._at, self._end
        self._at, self._end = default
        self._depth += 1
        while not self.at_end:
            character = self._text[self._at]
            if splits and character in " \t\n":
                made.close()
                self._at += 1
            elif quoted and character == "'":
                made.add(character, quoted=True)
                self._at += 1
            else:
                self._take(made, quoted=quoted)
        self._depth -= 1
        self._at, self._end = outside

    def _assigned(self, name: str, default: Span, *, quoted: bool) -> ShellWord:
        """`${NAME:=VALUE}` as the assignment that it is."""
        made = _Word()
        self._take_default(default, made, quoted=quoted, splits=False)
        text = name + " ".join(made.texts)
        return ShellWord(text, default, made.unset_in(text), tuple(made.guesses))


class _Word:
    """Texts of one word as written, the last of them still open; None while nothing of it is there."""

    __slots__ = ("_closed", "_open", "assigned", "guesses", "unset")

    def __init__(self) -> None:
        self._closed: list[str] = []
        self._open: str | None = None
        self.unset: list[str] = []
        self.guesses: list[Guess] = []
        self.assigned: list[ShellWord] = []

    @property
    def texts(self) -> list[str]:
        return self._closed if self._open is None else [*self._closed, self._open]

    def add(self, text: str, *, quoted: bool = False) -> None:
        if text or quoted:
            self._open = (self._open or "") + text

    def close(self) -> None:
        """What comes next is another text."""
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None

    def unset_in(self, text: str) -> tuple[str, ...]:
        """Of several texts each has its own."""
        return tuple(one for one in dict.fromkeys(self.unset) if one in text)

    def expand(self, values: list[str], *, quoted: bool, whole: tuple[str, ...] = ()) -> None:
        """The values of a variable; without quotes each of their words is one, and each text of ``whole``."""
        parts = values if quoted else [part for value in values for part in _parts(value, whole)]
        for at, part in enumerate(parts):
            if at:
                self.close()
            self.add(part, quoted=quoted)


def _parts(value: str, whole: tuple[str, ...]) -> list[str]:
    """What stands between blanks; those inside a text of ``whole`` are none, as it stands for a value unknown."""
    closed = value
    for one in sorted(whole, key=len, reverse=True):
        closed = closed.replace(one, "x" * len(one))
    blanks = [found.span() for found in _BLANKS.finditer(closed)]
    starts, ends = [0, *(end for _, end in blanks)], [*(start for start, _ in blanks), len(value)]
    return [value[start:end] for start, end in zip(starts, ends, strict=True)]

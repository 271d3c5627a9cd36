"""The commands of a shell script, as far as words, quotes and variables go; nothing is run.

Assignments, `export`, arrays and `${NAME:-default}` are followed from top to bottom, as if every line ran once.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

Span = tuple[int, int]

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_OPERATOR: Final = re.compile(r"&&|\|\||;;|[;&|()]|\r\n|\r|\n")
_REDIRECTION: Final = re.compile(r"(?:\d*|&)(?:<<<|<<-?|>>|>\||<>|[<>]&?)(?:\d+|-)?")
_HERE_DOCUMENT: Final = re.compile(r"\d*<<-?\Z")
_REFERENCE: Final = re.compile(
    r"\$(?:(\w+)|\{([A-Za-z_]\w*)(\[[@*]\])?(?::?-([^}]*))?\}|(\{[^}]*\}?|\([^)]*\)?|[@*#?!$-]))|`[^`]*`?", re.ASCII
)
_BLANKS: Final = re.compile(r"[ \t\n]+")
_KEYWORDS: Final = frozenset({"{", "}", "then", "do", "else", "!", "$", "time", "exec", "nohup"})
_EXPORTS: Final = ("export", "declare", "typeset", "readonly")


@dataclass(frozen=True, slots=True)
class ShellWord:
    """``unset`` names what the word refers to and nothing above sets."""

    text: str
    span: Span
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """``words`` begin with the command's own assignments; ``exported`` are those in force, in the order first set."""

    exported: tuple[ShellWord, ...]
    words: tuple[ShellWord, ...]


@dataclass(slots=True)
class _Shell:
    """What has been set so far."""

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unset: dict[str, tuple[str, ...]] = field(default_factory=dict)
    exported: dict[str, ShellWord] = field(default_factory=dict)


def shell_commands(text: str, span: Span | None = None) -> Iterator[ShellCommand]:
    """The simple commands within ``span`` of ``text``, each with the variables that it would see."""
    shell = _Shell()
    reader = _Reader(text, *(span or (0, len(text))), shell)
    while not reader.at_end:
        words = _without_keywords(reader.simple_command())
        if words and all(_ASSIGNMENT.match(word.text) for word in words):
            _assign_all(words, shell)
        elif words and words[0].text in _EXPORTS:
            _export(words[1:], shell)
        elif words:
            yield ShellCommand(tuple(shell.exported.values()), words)


def _without_keywords(words: tuple[ShellWord, ...]) -> tuple[ShellWord, ...]:
    first = next((at for at, word in enumerate(words) if word.text not in _KEYWORDS), len(words))
    return words[first:]


def _assign_all(words: tuple[ShellWord, ...], shell: _Shell) -> None:
    for word in words:
        name, _, value = word.text.partition("=")
        if not name.endswith("+"):
            _set(name, (value,), word, shell)
            continue
        before = " ".join(shell.values.get(name[:-1], ()))
        _set(name[:-1], (before + value,), word, shell)


def _export(words: tuple[ShellWord, ...], shell: _Shell) -> None:
    for word in words:
        name, equals, value = word.text.partition("=")
        if word.text.startswith("-"):
            continue
        if equals:
            _set(name, (value,), word, shell)
        if name in shell.values:
            joined = ShellWord(f"{name}={' '.join(shell.values[name])}", word.span, shell.unset.get(name, ()))
            shell.exported[name] = joined


def _set(name: str, values: tuple[str, ...], word: ShellWord, shell: _Shell) -> None:
    shell.values[name], shell.unset[name] = values, word.unset
    if name in shell.exported:
        shell.exported[name] = ShellWord(f"{name}={' '.join(values)}", word.span, word.unset)


class _Reader:
    """Takes a text apart; what stands between ``start`` and ``end`` is read once, from left to right."""

    __slots__ = ("_at", "_end", "_here", "_shell", "_text")

    def __init__(self, text: str, start: int, end: int, shell: _Shell) -> None:
        self._text, self._at, self._end, self._shell = text, start, end, shell
        self._here: list[str] = []

    @property
    def at_end(self) -> bool:
        return self._at >= self._end

    def simple_command(self) -> tuple[ShellWord, ...]:
        """The words up to the next operator or line."""
        words: list[ShellWord] = []
        while not self.at_end:
            self._skip_blanks()
            redirection = _REDIRECTION.match(self._text, self._at, self._end)
            if redirection is not None:
                self._redirect(redirection)
                continue
            if self._operator() or self.at_end:
                break
            words += self._word()
        return tuple(words)

    def _skip_blanks(self) -> None:
        blank = re.compile(r"(?:[ \t]|\\(?:\r\n|\r|\n))*(?:#[^\r\n]*)?").match(self._text, self._at, self._end)
        self._at = blank.end() if blank else self._at

    def _operator(self) -> bool:
        found = _OPERATOR.match(self._text, self._at, self._end)
        if found is None:
            return False
        self._at = found.end()
        if found[0] in ("\n", "\r", "\r\n"):
            self._skip_here_documents()
        return True

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
        array = _ASSIGNMENT.match(self._text, start, self._end)
        if array is not None and self._text[array.end() : array.end() + 1] == "(":
            self._array(array)
            return []
        made = _Word()
        while not self.at_end and not self._ends_word():
            self._take(made)
        if self._at == start:
            self._at += 1
        return [ShellWord(text, (start, self._at), tuple(made.unset)) for text in made.texts]

    def _ends_word(self) -> bool:
        return self._text[self._at] in " \t\r\n;|&()<>"

    def _array(self, opening: re.Match[str]) -> None:
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
        name = opening[1]
        old = self._shell.values.get(name, ()) if opening[2] else ()
        self._shell.values[name] = (*old, *(word.text for word in words))
        self._shell.unset[name] = tuple(one for word in words for one in word.unset)

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
        values = self._shell.values.get(name) if name else None
        if values is not None:
            made.unset += self._shell.unset.get(name, ())
            is_array = found[3] == "[@]"
            made.expand(list(values) if is_array else [" ".join(values)], quoted=quoted)
        elif default is not None:
            made.expand([default.strip("\"'")], quoted=quoted)
        else:
            made.add(found[0], quoted=quoted)
            made.unset.append(found[0])


class _Word:
    """Texts of one word as written, the last of them still open; None while nothing of it is there."""

    __slots__ = ("_closed", "_open", "unset")

    def __init__(self) -> None:
        self._closed: list[str] = []
        self._open: str | None = None
        self.unset: list[str] = []

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

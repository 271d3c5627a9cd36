"""The commands of a shell script, as far as words, quotes and variables go; nothing is run.

Assignments, `export`, arrays, `${NAME:-default}` and `${NAME:=default}` are followed from top to bottom, as if every
line ran once; what was set only in a branch is said beside the value.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from servespec.compiler.command_line.shell_conditions import Blocks, Condition, Part
from servespec.compiler.command_line.shell_words import ASSIGNMENT, Guess, Reader, ShellVariable, ShellWord
from servespec.schema.source_faults import Span

_EXPORTS: Final = ("export",)
_EXPORTING: Final = re.compile(r"-[A-Za-z]*x[A-Za-z]*")
_DECLARATIONS: Final = ("declare", "typeset", "readonly", "local")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """``words`` begin with the command's own assignments; ``exported`` are those in force, in the order first set.

    ``conditions`` have to hold for it to run at all; a guess of its words that those imply is none.
    """

    exported: tuple[ShellWord, ...]
    words: tuple[ShellWord, ...]
    conditions: tuple[Condition, ...]


@dataclass(slots=True)
class _Shell:
    """What has been set so far."""

    variables: dict[str, ShellVariable] = field(default_factory=dict)
    exported: dict[str, ShellWord] = field(default_factory=dict)

    def copy(self) -> "_Shell":
        return _Shell(dict(self.variables), dict(self.exported))

    def become(self, other: "_Shell") -> None:
        """In place: the reader of the script looks at the same variables."""
        self.variables.clear()
        self.variables.update(other.variables)
        self.exported = other.exported


def shell_commands(
    text: str, span: Span | None = None, variables: Mapping[str, ShellVariable] | None = None
) -> Iterator[ShellCommand]:
    """The simple commands within ``span`` of ``text``, each with the variables that it would see.

    ``variables`` are set before the first.
    """
    shell, blocks, outside = _Shell(dict(variables or {})), Blocks(), list[_Shell]()
    reader = Reader(text, *(span or (0, len(text))), shell.variables)
    while not reader.at_end:
        words, operator, where = reader.simple_command()
        part = Part(tuple((word.text, word.span) for word in words), operator, where)
        command = words[blocks.command_at(part) :]
        for one in dict.fromkeys(assigned for word in words for assigned in word.assigned):
            _assign(one, blocks.conditions, shell)
        yield from _taken(command, blocks.conditions, shell)
        blocks.leave(part)
        _follow_subshells(blocks.subshells, outside, shell)


def _taken(words: tuple[ShellWord, ...], conditions: tuple[Condition, ...], shell: _Shell) -> Iterator[ShellCommand]:
    """What assignments leave behind in ``shell``, and any other command."""
    if words and all(ASSIGNMENT.match(word.text) for word in words):
        for word in words:
            _assign(word, conditions, shell)
    elif words and words[0].text in (*_EXPORTS, *_DECLARATIONS):
        exports = words[0].text in _EXPORTS or any(_EXPORTING.fullmatch(word.text) for word in words)
        _declare(words[1:], conditions, shell, exports=exports)
    elif words:
        exported = tuple(_implied(word, conditions) for word in shell.exported.values())
        yield ShellCommand(exported, tuple(_implied(word, conditions) for word in words), conditions)


def _implied(word: ShellWord, conditions: tuple[Condition, ...]) -> ShellWord:
    """A word without the guesses that are certain where ``conditions`` hold."""
    return replace(word, guesses=tuple(one for one in word.guesses if not _starts(conditions, one.conditions)))


def _starts(whole: tuple[Condition, ...], beginning: tuple[Condition, ...]) -> bool:
    return whole[: len(beginning)] == beginning


def _follow_subshells(depth: int, outside: list[_Shell], shell: _Shell) -> None:
    """What a shell of its own sets is gone where it ends."""
    while len(outside) < depth:
        outside.append(shell.copy())
    while len(outside) > depth:
        shell.become(outside.pop())


def _assign(word: ShellWord, conditions: tuple[Condition, ...], shell: _Shell) -> None:
    """`NAME=VALUE`, `NAME+=VALUE` and `NAME=(VALUE ...)`."""
    name, _, value = word.text.partition("=")
    appends = name.endswith("+")
    name = name.removesuffix("+")
    before = shell.variables.get(name)
    values = (value,) if word.array is None else word.array
    unset, guesses = word.unset, word.guesses
    if appends and before is not None:
        joined = (" ".join(before.values) + value,)
        values = joined if word.array is None else (*before.values, *values)
        unset, guesses = (*before.unset, *unset), (*before.guesses, *guesses)
    if conditions:
        instead = () if appends else _instead(before, conditions)
        guesses = (*guesses, Guess(name, word.span, conditions, instead))
    shell.variables[name] = ShellVariable(values, word.span, conditions, unset, tuple(dict.fromkeys(guesses)))
    if name in shell.exported:
        shell.exported[name] = _as_exported(name, shell)


def _instead(before: ShellVariable | None, conditions: tuple[Condition, ...]) -> tuple[Span, ...]:
    """The assignments that hold where ``conditions`` do not; one that happens only where they do is lost for good."""
    if before is None or (before.conditions and _starts(before.conditions, conditions)):
        return ()
    earlier = (span for one in before.guesses if one.span == before.span for span in one.instead)
    return (before.span, *earlier)


def _declare(words: tuple[ShellWord, ...], conditions: tuple[Condition, ...], shell: _Shell, *, exports: bool) -> None:
    for word in words:
        name = word.text.partition("=")[0].removesuffix("+")
        if word.text.startswith("-"):
            continue
        if "=" in word.text:
            _assign(word, conditions, shell)
        if exports and name in shell.variables:
            shell.exported[name] = _as_exported(name, shell, word, conditions)


def _as_exported(
    name: str, shell: _Shell, word: ShellWord | None = None, conditions: tuple[Condition, ...] = ()
) -> ShellWord:
    """The assignment that a program sees; ``word`` exports it, None where that is done already."""
    variable = shell.variables[name]
    guesses = variable.guesses
    if word is not None and conditions and "=" not in word.text:
        guesses = (*guesses, Guess(name, word.span, conditions))
    span = variable.span if word is None else word.span
    return ShellWord(f"{name}={' '.join(variable.values)}", span, variable.unset, guesses)

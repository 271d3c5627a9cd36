"""One word of a command line, with where it was written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from servespec.diagnostics import COMMAND_LINE, Diagnostic, Place

# Chosen: a name or a short value fits; a JSON value is known by its beginning.
_LONGEST_QUOTED = 60
# Chosen: the engine's own configs nest three deep.
_DEEPEST_JSON = 24


@dataclass(frozen=True, slots=True)
class Word:
    """``number`` counts from 1 after `--`, 0 for a word of a config file.

    ``config`` is the mapping that dotted keys were put together into, None for a word as written; ``keys`` are the
    words that wrote its keys.  ``unset`` are the variables of a script in it that nothing sets, ``guesses`` findings
    about those that are set only sometimes, to be told where the word is carried.
    """

    text: str
    place: Place
    number: int = 0
    config: dict[str, Any] | None = None
    keys: Mapping[str, "Word"] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    guesses: tuple[Diagnostic, ...] = ()

    @property
    def name(self) -> str:
        """The word up to its `=`: what follows may be a secret."""
        return self.text.partition("=")[0]

    @property
    def flag(self) -> str:
        """The name for messages."""
        return f"{quoted(self.name)}{self.where}"

    @property
    def named(self) -> str:
        """The word for messages."""
        return f"{quoted(self.text)}{self.where}"

    @property
    def where(self) -> str:
        return f" (word {self.number})" if self.number else ""

    def saying(self, text: str) -> "Word":
        """Another text from the same place."""
        return replace(self, text=text)


def typed_words(texts: Sequence[str]) -> tuple[Word, ...]:
    """Words as typed on a command line, numbered from 1."""
    return tuple(Word(text, Place(COMMAND_LINE, word=number), number) for number, text in enumerate(texts, 1))


def quoted(text: str) -> str:
    """A text in backticks, short and on one line."""
    line = on_one_line(text[: _LONGEST_QUOTED + 1])
    return f"`{line if len(line) <= _LONGEST_QUOTED else line[:_LONGEST_QUOTED] + '…'}`"


def on_one_line(text: str) -> str:
    """What cannot be printed as the escape that Python has for it."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def read_json(text: str) -> Any:
    """A JSON value; ValueError where it is none, nests too deep, or holds a number that JSON does not have."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    if not nests_within(value, _DEEPEST_JSON):
        raise ValueError("it nests too deep")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"`{name}` is not JSON")


def nests_within(value: Any, depth: int) -> bool:
    """Whether no list or mapping stands inside more than ``depth`` others."""
    level = [value]
    for _ in range(depth + 1):
        level = [inner for one in level for inner in _inner_values(one)]
        if not level:
            return True
    return False


def _inner_values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []

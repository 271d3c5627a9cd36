"""Which program a command line starts, and what stands before it: variables, wrappers, a container."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.command_line.wrapper import CONTAINER_PROGRAMS, Wrapper, is_engine_image
from servespec.diagnostics import COMMAND_LINE, Diagnostic, Place, SpecError

_API_SERVER = "vllm.entrypoints.openai.api_server"
_CLI = "vllm.entrypoints.cli.main"
_PYTHON = re.compile(r"python[0-9.]*")


class Entry(Enum):
    """How the engine's parser is reached; the two read the model and a config file differently."""

    SERVE = auto()
    API_SERVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """``wrapper`` is what stands before it, and ``arguments`` what it is told."""

    entry: Entry
    wrapper: Wrapper
    arguments: tuple[Word, ...]

    @property
    def variables(self) -> tuple[tuple[Word, str, str], ...]:
        """Those that are set for it, in the order written."""
        return tuple(self.wrapper.variables())


@dataclass(frozen=True, slots=True)
class _Found:
    """The program's words are ``first`` to ``rest``, without ``rest``; none where a container starts it by itself."""

    entry: Entry
    first: int
    rest: int


def serves(words: Sequence[Word]) -> bool:
    """Whether a program that serves is among ``words``."""
    return _find([word.text for word in words]) is not None


def read_program(words: Sequence[Word]) -> Program:
    """The first program in ``words`` that serves; SpecError where none does."""
    found = _find([word.text for word in words])
    if found is None:
        raise SpecError([_no_server([word.text for word in words])])
    wrapper = Wrapper(tuple(words[: found.first]))
    return Program(entry=found.entry, wrapper=wrapper, arguments=tuple(words[found.rest :]))


def _find(words: list[str]) -> _Found | None:
    for at, word in enumerate(words):
        if _base(word) == "vllm" and words[at + 1 : at + 2] == ["serve"]:
            return _Found(Entry.SERVE, at, at + 2)
        if _PYTHON.fullmatch(_base(word)):
            found = _python_module(words, at)
            if found is not None:
                return found
    return _image(words)


def _python_module(words: list[str], at: int) -> _Found | None:
    after = at + 1
    while after < len(words) and words[after].startswith("-") and words[after] != "-m":
        after += 1
    if words[after : after + 2] == ["-m", _API_SERVER]:
        return _Found(Entry.API_SERVER, at, after + 2)
    if words[after : after + 3] == ["-m", _CLI, "serve"]:
        return _Found(Entry.SERVE, at, after + 3)
    return None


def _image(words: list[str]) -> _Found | None:
    """A container of the engine's own image; its entry point is `vllm serve`."""
    if "run" not in words or not any(_base(word) in CONTAINER_PROGRAMS for word in words):
        return None
    images = (at for at, word in enumerate(words) if is_engine_image(word))
    at = next(images, None)
    return None if at is None else _Found(Entry.SERVE, at + 1, at + 1)


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _no_server(words: Sequence[str]) -> Diagnostic:
    place, help_text = Place(COMMAND_LINE), "write `servespec plan -- vllm serve MODEL ...`"
    if not words:
        return rules.S301.at(place, "the command line is empty", help_text)
    shown = quoted(" ".join(words[:2]))
    return rules.S301.at(place, f"{shown} starts no vLLM server", help_text)

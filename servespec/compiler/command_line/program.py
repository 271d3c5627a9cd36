"""Which program a command line starts, and what stands before it: variables, wrappers, a container, a shell."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.inner_script import inner_commands
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.command_line.wrapper import CONTAINER_PROGRAMS, ENTRY_POINT, Wrapper, is_engine_image
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
    """``wrappers`` are what stands before it, around a shell and in its script; ``arguments`` what it is told."""

    entry: Entry
    wrappers: tuple[Wrapper, ...]
    arguments: tuple[Word, ...]

    @property
    def variables(self) -> tuple[tuple[Word, str, str], ...]:
        """Those that are set for it, in the order written."""
        return tuple(one for wrapper in self.wrappers for one in wrapper.variables())


@dataclass(frozen=True, slots=True)
class _Found:
    """The program's words are ``first`` to ``rest``, without ``rest``; none where a container starts it by itself."""

    entry: Entry
    first: int
    rest: int


def serves(words: Sequence[Word]) -> bool:
    """Whether a program that serves is among ``words``."""
    return _program(words) is not None


def read_program(words: Sequence[Word]) -> Program:
    """The first program in ``words`` that serves; SpecError where none does."""
    program = _program(words)
    if program is None:
        raise SpecError([_no_server([word.text for word in words])])
    return program


def _program(words: Sequence[Word]) -> Program | None:
    """Written as it is or in the script of a shell, else the one that an image starts by itself."""
    words = _with_entry_point(words)
    written = _made(words, _written([word.text for word in words]))
    if written is not None:
        return written
    for inner in inner_commands(words):
        made = _made(inner.words, _find([word.text for word in inner.words]))
        if made is not None:
            return replace(made, wrappers=(inner.wrapper, *made.wrappers))
    return _made(words, _image([word.text for word in words]))


def _made(words: Sequence[Word], found: _Found | None) -> Program | None:
    if found is None:
        return None
    wrapper = Wrapper(tuple(words[: found.first]))
    return Program(entry=found.entry, wrappers=(wrapper,), arguments=tuple(words[found.rest :]))


def _with_entry_point(words: Sequence[Word]) -> tuple[Word, ...]:
    """The words of a container with `--entrypoint PROGRAM` again where it runs, behind the engine's image."""
    image = _image_at([word.text for word in words])
    entry = None if image is None else _entry_point(words[:image])
    if image is None or entry is None or not entry.text:
        return tuple(words)
    return (*words[: image + 1], entry, *words[image + 1 :])


def _entry_point(words: Sequence[Word]) -> Word | None:
    """What a container is told to start, '' for nothing; None where its image says that."""
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if name == ENTRY_POINT and equals:
            return word.saying(value)
        if name == ENTRY_POINT and at + 1 < len(words):
            return words[at + 1]
    return None


def _find(words: list[str]) -> _Found | None:
    return _written(words) or _image(words)


def _written(words: list[str]) -> _Found | None:
    for at, word in enumerate(words):
        if _base(word) == "vllm" and words[at + 1 : at + 2] == ["serve"]:
            return _Found(Entry.SERVE, at, at + 2)
        if _PYTHON.fullmatch(_base(word)):
            found = _python_module(words, at)
            if found is not None:
                return found
    return None


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
    """A container of the engine's own image; its entry point is `vllm serve` where no other is named."""
    at = _image_at(words)
    if at is None or any(word.partition("=")[0] == ENTRY_POINT for word in words[:at]):
        return None
    return _Found(Entry.SERVE, at + 1, at + 1)


def _image_at(words: list[str]) -> int | None:
    if "run" not in words or not any(_base(word) in CONTAINER_PROGRAMS for word in words):
        return None
    return next((at for at, word in enumerate(words) if is_engine_image(word)), None)


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _no_server(words: Sequence[str]) -> Diagnostic:
    place, help_text = Place(COMMAND_LINE), "write `servespec plan -- vllm serve MODEL ...`"
    if not words:
        return rules.S301.at(place, "the command line is empty", help_text)
    shown = quoted(" ".join(words[:2]))
    return rules.S301.at(place, f"{shown} starts no vLLM server", help_text)

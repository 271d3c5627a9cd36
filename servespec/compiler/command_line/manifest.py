"""The commands of containers that a Compose file or a Kubernetes manifest describes.

A container's own entry point, variables and arguments become words; whatever else is said of it is named.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.program import serves
from servespec.compiler.command_line.server_command import ServerCommand
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.command_line.wrapper import is_engine_image
from servespec.diagnostics import Diagnostic
from servespec.schema.source import SpecPath, SpecSource

_POD_PATHS: Final[tuple[SpecPath, ...]] = (
    ("spec",),
    ("spec", "template", "spec"),
    ("spec", "jobTemplate", "spec", "template", "spec"),
)
_REFERENCE: Final = re.compile(
    r"\$(?:(?P<dollar>\$)|\((?P<given>[\w.-]+)\)|\w+|\{\w+(?::?-(?P<default>[^}]*))?[^}]*\})"
)


@dataclass(frozen=True, slots=True)
class _Keys:
    """What the parts of a container are called."""

    entrypoint: str
    arguments: str
    variables: str
    files: str


_COMPOSE: Final = _Keys("entrypoint", "command", "environment", "env_file")
_KUBERNETES: Final = _Keys("command", "args", "env", "envFrom")


def is_manifest(data: Mapping[str, Any]) -> bool:
    """Whether plain data is a Compose file or a Kubernetes manifest."""
    return isinstance(data.get("services"), Mapping) or ("apiVersion" in data and "kind" in data)


def manifest_commands(source: SpecSource) -> Iterator[ServerCommand]:
    """One command for each container that starts a server."""
    for path, keys in _containers(source.data):
        words = _words(source, path, keys)
        if serves(words):
            title = f"the container {quoted(_name(source, path))}"
            yield ServerCommand(title, source.place_of_key(path), words, tuple(_left_out(source, path, keys)))


def _containers(data: Mapping[str, Any]) -> Iterator[tuple[SpecPath, _Keys]]:
    services = data.get("services")
    for name, service in services.items() if isinstance(services, Mapping) else ():
        if isinstance(service, Mapping):
            yield ("services", name), _COMPOSE
    for path in _pods(data):
        containers = _at(data, (*path, "containers"))
        for at, container in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(container, Mapping):
                yield (*path, "containers", at), _KUBERNETES


def _pods(data: Mapping[str, Any]) -> Iterator[SpecPath]:
    """Where the pods of an object are described, or of every object of a `List`."""
    items = data.get("items")
    objects: list[SpecPath] = [(), *(("items", at) for at in range(len(items) if isinstance(items, list) else 0))]
    for one in objects:
        yield from ((*one, *path) for path in _POD_PATHS)


def _at(data: Mapping[str, Any], path: SpecPath) -> Any:
    """The value at a path of keys and of places in lists; None where nothing is written there."""
    here: Any = data
    for step in path:
        if isinstance(step, int):
            here = here[step] if isinstance(here, list) and step < len(here) else None
        else:
            here = here.get(step) if isinstance(here, Mapping) else None
    return here


def _name(source: SpecSource, path: SpecPath) -> str:
    return str(_at(source.data, (*path, "name")) or path[-1])


def _words(source: SpecSource, path: SpecPath, keys: _Keys) -> tuple[Word, ...]:
    """Variables, the image, and what runs in it: `vllm serve` where only the engine's own image says so."""
    image = _at(source.data, (*path, "image"))
    words = _variables(source, path, keys)
    given = _given(words) if keys is _KUBERNETES else None
    entry = _listed(source, (*path, keys.entrypoint), given)
    arguments = _listed(source, (*path, keys.arguments), given)
    if isinstance(image, str) and is_engine_image(image):
        place = source.place_of((*path, "image"))
        words.append(Word(image, place))
        if not entry and not serves(arguments):
            entry = tuple(Word(text, place) for text in ("vllm", "serve"))
    return (*words, *entry, *arguments)


def _given(variables: Sequence[Word]) -> dict[str, Word]:
    """The variables of a container that `$(NAME)` may stand for; Compose has no such form."""
    return {word.name: word for word in variables}


def _listed(source: SpecSource, path: SpecPath, given: Mapping[str, Word] | None) -> tuple[Word, ...]:
    """A list of words, or one text that is taken apart as a shell does it."""
    value = _at(source.data, path)
    if isinstance(value, str):
        return tuple(_word(text, source, path, given) for text in _split(value))
    if not isinstance(value, Sequence):
        return ()
    return tuple(_word(str(text), source, (*path, at), given) for at, text in enumerate(value))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _word(text: str, source: SpecSource, path: SpecPath, given: Mapping[str, Word] | None) -> Word:
    """A text with its references: Kubernetes knows `$(NAME)` of what is ``given``, Compose alone a default.

    Source: kubernetes/third_party/forked/golang/expansion/expand.go: Expand; compose-spec: interpolation.
    """
    unset: list[str] = []

    def filled(found: re.Match[str]) -> str:
        variable = given.get(found["given"]) if given and found["given"] else None
        if variable is not None:
            unset.extend(variable.unset)
            return variable.text.partition("=")[2]
        if given is None and found["default"] is not None:
            return found["default"]
        if found["dollar"]:
            return "$"
        unset.append(found[0])
        return found[0]

    return Word(_REFERENCE.sub(filled, text), source.place_of(path), unset=tuple(unset))


def _variables(source: SpecSource, path: SpecPath, keys: _Keys) -> list[Word]:
    """The container's own, each with those above it filled in."""
    words: list[Word] = []
    for name, value, where in _environment(source, (*path, keys.variables)):
        if value is not None:
            given = _given(words) if keys is _KUBERNETES else None
            words.append(_word(f"{name}={_as_text(value)}", source, where, given))
    return words


def _environment(source: SpecSource, path: SpecPath) -> Iterator[tuple[str, Any, SpecPath]]:
    """`NAME: value`, `- NAME=value` and `- {name: NAME, value: value}`; None for a value that is from elsewhere."""
    written = _at(source.data, path)
    if isinstance(written, Mapping):
        for name, value in written.items():
            yield str(name), value, (*path, name)
        return
    for at, one in enumerate(written if isinstance(written, list) else ()):
        if isinstance(one, Mapping):
            yield str(one.get("name")), one.get("value"), (*path, at)
        else:
            name, equals, value = str(one).partition("=")
            yield name, value if equals else None, (*path, at)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _left_out(source: SpecSource, path: SpecPath, keys: _Keys) -> Iterator[Diagnostic]:
    """Files of variables, and the keys that say how the container is run."""
    container = _at(source.data, path)
    if container.get(keys.files):
        message = f"the variables of `{keys.files}` are not read"
        place = source.place_of_key((*path, keys.files))
        yield rules.S323.at(place, message, "write those of the engine under `engine.env`")
    elsewhere = [quoted(name) for name, value, _ in _environment(source, (*path, keys.variables)) if value is None]
    if elsewhere:
        message = f"{', '.join(elsewhere)} of the container {_verb(elsewhere)} set elsewhere and not carried"
        yield rules.S317.at(source.place_of_key((*path, keys.variables)), message)
    carried = {"name", "image", keys.entrypoint, keys.arguments, keys.variables, keys.files}
    others = [f"`{key}`" for key in container if key not in carried]
    if others:
        yield rules.S317.at(
            source.place_of_key(path), f"{', '.join(others)} of the container {_verb(others)} not carried"
        )


def _verb(others: list[str]) -> str:
    return "is" if len(others) == 1 else "are"

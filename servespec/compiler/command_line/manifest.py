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
_REFERENCE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?[^}]*\}|\((\w+)\))")


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
    for path in _POD_PATHS:
        containers = _at(data, (*path, "containers"))
        for at, container in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(container, Mapping):
                yield (*path, "containers", at), _KUBERNETES


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
    entry = _listed(source, (*path, keys.entrypoint))
    arguments = _listed(source, (*path, keys.arguments))
    words = [*_variables(source, (*path, keys.variables))]
    if isinstance(image, str) and is_engine_image(image):
        place = source.place_of((*path, "image"))
        words.append(Word(image, place))
        if not entry and not serves(arguments):
            entry = tuple(Word(text, place) for text in ("vllm", "serve"))
    return (*words, *entry, *arguments)


def _listed(source: SpecSource, path: SpecPath) -> tuple[Word, ...]:
    """A list of words, or one text that is taken apart as a shell does it."""
    value = _at(source.data, path)
    if isinstance(value, str):
        return tuple(_word(text, source, path) for text in _split(value))
    if not isinstance(value, Sequence):
        return ()
    return tuple(_word(str(text), source, (*path, at)) for at, text in enumerate(value))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _word(text: str, source: SpecSource, path: SpecPath) -> Word:
    """A text with its references; what has a default is that."""
    unset: list[str] = []

    def filled(found: re.Match[str]) -> str:
        if found[3] is None:
            unset.append(found[0])
        return found[0] if found[3] is None else found[3]

    return Word(_REFERENCE.sub(filled, text), source.place_of(path), unset=tuple(unset))


def _variables(source: SpecSource, path: SpecPath) -> Iterator[Word]:
    for name, value, where in _environment(source, path):
        if value is not None:
            yield _word(f"{name}={_as_text(value)}", source, where)


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

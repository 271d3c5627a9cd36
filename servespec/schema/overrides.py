"""Values laid over a spec from the command line: ``--set path=value``.

A value is read as YAML, like a value in the file.  What is set so has its place on the command line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from servespec.diagnostics import Place, SpecError
from servespec.schema import spec_rules as rules
from servespec.schema.data_paths import with_value
from servespec.schema.source import SpecPath, SpecSource, read_source

_OPTION = "--set"


@dataclass(frozen=True, slots=True)
class OverriddenSource(SpecSource):
    """A source with values laid over it; ``overrides`` maps each path to the words of its option."""

    base: SpecSource | None = field(default=None, repr=False)
    overrides: Mapping[SpecPath, str] = field(default_factory=dict)

    @property
    def texts(self) -> Mapping[str, str]:
        return self._base().texts

    def place_of(self, path: SpecPath) -> Place:
        return self._override_place(path) or self._base().place_of(path)

    def place_of_key(self, path: SpecPath) -> Place:
        return self._override_place(path) or self._base().place_of_key(path)

    def _base(self) -> SpecSource:
        assert self.base is not None
        return self.base

    def _override_place(self, path: SpecPath) -> Place | None:
        """The option that set the value at ``path`` or a mapping around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return Place(f"{_OPTION} {self.overrides[path[:length]]}")
        return None


def with_overrides(source: SpecSource, settings: Sequence[str]) -> SpecSource:
    """``source`` with each ``path=value`` laid over it, the last of a path winning.

    Raises SpecError where a setting has no `=`, an empty path, or a value that is not YAML.
    """
    if not settings:
        return source
    data: dict[str, Any] = dict(source.data)
    overrides: dict[SpecPath, str] = {}
    for setting in settings:
        path, value = _parsed(setting)
        data = with_value(data, path, value)
        overrides[path] = setting
    text = "\n".join([source.text, *(f"# {_OPTION} {setting}" for setting in settings)])
    return OverriddenSource(source.name, text, data, base=source, overrides=overrides)


def _parsed(setting: str) -> tuple[SpecPath, Any]:
    name, separator, text = setting.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not separator or not all(path):
        place = Place(f"{_OPTION} {setting}")
        raise SpecError([rules.S224.at(place, f"`{setting}` is not `path=value`", "write `--set model.id=NAME`")])
    read = read_source(f"value: {text}\n", f"{_OPTION} {setting}")
    return path, read.data["value"]

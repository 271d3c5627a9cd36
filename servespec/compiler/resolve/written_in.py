"""Which file wrote a resolved value, in which line: the spec itself, a base below it, a preset, or the command line."""

from dataclasses import replace
from typing import Any

from servespec.diagnostics import Place
from servespec.provenance import PRESET_PREFIX, Origin, Resolved
from servespec.schema.data_paths import value_at
from servespec.schema.source import SpecPath, SpecSource


def written_in(source: SpecSource, dotted_path: str, value: Resolved[Any]) -> Resolved[Any]:
    """``value`` with its writer, where several files, a preset or the command line write the spec."""
    path: SpecPath = tuple(dotted_path.split("."))
    if value.origin is not Origin.SPEC or value_at(source.data, path) is None:
        return value
    place = source.place_of(path)
    if place.file.startswith(PRESET_PREFIX):
        return replace(value, origin=Origin.PRESET, because=f"set in `{place.file}`{_line(place)}")
    if place.file == source.own.name:
        is_alone = len(source.texts) == 1
        return value if is_alone else replace(value, because=f"{value.because}{_line(place)}")
    # A setting of the command line is named by its own words, and has no lines.
    writer = "set by" if place.range is None else "set in"
    return replace(value, because=f"{writer} `{place.file}`{_line(place)}")


def _line(place: Place) -> str:
    return "" if place.range is None else f", line {place.range.start.line}"

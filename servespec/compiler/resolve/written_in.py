"""Which file wrote a resolved value: the spec itself, a base that it is laid over, a preset, or the command line."""

from dataclasses import replace
from typing import Any

from servespec.provenance import PRESET_PREFIX, Origin, Resolved
from servespec.schema.data_paths import value_at
from servespec.schema.source import SpecPath, SpecSource


def written_in(source: SpecSource, dotted_path: str, value: Resolved[Any]) -> Resolved[Any]:
    """``value`` with its writer, where another than the spec's own file wrote it."""
    path: SpecPath = tuple(dotted_path.split("."))
    if value.origin is not Origin.SPEC or value_at(source.data, path) is None:
        return value
    place = source.place_of(path)
    if place.file.startswith(PRESET_PREFIX):
        return replace(value, origin=Origin.PRESET, because=f"set in `{place.file}`")
    if place.file == source.own.name:
        return value
    # A setting of the command line is named by its own words, and has no lines.
    return replace(value, because=f"set by `{place.file}`" if place.range is None else f"set in `{place.file}`")

"""Looking into the plain data of a spec by path, and laying a value over it."""

from collections.abc import Mapping
from typing import Any

from servespec.schema.source import SpecPath


def value_at(data: Mapping[str, Any], path: SpecPath) -> Any:
    """The value at a path of keys; None where nothing is written there."""
    here: Any = data
    for step in path:
        here = here.get(step) if isinstance(here, Mapping) else None
    return here


def with_value(data: Mapping[str, Any], path: SpecPath, value: Any) -> dict[str, Any]:
    """A copy of ``data`` with ``value`` at ``path``; what stands in its way and is no mapping gives way."""
    step = str(path[0])
    if len(path) == 1:
        return {**data, step: value}
    below = data.get(step)
    return {**data, step: with_value(below if isinstance(below, Mapping) else {}, path[1:], value)}

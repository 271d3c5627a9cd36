"""The graphs that an engine's managers captured, by their shapes."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from servespec.compiler.graphs.hand_off import TARGET_CLASS
from servespec.runtime.extension.report import graph_json


class CapturedShape(NamedTuple):
    """One graph of a manager; 0 where a number does not apply."""

    manager: str
    manager_query_len: int
    mode: str
    tokens: int
    requests: int
    query_len: int
    max_query_len: int
    active_loras: int
    ubatches: int
    draft_steps: int

    @property
    def is_target(self) -> bool:
        return self.manager == TARGET_CLASS


def shape_of(manager: Any, descriptor: Any) -> CapturedShape:
    """The graph that a descriptor of a manager stands for."""
    name, query_len = type(manager).__name__, manager.decode_query_len
    return CapturedShape(name, query_len, descriptor.cg_mode.name, *graph_json(descriptor))


def captured_shapes(managers: Iterable[Any]) -> tuple[CapturedShape, ...]:
    """Every graph of the managers: FULL ones that they hold, PIECEWISE sizes that they captured."""
    found: dict[CapturedShape, None] = {}
    for manager in managers:
        listed = [one for of_mode in manager._capture_descs.values() for one in of_mode]
        piecewise = [one for one in listed if one.cg_mode.name == "PIECEWISE"]
        found.update(dict.fromkeys(shape_of(manager, one) for one in (*piecewise, *manager.graphs)))
    return tuple(found)

"""The pieces that published JSON Schemas are made of."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

Shape = dict[str, Any]

TEXT: Final[Shape] = {"type": "string"}
MAYBE_TEXT: Final[Shape] = {"type": ["string", "null"]}
COUNT: Final[Shape] = {"type": "integer", "minimum": 0}
MAYBE_COUNT: Final[Shape] = {"type": ["integer", "null"], "minimum": 0}
DIFFERENCE: Final[Shape] = {"type": "integer"}
MAYBE_DIFFERENCE: Final[Shape] = {"type": ["integer", "null"]}


def closed_object(properties: Mapping[str, Any], optional: Iterable[str] = ()) -> Shape:
    """An object of exactly these keys, all of them there but the ``optional`` ones."""
    left_out = set(optional)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in left_out],
        "additionalProperties": False,
    }

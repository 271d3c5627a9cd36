"""Values inside a config, as the engine's config classes take them: `"3"` is a number and `"True"` a boolean.

Source: the engine's config classes are pydantic dataclasses in lax mode (vllm/config/utils.py: config).
"""

import math
from typing import Any

from servespec.compiler.facts.engine_fields import EngineTable, FieldType, Kind, check_value

_TRUE = ("1", "true", "t", "yes", "y", "on")
_FALSE = ("0", "false", "f", "no", "n", "off")
_ANYTHING = FieldType(Kind.ANY)
_SEQUENCES = (Kind.LIST, Kind.SET, Kind.TUPLE)


def accepted(kind: FieldType, value: Any, table: EngineTable) -> Any:
    """``value`` with what the engine would convert converted; what it would not stays for the check to refuse."""
    if isinstance(value, dict):
        return _accepted_mapping(kind, value, table)
    if check_value(kind, value, table) is None:
        return value
    if isinstance(value, list):
        return _accepted_list(kind, value, table)
    return next((made for one in kind.members for made in _made(one, value)), value)


def _accepted_mapping(kind: FieldType, value: dict[str, Any], table: EngineTable) -> dict[str, Any]:
    fields = table.config(kind.config) if kind.config and table.has_config(kind.config) else {}
    values = next((one.of[1] for one in kind.members if one.kind is Kind.DICT and len(one.of) > 1), _ANYTHING)
    types = {key: fields[key].type if key in fields else values for key in value}
    return {key: accepted(types[key], one, table) for key, one in value.items()}


def _accepted_list(kind: FieldType, value: list[Any], table: EngineTable) -> list[Any]:
    of = next((one.of for one in kind.members if one.kind in _SEQUENCES), ())
    if not of:
        return value
    types = of if len(of) == len(value) else (of[0],) * len(value)
    return [accepted(one, inner, table) for one, inner in zip(types, value, strict=True)]


def _made(one: FieldType, value: Any) -> list[Any]:
    """What pydantic makes of a scalar that is not of the type itself, if anything."""
    if one.kind is Kind.BOOL:
        return _boolean(value)
    if one.kind is Kind.INT:
        return _integer(value)
    return _fraction(value) if one.kind is Kind.FLOAT else []


def _boolean(value: Any) -> list[Any]:
    word = value.lower() if isinstance(value, str) else str(value) if value in (0, 1) else ""
    if word in _TRUE:
        return [True]
    return [False] if word in _FALSE else []


def _integer(value: Any) -> list[Any]:
    if isinstance(value, float):
        return [int(value)] if value.is_integer() else []
    if not isinstance(value, str):
        return []
    try:
        return [int(value)]
    except ValueError:
        return []


def _fraction(value: Any) -> list[Any]:
    if not isinstance(value, str):
        return []
    try:
        number = float(value)
    except ValueError:
        return []
    return [number] if math.isfinite(number) else []

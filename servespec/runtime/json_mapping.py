"""JSON from files that others wrote."""

import json
from dataclasses import dataclass
from typing import Any

from servespec.diagnostics import Position


def json_mapping(raw: bytes) -> dict[str, Any] | None:
    """The object that ``raw`` holds; None where it is not JSON, nested too deep, or no object."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


@dataclass(frozen=True, slots=True)
class JsonFault:
    """Why some bytes are no JSON object, and where they stop being one; None where that is no one place."""

    because: str
    at: Position | None = None


def json_fault(raw: bytes) -> JsonFault:
    """Of bytes that :func:`json_mapping` gives nothing for."""
    try:
        data = json.loads(raw)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        return JsonFault(f"{reason} at line {error.lineno}, column {error.colno}", Position(error.lineno, error.colno))
    except UnicodeDecodeError:
        return JsonFault("it is no text")
    except RecursionError:
        return JsonFault("it is nested too deep")
    return JsonFault("it is a list" if isinstance(data, list) else "it is a single value")

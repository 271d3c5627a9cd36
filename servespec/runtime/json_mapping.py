"""JSON from files that others wrote."""

import json
from typing import Any


def json_mapping(raw: bytes) -> dict[str, Any] | None:
    """The object that ``raw`` holds; None where it is not JSON, nested too deep, or no object."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None

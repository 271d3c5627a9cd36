"""Presets as text, made from their JSON form."""

from collections.abc import Mapping, Sequence
from typing import Any


def preset_list(presets: Sequence[Mapping[str, Any]]) -> str:
    """Each preset on two lines: its name with what stands behind it, and what it is for."""
    return "".join(f"{one['name']}  {standing(one)}\n  {one['summary']}\n" for one in presets)


def standing(preset: Mapping[str, Any]) -> str:
    """What stands behind a preset; a measurement of others is of other builds and often of other values."""
    return "measured by others" if preset["measured_by"] == "others" else str(preset["basis"])

"""Presets as text, made from their JSON form."""

from collections.abc import Mapping, Sequence
from typing import Any


def preset_list(presets: Sequence[Mapping[str, Any]]) -> str:
    """Each preset on two lines: its name with what stands behind it, and what it is for."""
    return "".join(f"{one['name']}  {one['basis']}\n  {one['summary']}\n" for one in presets)

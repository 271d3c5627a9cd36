"""Sizes as a config.json holds them: positive integers, where they are there at all."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.model import Model


def is_size(value: object) -> TypeGuard[int]:
    """Whether a value can be a size."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def size_of(section: Mapping[str, Any], key: str) -> int:
    """The size under a key, 0 where there is none."""
    value = section.get(key)
    return value if is_size(value) else 0


def merged_config(model: Model) -> Mapping[str, Any]:
    """Fields of the language part, with those of the whole config before them."""
    return {**text_config(model.config), **model.config}

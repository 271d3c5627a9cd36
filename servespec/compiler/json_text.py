"""JSON for people and diffs: a list of numbers, or an object of plain values, stands on one line."""

import json
from collections.abc import Mapping
from typing import Any

_STEP = " "


def json_text(document: Any) -> str:
    """``document`` as JSON with a line feed at its end; the same bytes for the same document."""
    return _text(document, "") + "\n"


def _text(value: Any, indent: str) -> str:
    if _is_leaf(value) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = indent + _STEP
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_text(part, inner)}" for key, part in value.items()]
        opening, closing = "{", "}"
    else:
        parts = [_text(part, inner) for part in value]
        opening, closing = "[", "]"
    lines = f",\n{inner}".join(parts)
    return f"{opening}\n{inner}{lines}\n{indent}{closing}"


def _is_leaf(value: Any) -> bool:
    """A plain value, or a list or object of nothing but plain values and lists of them."""
    if isinstance(value, Mapping):
        return all(_is_plain(part) or _is_plain_list(part) for part in value.values())
    return _is_plain(value) or _is_plain_list(value)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Mapping | list)


def _is_plain_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_plain, value))

"""Plain data as the YAML of a spec: short lists on one line, quotes only where YAML needs them."""

import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from servespec.schema.scalars import NumberTooLongError, plain_scalar

Path = tuple[str, ...]

_PLAIN = re.compile(r"[A-Za-z0-9_./+][A-Za-z0-9_./+@=-]*(?:[: ][A-Za-z0-9_./+@=-]+)*")
"""Text that has no mark of YAML in it: names, paths, sentences."""

_WIDTH = 100
_INDENT = 2
# Chosen: a mapping of two fields, such as a tier, reads well on one line.
_MOST_KEYS_ON_A_LINE = 2


def dump_yaml(data: Mapping[str, Any], comments: Mapping[Path, str] | None = None) -> str:
    """YAML 1.2 that reads back to ``data``; each of ``comments`` stands above the key at its path.

    ``data`` is plain: mappings with text keys, lists, text, numbers, booleans and null.
    """
    yaml = YAML()
    yaml.width = _WIDTH
    yaml.representer.add_representer(type(None), _null)
    stream = io.StringIO()
    yaml.dump(_mapping(data, (), comments or {}), stream)
    return stream.getvalue()


def _null(representer: Any, _: None) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


def _mapping(data: Mapping[str, Any], path: Path, comments: Mapping[Path, str]) -> CommentedMap:
    made = CommentedMap({_text(key): _node(value, (*path, key), comments) for key, value in data.items()})
    for key in data:
        if (*path, key) in comments:
            made.yaml_set_comment_before_after_key(key, before=comments[(*path, key)], indent=_INDENT * len(path))
    return made


def _node(value: Any, path: Path, comments: Mapping[Path, str]) -> Any:
    if isinstance(value, Mapping):
        return _mapping(value, path, comments)
    if isinstance(value, list | tuple):
        return _sequence(value)
    return _text(value) if isinstance(value, str) else value


def _sequence(values: list[Any] | tuple[Any, ...]) -> CommentedSeq:
    made = CommentedSeq([_item(value) for value in values])
    if not any(isinstance(value, list | tuple | Mapping) and value for value in values):
        made.fa.set_flow_style()
    return made


def _item(value: Any) -> Any:
    """An item of a list; a short mapping stands on one line."""
    node = _node(value, (), {})
    if isinstance(node, CommentedMap) and len(node) <= _MOST_KEYS_ON_A_LINE and _is_flat(value):
        node.fa.set_flow_style()
    return node


def _is_flat(value: Mapping[str, Any]) -> bool:
    return not any(isinstance(inner, list | tuple | Mapping) for inner in value.values())


def _text(text: str) -> str:
    """Text in quotes where the reader of specs would take it for another kind of value, or might."""
    return text if _PLAIN.fullmatch(text) and _means_itself(text) else DoubleQuotedScalarString(text)


def _means_itself(text: str) -> bool:
    try:
        return plain_scalar(text) == text
    except NumberTooLongError:
        return False

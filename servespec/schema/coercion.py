"""The field types of the spec: human values taken at the edge, refused with the right form.

A refusal is a pydantic error of type ``value_refused`` whose context holds ``reason`` and ``right_form``; parsing
turns it into a finding.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from servespec.schema.values import Refusal, parse_bytes, parse_count, parse_fraction

T = TypeVar("T")


def refuse(reason: str, right_form: str) -> PydanticCustomError:
    return PydanticCustomError("value_refused", "{reason}", {"reason": reason, "right_form": right_form})


def _taking(parse: Callable[[object], T | Refusal]) -> BeforeValidator:
    def take(value: object) -> T:
        parsed = parse(value)
        if isinstance(parsed, Refusal):
            raise refuse(parsed.reason, parsed.right_form)
        return parsed

    return BeforeValidator(take)


def _or_word(word: str, validator: BeforeValidator) -> BeforeValidator:
    """Takes ``word`` as it is and everything else through ``validator``."""

    def take(value: Any) -> Any:
        return value if value == word else validator.func(value)  # type: ignore[call-arg]

    return BeforeValidator(take)


_COUNT_TEXT = {"type": "string", "pattern": r"^[0-9_]+(\.[0-9]+)?[kKmMgGtT]?$"}
_SIZE_TEXT = {"type": "string", "pattern": r"^[0-9_.]+ ?([kKMGT]?B|[KMGT]iB)$"}


def _schema(kind: str, minimum: int, text: dict[str, str]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": minimum}, text]})


Count = Annotated[int, _taking(parse_count), _schema("integer", 0, _COUNT_TEXT)]
"""A whole number, zero or more; `8k` is 8000 and `8K` 8192, as the engine reads its own flags."""

PositiveCount = Annotated[int, Field(ge=1), _taking(parse_count), _schema("integer", 1, _COUNT_TEXT)]

_LAST_PORT = 65535

Port = Annotated[
    int,
    Field(ge=1, le=_LAST_PORT),
    _taking(parse_count),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": _LAST_PORT}),
]
"""A TCP port."""

ByteSize = Annotated[int, Field(ge=1), _taking(parse_bytes), _schema("integer", 1, _SIZE_TEXT)]
"""Bytes, or a size with a unit."""

Fraction = Annotated[
    float,
    _taking(parse_fraction),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^[0-9.]+ ?%$"},
            ]
        }
    ),
]
"""Above 0 and up to 1, or a percentage."""

RequestsOrAuto = Annotated[
    int | Literal["auto"],
    _or_word("auto", _taking(parse_count)),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}, _COUNT_TEXT]}),
]
"""Requests, or `auto`."""

Share = Annotated[float, Field(ge=0, le=1)]
"""From none to all."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_NAME = {"type": "string", "minLength": 1}

FileNames = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Strict(False),
    Field(min_length=1),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1}]}),
]
"""A file, or a list of files."""

TokenBudget = Annotated[
    int | Literal["unlimited"],
    _or_word("unlimited", _taking(parse_count)),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "unlimited"}, _COUNT_TEXT]}),
]
"""Tokens, or `unlimited`."""


def empty_if_null(value: Any) -> Any:
    """An empty section says nothing, as an absent one does."""
    return {} if value is None else value


def compact_alone(value: Any) -> Any:
    if value == "masked":
        raise refuse("masking keeps the width of a step, so that the target computes as much as before", "`compact`")
    return value


def device_name(value: Any) -> Any:
    """A device is a name or `{device: FILE}`; a mapping is left to its own model."""
    if isinstance(value, str | dict):
        return value
    raise refuse("a device is a name or a mapping", "a name such as `h200`, or `{device: FILE}`")

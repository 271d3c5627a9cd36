"""From the words of a flag to its value, by the type that the engine declares.

Source: vllm/engine/arg_utils.py: _compute_kwargs and EngineArgs.add_cli_args.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from servespec.compiler.command_line.config_value import accepted
from servespec.compiler.command_line.human_number import (
    expanded,
    human_readable_int,
    human_readable_int_or_auto,
)
from servespec.compiler.command_line.parser import Given
from servespec.compiler.command_line.word import Word, quoted, read_json
from servespec.compiler.facts.engine_fields import EngineFlag, EngineTable, Fault, FieldType, Form, Kind
from servespec.compiler.facts.short_forms import AUTO_FLAG, SHORT_FORM_FLAGS

_NULL_WORDS = ("", "None")
_JSON_OBJECT = ("{", "}")


class NotTakenError(ValueError):
    """The engine refuses the words; ``fault`` says why, to follow the flag's name."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


def _not_taken(expected: str, text: str, choices: Iterable[Any] = ()) -> NotTakenError:
    return NotTakenError(Fault((), f"expected {expected}, got {quoted(text)}", text, expected, tuple(choices)))


def value_of(given: Given, table: EngineTable) -> Any:
    """The value that the engine's parser gives to the flag; None for null.

    Raises :class:`NotTakenError`.
    """
    flag = given.flag
    if flag.form in (Form.SWITCH, Form.BOOLEAN):
        return not given.negated
    if flag.form is Form.OPTIONAL_VALUE and not given.values:
        return True
    if flag.form is Form.LIST:
        return [_scalar(flag, _element(flag.type), word) for word in given.values]
    word = given.values[0]
    if flag.form is Form.JSON:
        return _json(flag, word, table)
    value = _SPECIAL[flag.name](word.text) if flag.name in _SPECIAL else _scalar(flag, flag.type, word)
    return [value] if flag.form is Form.APPEND else value


def _element(kind: FieldType) -> FieldType:
    """What a list holds; text where a list is of several types."""
    lists = [one for one in kind.members if one.kind in (Kind.LIST, Kind.SET, Kind.TUPLE)]
    inner = lists[0].of[0] if lists and lists[0].of else FieldType(Kind.STR)
    nullable = (*inner.members, *(one for one in kind.members if one.kind is Kind.NULL))
    return FieldType(Kind.UNION, of=nullable)


def _scalar(flag: EngineFlag, kind: FieldType, word: Word) -> Any:
    if kind.accepts_null and word.text in _NULL_WORDS:
        return None
    kinds = {one.kind for one in kind.members}
    if Kind.ENUM in kinds:
        return _enum(kind, word.text)
    if Kind.LITERAL in kinds and Kind.STR not in kinds:
        return _choice(kind, word.text)
    if Kind.STR in kinds:
        return word.text
    if Kind.INT in kinds:
        return _number(_whole_number_of(flag), word.text, _integer_form(flag))
    if Kind.FLOAT in kinds:
        return _number(_finite, word.text, "a number")
    return word.text


def _choice(kind: FieldType, text: str) -> Any:
    """One of a literal's values, which may be numbers."""
    choices = kind.all_choices
    folded = any(one.folded for one in kind.members)
    wanted = text.lower().replace("-", "_") if folded else text
    found = [choice for choice in choices if str(choice) == wanted]
    if not found:
        raise _not_taken(str(kind), text, choices)
    return found[0]


def _enum(kind: FieldType, text: str) -> Any:
    """An enum's name in any case, or a number that stands for one."""
    numbers = {str(value): value for one in kind.members for value in one.values}
    if numbers:
        return _listed(numbers, text)
    wanted = text.upper()
    return wanted if wanted in kind.all_choices else _choice(kind, text.lower())


def _listed(numbers: Mapping[str, Any], text: str) -> Any:
    if text not in numbers:
        raise _not_taken(f"one of {', '.join(numbers)}", text, numbers)
    return numbers[text]


def _number(read: Callable[[str], Any], text: str, form: str) -> Any:
    try:
        return read(text)
    except ValueError:
        raise _not_taken(form, text) from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _whole_number_of(flag: EngineFlag) -> Callable[[str], int]:
    if flag.name == AUTO_FLAG.value:
        return human_readable_int_or_auto
    return human_readable_int if flag.name in SHORT_FORM_FLAGS.value else int


def _integer_form(flag: EngineFlag) -> str:
    if flag.name == AUTO_FLAG.value or flag.name in SHORT_FORM_FLAGS.value:
        return "a whole number, `8k` for 8000 or `8K` for 8192"
    return "a whole number in digits"


def _json(flag: EngineFlag, word: Word, table: EngineTable) -> Any:
    kinds = {one.kind for one in flag.type.members}
    text = word.text.strip()
    if word.config is not None:
        return accepted(flag.type, word.config, table)
    if flag.type.accepts_null and word.text in _NULL_WORDS:
        return None
    if Kind.STR in kinds and (text[:1], text[-1:]) != _JSON_OBJECT:
        return word.text
    return accepted(flag.type, _parsed(flag, word.text), table)


def _parsed(flag: EngineFlag, text: str) -> Any:
    try:
        return read_json(expanded(text) if flag.type.config else text)
    except ValueError as error:
        because = f"the value is not JSON ({_first_line(error)})"
        raise NotTakenError(Fault((), because, text, 'JSON, such as `{"key": 1}`')) from None


def _first_line(error: ValueError) -> str:
    """json's own words, which quote nothing of the text."""
    return str(error).partition("\n")[0][:1].lower() + str(error).partition("\n")[0][1:]


def _device_ids(text: str) -> list[int | str]:
    parts = [part.strip() for part in text.split(",")]
    return [int(part) if part.isdecimal() else part for part in parts]


def _reasoning_parser(text: str) -> str:
    return "" if text.lower() == "none" else text


_SPECIAL: Mapping[str, Callable[[str], Any]] = {"device_ids": _device_ids, "reasoning_parser": _reasoning_parser}
"""Flags that the engine reads by functions of their own."""

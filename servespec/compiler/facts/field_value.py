"""The types that the engine declares for its settings, and whether a value is of one."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Protocol


class Kind(StrEnum):
    """What a :class:`FieldType` is; ``OBJECT`` is a Python object that no text can give."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STR = "str"
    NULL = "null"
    ANY = "any"
    OBJECT = "object"
    LIST = "list"
    SET = "set"
    TUPLE = "tuple"
    DICT = "dict"
    UNION = "union"
    LITERAL = "literal"
    ENUM = "enum"
    CONFIG = "config"


@dataclass(frozen=True, slots=True)
class FieldType:
    """A type as the engine declares it.

    ``of`` are the members of a union or tuple, the element of a list or set, or key and value of a dict;
    ``choices`` are a literal's values or an enum's names, ``values`` what may stand for an enum's names;
    ``name`` is a config's, enum's or object's class.  ``folded`` choices match in any case, ``-`` for ``_``.
    """

    kind: Kind
    of: tuple["FieldType", ...] = ()
    choices: tuple[Any, ...] = ()
    values: tuple[Any, ...] = ()
    name: str = ""
    folded: bool = False

    def __str__(self) -> str:
        return _spelled(self)

    @property
    def members(self) -> tuple["FieldType", ...]:
        """The alternatives: those of a union, or the type alone."""
        return self.of if self.kind is Kind.UNION else (self,)

    @property
    def closed(self) -> "FieldType":
        """The type without free text, so that names alone are left."""
        return replace(self, of=tuple(one for one in self.of if one.kind is not Kind.STR))

    @property
    def accepts_null(self) -> bool:
        return any(one.kind in {Kind.NULL, Kind.ANY} for one in self.members)

    @property
    def config(self) -> str:
        """The config class that a value of this type makes, '' where it makes none."""
        return next((one.name for one in self.members if one.kind is Kind.CONFIG), "")

    @property
    def all_choices(self) -> tuple[Any, ...]:
        """Every value that the alternatives list by name."""
        return tuple(choice for one in self.members for choice in one.choices)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Inclusive ``ge``, ``le`` and exclusive ``gt``, ``lt``, as the engine declares them."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def check(self, value: object) -> str | None:
        """What is wrong with a number, None where nothing is; other values have no bounds."""
        broken = self.broken_by(value)
        return None if broken is None else f"expected {broken}, got `{_shown(value)}`"

    def broken_by(self, value: object) -> str | None:
        """The bound that a number does not keep, in words."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        for bound, holds, words in _BOUND_TESTS:
            limit = getattr(self, bound)
            if limit is not None and not holds(value, limit):
                return f"{words} {_number(limit)}"
        return None


_BOUND_TESTS: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
    ("ge", lambda value, limit: value >= limit, "at least"),
    ("gt", lambda value, limit: value > limit, "more than"),
    ("le", lambda value, limit: value <= limit, "at most"),
    ("lt", lambda value, limit: value < limit, "less than"),
)


def field_type(expression: Any) -> FieldType:
    """The value of a type expression of the tables."""
    if isinstance(expression, str):
        return FieldType(Kind(expression))
    if "enum" in expression:
        names, values = tuple(expression["names"]), tuple(expression.get("values", ()))
        return FieldType(Kind.ENUM, choices=names, values=values, name=expression["enum"])
    (key, inner), *_ = expression.items()
    if key == "any":
        return FieldType(Kind.OBJECT, name=inner)
    if key == "config":
        return FieldType(Kind.CONFIG, name=inner)
    if key == "literal":
        return FieldType(Kind.LITERAL, choices=tuple(inner), folded=expression.get("folded", False))
    parts = inner if isinstance(inner, list) else [inner]
    return FieldType(Kind(key), of=tuple(field_type(one) for one in parts))


class Declared(Protocol):
    """A field of a config class, as far as its value is checked."""

    @property
    def type(self) -> FieldType: ...
    @property
    def bounds(self) -> Bounds: ...
    @property
    def internal(self) -> bool: ...


class Configs(Protocol):
    """The config classes that a value may nest."""

    def has_config(self, name: str) -> bool: ...
    def config(self, name: str) -> Mapping[str, Declared]: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """What a type does not take: the value at ``path`` inside what was checked, or the key there where ``is_key``.

    ``written`` is that value or key.  ``expected`` says in words what may stand there, '' where nothing may, and
    ``choices`` lists the values among that, or the keys.
    """

    path: tuple[str | int, ...]
    because: str
    written: object
    expected: str = ""
    choices: tuple[Any, ...] = ()
    is_key: bool = False

    def __str__(self) -> str:
        """The reason, after the path to what it is about."""
        return f"{self.steps}: {self.because}" if self.path else self.because

    @property
    def steps(self) -> str:
        """The path as it follows the name of what was checked."""
        return "".join(f"[{step}]" if isinstance(step, int) else f".{_shown(step)}" for step in self.path)


def check_value(field_type: FieldType, value: object, configs: Configs | None = None) -> str | None:
    """Why ``value`` is not of ``field_type``, None where it is: the first of :func:`faults_in`, in one line.

    A reason about something inside starts with the path to it, as in
    ``.pass_config.fuse_norm_quant: expected true or false``.
    """
    return next(map(str, faults_in(field_type, value, configs)), None)


def faults_in(field_type: FieldType, value: object, configs: Configs | None = None) -> tuple[Fault, ...]:
    """Everything in ``value`` that ``field_type`` does not take; of a list the first.

    As a person expects rather than as Python does: true is no integer, ``"4"`` is no number, and only true
    and false are booleans.  An integer is a float.  Enum names match in any case.  With ``configs`` given,
    nested configs are checked field by field.
    """
    alternatives = [one for one in field_type.members if one.kind is not Kind.OBJECT]
    if not alternatives:
        return ()
    found = [_faults(one, value, configs) for one in alternatives]
    if () in found:
        return ()
    inner = [faults for one, faults in zip(alternatives, found, strict=True) if _same_shape(one, value)]
    return inner[0] if inner else (_unexpected(_listed(alternatives), value, field_type.all_choices),)


def bound_faults(setting: Declared, value: object) -> tuple[Fault, ...]:
    """A number outside of the bounds that its field declares."""
    broken = setting.bounds.broken_by(value)
    return () if broken is None else (replace(_unexpected(broken, value), expected=f"a number, {broken}"),)


def _unexpected(expected: str, value: object, choices: tuple[Any, ...] = ()) -> Fault:
    return Fault((), f"expected {expected}, got `{_shown(value)}`", value, expected, choices)


def _faults(one: FieldType, value: object, configs: Configs | None) -> tuple[Fault, ...]:
    """Against a single alternative."""
    if _same_shape(one, value):
        return tuple(_inner_faults(one, value, configs))
    return () if _is_scalar_of(one, value) else (_unexpected(str(one), value, one.choices),)


def _is_scalar_of(one: FieldType, value: object) -> bool:
    if one.kind is Kind.LITERAL:
        return _is_choice(_folded(value) if one.folded else value, one.choices)
    if one.kind is Kind.ENUM:
        is_name = isinstance(value, str) and value.upper() in one.choices
        return is_name or _is_choice(value, one.values)
    if isinstance(value, bool):
        return one.kind in {Kind.BOOL, Kind.ANY}
    return one.kind is Kind.ANY or isinstance(value, _PYTHON_TYPES.get(one.kind, ()))


_PYTHON_TYPES: Mapping[Kind, tuple[type, ...]] = {
    Kind.INT: (int,),
    Kind.FLOAT: (int, float),
    Kind.STR: (str,),
    Kind.NULL: (type(None),),
}


def _is_choice(value: object, choices: tuple[Any, ...]) -> bool:
    """Equal and of the same type: True is not 1."""
    return any(value == choice and type(value) is type(choice) for choice in choices)


def _folded(value: object) -> object:
    return value.lower().replace("-", "_") if isinstance(value, str) else value


def _same_shape(one: FieldType, value: object) -> bool:
    """A list against a list, a mapping against a dict or config: what is wrong is inside."""
    if one.kind in {Kind.LIST, Kind.SET, Kind.TUPLE}:
        return isinstance(value, list | tuple | set)
    return one.kind in {Kind.DICT, Kind.CONFIG} and isinstance(value, Mapping)


def _inner_faults(one: FieldType, value: Any, configs: Configs | None) -> Iterator[Fault]:
    if one.kind is Kind.CONFIG:
        yield from _config_faults(one.name, value, configs)
    elif one.kind is Kind.DICT:
        for key, inner in value.items():
            yield from _below(str(key), faults_in(one.of[1], inner, configs))
    elif one.kind is Kind.TUPLE and len(value) != len(one.of):
        yield Fault((), f"expected {len(one.of)} values, got {len(value)}", value, f"{len(one.of)} values")
    else:
        types = one.of if one.kind is Kind.TUPLE else one.of * len(value)
        pairs = enumerate(zip(types, value, strict=True))
        entries = (fault for at, (kind, inner) in pairs for fault in _below(at, faults_in(kind, inner, configs)))
        yield from islice(entries, 1)


def _config_faults(name: str, value: Mapping[str, object], configs: Configs | None) -> Iterator[Fault]:
    if configs is None or not configs.has_config(name):
        return
    fields = {key: field for key, field in configs.config(name).items() if not field.internal}
    for key, inner in value.items():
        setting = fields.get(str(key))
        if setting is None:
            because = f"`{name}` has no field of this name that can be set"
            yield Fault((str(key),), because, str(key), choices=tuple(fields), is_key=True)
        else:
            found = faults_in(setting.type, inner, configs) or bound_faults(setting, inner)
            yield from _below(str(key), found)


def _below(step: str | int, faults: tuple[Fault, ...]) -> Iterator[Fault]:
    return (replace(fault, path=(step, *fault.path)) for fault in faults)


_NOUNS: Mapping[Kind, str] = {
    Kind.INT: "an integer",
    Kind.FLOAT: "a number",
    Kind.BOOL: "true or false",
    Kind.STR: "a string",
    Kind.NULL: "null",
    Kind.ANY: "any value",
    Kind.CONFIG: "a mapping",
    Kind.DICT: "a mapping",
    Kind.OBJECT: "a Python object",
}


def _spelled(one: FieldType) -> str:
    if one.kind in {Kind.LITERAL, Kind.ENUM}:
        return "one of " + ", ".join(f"`{_shown(choice)}`" for choice in one.choices)
    if one.kind in {Kind.LIST, Kind.SET}:
        return "a list" if one.of[0].kind in {Kind.ANY, Kind.OBJECT} else f"a list, each {one.of[0]}"
    if one.kind is Kind.TUPLE:
        return f"a list of {len(one.of)} values"
    return _listed(list(one.of)) if one.kind is Kind.UNION else _NOUNS[one.kind]


def _listed(alternatives: list[FieldType]) -> str:
    """``a, b or c``, without saying the same thing twice."""
    words = list(dict.fromkeys(str(one) for one in alternatives if one.kind is not Kind.OBJECT))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: object) -> str:
    """A value as users write it; a string keeps its quotes where it would mislead without them."""
    if isinstance(value, str) and not _misleads(value):
        return value
    return json.dumps(value, default=str)


def _misleads(text: str) -> bool:
    """Whether a string looks like another kind of value without its quotes, or is no single line."""
    if not text or not text.isprintable():
        return True
    return text.lower() in {"true", "false", "null"} or text[:1].isdigit() or text[:1] in "-."


def _number(limit: float) -> str:
    return str(int(limit)) if float(limit).is_integer() else str(limit)

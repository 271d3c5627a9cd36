"""From a source to a spec: pydantic's errors become findings with places, all of them in one run.

Where some values are refused, the rest is parsed without them, so that the later rules still run and every fault of
a file shows at once; such a spec is never compiled.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from servespec.diagnostics import Diagnostic
from servespec.schema import spec_rules as rules
from servespec.schema.called import meant_fields
from servespec.schema.data_paths import value_at, with_value
from servespec.schema.joined_keys import joined_key
from servespec.schema.nearest import nearest
from servespec.schema.renamed import renamed_field
from servespec.schema.source import SpecPath, SpecSource
from servespec.schema.spec import Section, ServingSpec

_MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Parsed:
    """``spec`` is None where not even a partial one can be made; ``diagnostics`` says what was refused."""

    spec: ServingSpec | None
    diagnostics: tuple[Diagnostic, ...]


def parse_spec(source: SpecSource) -> Parsed:
    """Everything that pydantic accepts, and a finding for everything that it does not."""
    data: Any = source.data
    found: list[Diagnostic] = []
    refused: list[SpecPath] = []
    for _ in range(_MOST_ROUNDS):
        try:
            return Parsed(ServingSpec.model_validate(data), tuple(found))
        except ValidationError as error:
            details = error.errors(include_url=False)
            told = [detail for detail in _of_one_form(details, data) if not _is_around(detail, refused, data)]
            found += [finding for detail in told for finding in _findings(detail, source)]
            refused += [_data_path(detail["loc"], data) for detail in details]
            pruned = _without(data, [_data_path(detail["loc"], data) for detail in details])
            if pruned == data:
                return Parsed(None, tuple(found))
            data = pruned
    return Parsed(None, tuple(found))


def _of_one_form(details: list[ErrorDetails], data: Any) -> list[ErrorDetails]:
    """Of a field that takes values of several forms, one answer: the choices, or what is wrong in a mapping."""
    paths = [_data_path(detail["loc"], data) for detail in details]
    chosen = {path for detail, path in zip(details, paths, strict=True) if detail["type"] == "literal_error"}

    def is_another_form(kind: str, path: SpecPath) -> bool:
        if kind in ("string_type", "too_short"):
            return any(one[: len(path)] == path and one != path for one in paths)
        return kind.startswith("bool_") and path in chosen

    return [detail for detail, path in zip(details, paths, strict=True) if not is_another_form(detail["type"], path)]


def _is_around(detail: ErrorDetails, refused: list[SpecPath], data: Any) -> bool:
    """Whether this is only what is left where values were taken out."""
    path = _data_path(detail["loc"], data)
    is_taken_out = detail["type"] == "missing" and path in refused
    return is_taken_out or any(one != path and one[: len(path)] == path for one in refused)


def _findings(detail: ErrorDetails, source: SpecSource) -> Iterator[Diagnostic]:
    path = _data_path(detail["loc"], source.data)
    match detail["type"]:
        case "missing":
            if not stands_elsewhere(path, source.data):
                yield _missing(path, source)
        case "extra_forbidden":
            yield unknown_key(path, source)
        case "value_refused":
            yield _refused(path, detail, source)
        case "literal_error":
            yield _wrong_choice(path, detail, source)
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than" | "too_short":
            yield _out_of_range(path, detail, source)
        case "string_too_short":
            message = f"`{dotted(path)}` is empty"
            yield rules.S105.at(source.place_of(path), message, "write a name, or delete the line")
        case _:
            yield _wrong_type(path, detail, source)


def _data_path(loc: tuple[str | int, ...], data: Any) -> SpecPath:
    """pydantic's location without the tags of unions, which are no keys of the file."""
    path: list[str | int] = []
    here = data
    for step in loc:
        if isinstance(here, Mapping) and isinstance(step, str) and not _is_tag(step, here, tuple(path)):
            path.append(step)
            here = here.get(step)
        elif isinstance(here, list) and isinstance(step, int):
            path.append(step)
            here = here[step] if step < len(here) else None
    return tuple(path)


def _is_tag(step: str, here: Mapping[str, Any], path: SpecPath) -> bool:
    """Whether a step names a form of a union: neither a key that is there nor a field that is missing."""
    section = section_at(path)
    return step not in here and (section is None or step not in section.model_fields)


def stands_elsewhere(path: SpecPath, data: Mapping[str, Any]) -> bool:
    """Whether the key that is missing at ``path`` stands there misspelled or elsewhere, which is told in that place."""
    is_dotted = any(f"{key}.".startswith(f"{dotted(path)}.") and "." in key for key in data)
    return is_dotted or _is_misspelled(path, data) or _is_misplaced(path, data)


def _is_misspelled(path: SpecPath, data: Any) -> bool:
    section, here = section_at(path[:-1]), data
    for step in path[:-1]:
        here = here[step]
    known = section.model_fields if section else {}
    if any(joined_key(key, (str(path[-1]),)) for key in here):
        return True
    return any(path[-1] in nearest(str(key), known, limit=1) for key in here if key not in known)


def _is_misplaced(path: SpecPath, data: Mapping[str, Any]) -> bool:
    """Whether it stands at the top or in another section."""
    if len(path) == 1:
        return False
    others = [value for value in data.values() if isinstance(value, Mapping)]
    if path[-1] not in ServingSpec.model_fields:
        others.append(data)
    homes = sections_with(str(path[-1]))
    return homes[:1] == (path[0],) and any(path[-1] in one for one in others)


def dotted(path: SpecPath) -> str:
    """`scheduler.max_num_seqs`, `speculative.dynamic[1].up_to`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _missing(path: SpecPath, source: SpecSource) -> Diagnostic:
    section = section_at(path[:-1])
    info = section.model_fields.get(str(path[-1])) if section else None
    example = _example(info.examples or list(_literals(info.annotation))) if info else ""
    message = f"`{dotted(path)}` is missing"
    return rules.S101.at(source.place_of(path), message, f"write `{path[-1]}: {example}`".rstrip())


def _example(examples: list[Any] | None) -> str:
    return str(examples[0]) if examples else "..."


def unknown_key(path: SpecPath, source: SpecSource) -> Diagnostic:
    """A key that no field has: renamed, of another section, or misspelled."""
    key = str(path[-1])
    place = source.place_of_key(path)
    own = section_at(path[:-1])
    joined = joined_key(key, own.model_fields if own else ())
    if joined is not None:
        return rules.S102.at(place, f"no space follows the colon of `{joined.name}`", joined.help)
    steps = _steps(path)
    if steps:
        return _misspelled(path, place_help=_unfolded(path[:-1], steps, source), source=source)
    replacement = renamed_field(key)
    if replacement is not None:
        return rules.S108.at(place, f"`{key}` is {replacement.what}", replacement.help)
    meant = _meant(path, source)
    if meant is not None:
        return _misspelled(path, place_help=f"did you mean `{meant}`?", source=source)
    homes = [*_homes_below(path), *(f"{name}.{key}" for name in sections_with(key))]
    if homes:
        return rules.S107.at(place, _no_field(path), f"move it to `{homes[0]}`")
    return _misspelled(path, place_help=_suggestion(path), source=source)


def _meant(path: SpecPath, source: SpecSource) -> str | None:
    """The field that a key is another name of, the first that is not written yet; by its last part in its section."""
    section = dotted(path[:-1])
    fields = meant_fields(section, str(path[-1]))
    free = (one for one in fields if value_at(source.data, tuple(one.split("."))) is None)
    meant = next(free, fields[0] if fields else None)
    return meant.removeprefix(f"{section}.") if meant else None


def _steps(path: SpecPath) -> tuple[str, ...]:
    """The keys of a field that is written as one with dots, the way messages name it; none for any other key."""
    first, *rest = str(path[-1]).split(".")
    own = section_at(path[:-1])
    if not rest or not all(rest) or own is None or first not in own.model_fields:
        return ()
    holder = section_at((*path[:-1], first, *rest[:-2])) if rest[:-1] else own
    section = section_at((*path[:-1], first, *rest[:-1]))
    if section is None:
        # Free keys, such as those of `engine.env`.
        name = (first, *rest)[-2]
        is_field = holder is not None and name in holder.model_fields and _takes_mapping(holder, name)
    else:
        is_field = rest[-1] in section.model_fields or section.model_config.get("extra") == "allow"
    return (first, *rest) if is_field else ()


def _takes_mapping(section: type[Section], name: str) -> bool:
    annotation = section.model_fields[name].annotation
    return any(get_origin(one) is dict for one in (annotation, *get_args(annotation)))


def _unfolded(prefix: SpecPath, steps: tuple[str, ...], source: SpecSource) -> str:
    """A field with dots as it is typed: below the sections that are there, else with them."""
    value = _typed_value(value_at(source.data, (*prefix, ".".join(steps))))
    there = [at for at in range(1, len(steps)) if isinstance(value_at(source.data, (*prefix, *steps[:at])), Mapping)]
    depth = max(there, default=0)
    line = value
    for step in reversed(steps[depth:]):
        line = f"{step}: {line}" if line is value else f"{step}: {{{line}}}"
    under = f" under `{dotted((*prefix, *steps[:depth]))}`" if depth else ""
    return f"write `{line}`{under}"


_PLAIN = re.compile(r"[A-Za-z][\w./-]*")


def _typed_value(value: Any) -> str:
    """On one line, as YAML takes it."""
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    text = str(value) if is_plain else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN and "`" not in text else "…"


def _misspelled(path: SpecPath, place_help: str, source: SpecSource) -> Diagnostic:
    return rules.S102.at(source.place_of_key(path), _no_field(path), place_help)


def _no_field(path: SpecPath) -> str:
    where = f"`{dotted(path[:-1])}`" if path[:-1] else "the top level of a spec"
    return f"`{path[-1]}` is not a field of {where}"


def _suggestion(path: SpecPath) -> str:
    section = section_at(path[:-1])
    own = nearest(str(path[-1]), section.model_fields) if section else ()
    if own:
        return f"did you mean `{own[0]}`?"
    elsewhere = [
        f"{home}.{name}" for home, model in sections() for name in nearest(str(path[-1]), model.model_fields, limit=1)
    ]
    if elsewhere:
        return f"did you mean `{elsewhere[0]}`?"
    fields = ", ".join(f"`{name}`" for name in (section.model_fields if section else ()))
    return f"its fields are {fields}" if fields else ""


def sections() -> Iterator[tuple[str, type[Section]]]:
    """The named sections of a spec with their models."""
    for name, info in ServingSpec.model_fields.items():
        model = _model_in(info.annotation)
        if model is not None:
            yield name, model


def sections_with(key: str) -> tuple[str, ...]:
    """The sections that have a field called ``key``."""
    return tuple(name for name, model in sections() if key in model.model_fields)


def _homes_below(path: SpecPath) -> Iterator[str]:
    """Where the key at ``path`` is a field, of the mappings that its own section holds."""
    here = section_at(path[:-1])
    for name, info in here.model_fields.items() if here and path[:-1] else ():
        below = _model_in(info.annotation)
        if below is not None and str(path[-1]) in below.model_fields:
            yield dotted((*path[:-1], name, str(path[-1])))


def section_at(path: SpecPath) -> type[Section] | None:
    """The model of the mapping at ``path``; None where it holds free keys."""
    model: type[Section] | None = ServingSpec
    for at, step in enumerate(path):
        if isinstance(step, int):
            continue
        info = model.model_fields.get(step) if model else None
        is_listed = at + 1 < len(path) and isinstance(path[at + 1], int)
        model = _model_in(info.annotation, is_listed) if info else None
    return model


def _model_in(annotation: Any, is_listed: bool = False) -> type[Section] | None:
    """The model of a field's value, or of the entries of its list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if issubclass(annotation, Section) and not is_listed else None
    is_list = get_origin(annotation) is tuple
    if is_list and not is_listed:
        return None
    found = (_model_in(part, is_listed and not is_list) for part in get_args(annotation))
    return next((model for model in found if model is not None), None)


def _refused(path: SpecPath, detail: ErrorDetails, source: SpecSource) -> Diagnostic:
    context = detail.get("ctx", {})
    value = shown(detail["input"])
    message = f"`{dotted(path)}`: {context['reason']} ({value})"
    return rules.S106.at(source.place_of(path), message, f"write {context['right_form']}")


def _wrong_choice(path: SpecPath, detail: ErrorDetails, source: SpecSource) -> Diagnostic:
    expected = _choices(path) or _quoted(str(detail.get("ctx", {}).get("expected", "")))
    value = detail["input"]
    near = nearest(value, expected, limit=1) if isinstance(value, str) else ()
    listed = ", ".join(f"`{choice}`" for choice in expected)
    help_text = f"did you mean `{near[0]}`? It takes {listed}" if near else f"it takes {listed}"
    if value in expected:
        help_text = f"write `{value}`, without quotes"
    message = f"`{dotted(path)}` is {shown(value)}"
    return rules.S104.at(source.place_of(path), message, help_text)


def _choices(path: SpecPath) -> tuple[str, ...]:
    section = section_at(path[:-1])
    info = section.model_fields.get(str(path[-1])) if section and path else None
    return tuple(_literals(info.annotation)) if info else ()


def _literals(annotation: Any) -> Iterator[str]:
    if annotation is bool:
        yield from ("true", "false")
    for part in get_args(annotation):
        if isinstance(part, str | int) and not isinstance(part, type):
            yield str(part)
        else:
            yield from _literals(part)


def _quoted(expected: str) -> tuple[str, ...]:
    return tuple(part.strip(" '\"") for part in expected.replace(" or ", ",").split(",") if part.strip())


_BOUND_WORDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
    "too_short": ("min_length", "at least"),
}


def _out_of_range(path: SpecPath, detail: ErrorDetails, source: SpecSource) -> Diagnostic:
    key, words = _BOUND_WORDS[detail["type"]]
    bound = detail.get("ctx", {}).get(key)
    message = f"`{dotted(path)}` is {shown(detail['input'])}"
    unit = " entries" if key == "min_length" else ""
    return rules.S105.at(source.place_of(path), message, f"it must be {words} {bound}{unit}")


_TYPE_WORDS = {
    "bool_type": "`true` or `false`, without quotes",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "int_type": "a whole number",
    "float_type": "a number",
}


_NUMBER_LIKE = frozenset({"id", "revision", "served_model_name", "version"})
"""Fields of text that YAML may read as a number."""

_SHORTHANDS = {"model": "id", "hardware": "gpu", "attention": "backend", "speculative": "method"}
"""The field that people mean who write a word where a section stands."""


def _wrong_type(path: SpecPath, detail: ErrorDetails, source: SpecSource) -> Diagnostic:
    value = detail["input"]
    expected = _TYPE_WORDS.get(detail["type"], detail["msg"].lower()) + _example_help(path)
    shorthand = _SHORTHANDS.get(dotted(path))
    if shorthand and isinstance(value, str):
        expected = f"a mapping: `{path[-1]}: {{{shorthand}: {value}}}`"
    message, help_text = f"`{dotted(path)}` is {shown(value)}", f"write {expected}"
    section = section_at(path)
    joined = joined_key(value, section.model_fields if section else ())
    if section is not None and isinstance(value, str) and "\n" in value:
        help_text = f"write its fields on the lines below `{path[-1]}:`, without `|` or `>`"
    elif joined is not None:
        help_text = joined.help
    elif path[-1:] and path[-1] in _NUMBER_LIKE and type(value) in (int, float):
        help_text = f'write it as text, in quotes: `"{value}"`'
    return rules.S103.at(source.place_of(path), message, help_text)


def _example_help(path: SpecPath) -> str:
    section = section_at(path[:-1]) if path else None
    info = section.model_fields.get(str(path[-1])) if section else None
    return f", such as `{info.examples[0]}`" if info and info.examples else ""


_LONGEST_SHOWN = 60


def shown(value: Any) -> str:
    """A value for a message: short, on one line, with its kind where that is what is wrong."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return f"`{text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '…'}`"


PLACEHOLDER = "?"
"""A name of a model or GPU in a spec that is parsed without what was refused."""
_PLACEHOLDERS: Mapping[SpecPath, Any] = {
    ("servespec",): 1,
    ("model",): {"id": PLACEHOLDER},
    ("model", "id"): PLACEHOLDER,
    ("hardware",): {"gpu": PLACEHOLDER},
    ("hardware", "gpu"): PLACEHOLDER,
}
"""What stands for a required value that is missing or refused, so that the rest can be looked at."""


def _without(data: Any, paths: list[SpecPath]) -> Any:
    """``data`` without the values at ``paths``; an item takes its whole list along."""
    pruned = _copied(data)
    for path in map(_key_path, paths):
        _remove(pruned, path)
        if path in _PLACEHOLDERS:
            pruned = with_value(pruned, path, _PLACEHOLDERS[path])
    return pruned


def _key_path(path: SpecPath) -> SpecPath:
    first_index = next((i for i, step in enumerate(path) if isinstance(step, int)), len(path))
    return path[:first_index]


def _copied(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _copied(value) for key, value in data.items()}
    return list(data) if isinstance(data, list) else data


def _remove(data: Any, path: SpecPath) -> None:
    for step in path[:-1]:
        data = data.get(step) if isinstance(data, dict) else None
    if path and isinstance(data, dict):
        data.pop(path[-1], None)

"""docs/reference/engine-facts.md: every value copied from an engine, with the text that it stands in."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from enum import Enum, IntEnum
from itertools import groupby
from typing import Any

import servespec.compiler.facts
from doc_pages.markdown import code, page, sentences, table
from servespec.provenance import Sourced

Fact = tuple[str, Sourced[Any]]
_MOST_MEMBERS = 12
_SHOWN_MEMBERS = 3


def facts_page() -> str:
    facts = sorted(
        (fact for fact in all_facts() if fact[1].package == "vllm"),
        key=lambda fact: (_newest_first(fact[1].version), fact[1].path, fact[0]),
    )
    versions = [_version(name, tuple(group)) for name, group in groupby(facts, lambda fact: fact[1].version)]
    return page(
        "Engine facts",
        sentences(
            "Plans rest on these values, copied from vLLM's source. A test finds each quote in the named file of the "
            "released wheel, white space ignored, so that an upgrade names every value that moved. "
            "Paths are inside the wheel. Fields, flags and variables of the engine are in tables of their own, "
            "generated from the same wheels; the [spec reference](spec.md) shows them."
        ),
        *versions,
    )


def _newest_first(version: str) -> tuple[int, ...]:
    return tuple(-int(part) for part in version.split("."))


def _version(version: str, facts: tuple[Fact, ...]) -> str:
    files = [_file(path, tuple(group)) for path, group in groupby(facts, lambda fact: fact[1].path)]
    return "\n\n".join([f"## vLLM {version}", f"{len(facts)} values.", *files])


def _file(path: str, facts: tuple[Fact, ...]) -> str:
    rows = [(code(name), value_words(f.value), f.unit, code(f.quote), f.note) for name, f in facts]
    return f"### `{path}`\n\n" + table(("fact", "value", "unit", "quote", "note"), rows)


def value_words(value: Any) -> str:
    """A value in short: sets and tuples beyond a dozen members are counted, records show what is not default."""
    if isinstance(value, Enum):
        return code(value.name if isinstance(value, IntEnum) else value)
    if isinstance(value, frozenset):
        return _members(sorted(value))
    if isinstance(value, tuple):
        return _members(list(value))
    if isinstance(value, Mapping):
        return _members([f"{key}: {one}" for key, one in value.items()])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{name} {value_words(one)}" for name, one in _not_default(value))
    return code("null" if value is None else str(value).lower() if isinstance(value, bool) else value)


def _members(members: list[Any]) -> str:
    if not members:
        return "none"
    if len(members) <= _MOST_MEMBERS:
        return ", ".join(value_words(one) for one in members)
    shown = ", ".join(value_words(one) for one in members[:_SHOWN_MEMBERS])
    return f"{len(members)}: {shown}, ..."


def _not_default(record: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value != _default_of(field):
            yield field.name, value


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


# Finding them


def all_facts() -> tuple[Fact, ...]:
    """(name, fact) of every fact below ``servespec.compiler.facts``; a fact that is shared has its first name."""
    package = servespec.compiler.facts
    seen: set[int] = set()
    found: list[Fact] = []
    for module in sorted(one.name for one in pkgutil.walk_packages(package.__path__, package.__name__ + ".")):
        for name, value in vars(importlib.import_module(module)).items():
            found += _facts_in(f"{module.removeprefix(package.__name__ + '.')}.{name}", value, seen)
    return tuple(found)


def _facts_in(name: str, value: object, seen: set[int]) -> Iterator[Fact]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Sourced):
        yield name, value
        return
    for step, part in _parts(value):
        yield from _facts_in(name + step, part, seen)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key}]", part) for key, part in value.items())
    elif isinstance(value, tuple | list):
        yield from ((f"[{at}]", part) for at, part in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value))

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
from servespec.compiler.facts.list_readers import (
    EVERY_CAPABILITY,
    GRAPH_MACHINERY,
    LIST_READERS,
    NOT_REACHED,
    ListReader,
)
from servespec.provenance import Sourced

Fact = tuple[str, Sourced[Any]]
_MOST_MEMBERS = 12
_SHOWN_MEMBERS = 3


def facts_page() -> str:
    facts = sorted(
        (fact for fact in all_facts() if fact[1].package == "vllm" and not isinstance(fact[1].value, ListReader)),
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
        _list_readers(),
    )


def _list_readers() -> str:
    """One row a reader; the versions that have it are named where not all do."""
    by_reader: dict[str, list[tuple[str, Sourced[ListReader]]]] = {}
    for version, readers in LIST_READERS.items():
        for sourced in readers:
            by_reader.setdefault(sourced.value.name, []).append((version, sourced))
    matters_first = sorted(by_reader.values(), key=lambda found: not found[0][1].value.matters)
    return "\n\n".join(
        [
            "## Readers of the token list",
            sentences(
                "A plan passes the union of its token counts as `cudagraph_capture_sizes`, and the engine reads that "
                "list and its maximum in more places than its graph managers. "
                "Where a plan reaches one that matters and the plan's list makes a difference, a note says so (P123, "
                "P124, P125). "
                "The key of the compile cache is left out of the notes: it differs for every plan. "
                "A test finds every function of the wheels that names the list, and fails where one is missing here, "
                "among the files that make the graphs, and among those that Model Runner V2 on an NVIDIA GPU does not "
                "run."
            ),
            table(_READER_COLUMNS, map(_reader_row, matters_first)),
            _files("Files that resolve the list or make graphs of it:", GRAPH_MACHINERY),
            _files("Files that are not reached:", NOT_REACHED),
        ]
    )


_READER_COLUMNS = ("where", "quote", "reached with", "decides", "effect", "matters for")


def _reader_row(found: list[tuple[str, Sourced[ListReader]]]) -> tuple[str, ...]:
    reader = found[0][1].value
    only = "" if len(found) == len(LIST_READERS) else f" ({', '.join(version for version, _ in found)})"
    where = f"{code(found[0][1].path)}: {', '.join(code(one) for one in reader.functions)}{only}"
    matters = ", ".join(reader.matters) or "nothing"
    return where, code(found[0][1].quote), _reached_with(reader), reader.decides, reader.effect, matters


def _reached_with(reader: ListReader) -> str:
    """Every condition of a reader, in words."""
    (low_major, low_minor), (high_major, high_minor) = reader.capabilities
    capability = f"compute capability {low_major}.{low_minor} to {high_major}.{high_minor}"
    conditions = (
        ", ".join(code(one) for one in (*reader.backends, *reader.architectures)),
        "".join(f"FlashAttention {one}" for one in reader.flash_attention),
        "" if reader.capabilities == EVERY_CAPABILITY else capability.replace(" to 99.9", " and later"),
        reader.needs,
    )
    return "; ".join(condition for condition in conditions if condition) or "any"


def _files(said: str, files: Mapping[str, str]) -> str:
    return f"{said}\n\n" + table(("file", "why"), [(code(path), why) for path, why in sorted(files.items())])


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

"""The quotes behind servespec's copied numbers, and whether they stand in a wheel."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

from servespec.provenance import Sourced

_FACTS = "servespec.compiler.facts"


def sourced_values(version: str) -> list[Sourced[object]]:
    """Every :class:`Sourced` of that version of the engine that a module of the facts holds."""
    found = {id(one): one for module in _modules() for one in _within(list(vars(module).values()), set())}
    return [one for one in found.values() if one.package == "vllm" and one.version == version]


def missing_quotes(version: str, root: Path) -> list[Sourced[object]]:
    """Those of ``version`` whose quote is not in the file of the wheel unpacked at ``root``."""
    return [one for one in sourced_values(version) if _squeezed(one.quote) not in _squeezed_file(root / one.path)]


def _modules() -> Iterator[ModuleType]:
    package = importlib.import_module(_FACTS)
    for found in pkgutil.walk_packages(package.__path__, f"{_FACTS}."):
        yield importlib.import_module(found.name)


def _within(value: object, seen: set[int]) -> Iterator[Sourced[object]]:
    """Through mappings, sequences and dataclasses, each object once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Sourced):
        yield value
    for inner in _parts(value):
        yield from _within(inner, seen)


def _parts(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    return []


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _squeezed_file(path: Path) -> str:
    return _squeezed(path.read_text(encoding="utf-8")) if path.is_file() else ""

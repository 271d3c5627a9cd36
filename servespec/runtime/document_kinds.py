"""What a file holds, found from its keys: a spec, what servespec writes, an engine's config or a recipe."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final

from servespec.compiler.facts.engine_fields import table, versions
from servespec.schema.overlays import EXTENDS

_LIKENESS: Final = 0.5
"""Chosen: a document that lost a key or two is still what it was; a spec has two of a plan's fourteen."""


class Kind(StrEnum):
    """What a file holds, in the words of messages."""

    SPEC = "spec"
    PLAN = "plan"
    RECORD = "record"
    VERIFICATION = "verification"
    BENCH = "bench"
    STEPS = "step times"
    COMPARISON = "comparison"
    DEVICE = "device file"
    CONFIG = "engine config"
    RECIPE = "recipe"


@cache
def schemas() -> Mapping[Kind, Mapping[str, Any]]:
    """The published schema of each kind that servespec writes; loaded where a file may be one."""
    from servespec.compiler.comparison_schema import COMPARISON_SCHEMA
    from servespec.compiler.facts.devices import DEVICE_SCHEMA
    from servespec.compiler.plan import PLAN_SCHEMA
    from servespec.compiler.record_schema import RECORD_SCHEMA
    from servespec.runtime.bench.results import BENCH_SCHEMA
    from servespec.runtime.step_times_document import STEP_TIMES_SCHEMA
    from servespec.runtime.verification_document import VERIFICATION_SCHEMA

    return {
        Kind.RECORD: RECORD_SCHEMA,
        Kind.PLAN: PLAN_SCHEMA,
        Kind.VERIFICATION: VERIFICATION_SCHEMA,
        Kind.BENCH: BENCH_SCHEMA,
        Kind.STEPS: STEP_TIMES_SCHEMA,
        Kind.COMPARISON: COMPARISON_SCHEMA,
        Kind.DEVICE: DEVICE_SCHEMA,
    }


def written_kind(data: Mapping[str, Any]) -> Kind | None:
    """The kind most of whose keys are there; of two alike the first, so a record is no plan."""
    likeness = {kind: _likeness(data, schema) for kind, schema in schemas().items()}
    kind = max(likeness, key=lambda one: likeness[one])
    return kind if likeness[kind] >= _LIKENESS else None


def _likeness(data: Mapping[str, Any], schema: Mapping[str, Any]) -> float:
    required = schema["required"]
    return sum(key in data for key in required) / len(required)


def kind_by_hand(data: Mapping[str, Any]) -> Kind:
    """A spec, unless nothing says so and the keys are a recipe's or the engine's flags."""
    if "servespec" in data or EXTENDS in data:
        return Kind.SPEC
    from servespec.compiler.command_line.recipe import is_recipe

    if is_recipe(data):
        return Kind.RECIPE
    engine = table(versions()[-1])
    flags = [engine.flag(f"--{key}") is not None for key in data]
    return Kind.CONFIG if flags and sum(flags) > len(flags) / 2 and "hardware" not in data else Kind.SPEC


_USES: Final[Mapping[Kind, str]] = {
    Kind.PLAN: "`servespec plan SPEC --against FILE` compares a spec with it",
    Kind.RECORD: "`servespec plan SPEC --measured FILE` plans with what it measured",
    Kind.STEPS: "`servespec plan SPEC --measured FILE` plans with what it measured",
    Kind.DEVICE: "a spec names it as `hardware: {gpu: {device: FILE}}`",
    Kind.CONFIG: "`servespec import --gpu NAME FILE` makes a spec of it",
    Kind.RECIPE: "`servespec import --gpu NAME FILE` makes a spec of it",
}


def use_of(kind: Kind) -> str:
    """What takes a file that is no spec."""
    return _USES.get(kind, "`servespec validate FILE` checks it")

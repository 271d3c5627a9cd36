"""What can be said of a spec without model facts, network or machine; `validate` is this and nothing more."""

from collections.abc import Iterator

from servespec.compiler import plan_rules
from servespec.compiler.engine_refusals import engine_refusals
from servespec.compiler.engine_settings import SettingsCheck, settings_findings, unclassified
from servespec.compiler.facts.engine_fields import EngineTable
from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.lower import STARTUP_PLAN_VARIABLE
from servespec.diagnostics import Diagnostic
from servespec.schema import spec_rules
from servespec.schema.capture_rules import capture_findings
from servespec.schema.source import SpecSource
from servespec.schema.spec import ServingSpec
from servespec.schema.speculative_rules import speculative_findings


def early_findings(
    spec: ServingSpec, source: SpecSource, table: EngineTable, *, allow_code: bool
) -> tuple[Diagnostic, ...]:
    """Everything that can be said without model facts, network or machine; limits only as far as written."""
    return (*spec_findings(spec, source, table, allow_code=allow_code), *engine_refusals(spec, source, table))


def spec_findings(
    spec: ServingSpec, source: SpecSource, table: EngineTable, *, allow_code: bool
) -> tuple[Diagnostic, ...]:
    """What is to be mended before the rest can be looked at, or can be said of the spec alone."""
    settings = SettingsCheck(spec, source, table, allow_code)
    scheduler = spec.scheduler
    return (
        *capture_findings(spec, source, scheduler.max_num_seqs, scheduler.max_num_batched_tokens),
        *speculative_findings(spec, source),
        *settings_findings(settings),
        *_incomplete(settings),
        *_not_available(spec, source),
        *_given_twice(spec, source),
        *_not_extended(spec, source),
    )


def _not_extended(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    """What is laid over its bases has no `extends` any more."""
    if spec.extends is not None:
        message = "the files that `extends` names are not read here"
        yield spec_rules.S226.at(source.place_of(("extends",)), message, "write the spec to a file")


def _not_available(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    """Fields of the format whose work is not there yet."""
    asked = [("remedies", name) for name, value in spec.remedies if value is True and name not in set(Remedy)]
    for path in asked:
        message = f"`{'.'.join(path)}` has no effect yet"
        yield plan_rules.R117.at(source.place_of_key(path), message, "delete it")


def _given_twice(spec: ServingSpec, source: SpecSource) -> Iterator[Diagnostic]:
    """A variable of the engine's that a remedy sets."""
    if spec.remedies.kv_from_measurement is True and STARTUP_PLAN_VARIABLE in spec.engine.env:
        place = source.place_of_key(("engine", "env", STARTUP_PLAN_VARIABLE))
        message = f"`{STARTUP_PLAN_VARIABLE}` is set by `remedies.kv_from_measurement`"
        yield spec_rules.S212.at(place, message, "delete one of the two")


def _incomplete(settings: SettingsCheck) -> Iterator[Diagnostic]:
    for name in unclassified(settings):
        section = "args" if name in settings.spec.engine.args else "env"
        place = settings.source.place_of_key(("engine", section, name))
        yield plan_rules.R115.at(place, f"`{name}` may change the plan in a way that is not modelled")

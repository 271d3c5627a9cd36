"""Checks of everything in a spec that goes to the engine by the engine's own names.

Open sections, ``engine.args`` and ``engine.env`` are held against the generated table of the engine version: names,
types, places, what changes the plan, what runs other code, and secrets.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler import plan_rules
from servespec.compiler.engine_homes import VARIABLE_HOMES, flag_home, own_field, section_fields
from servespec.compiler.environment import SECRET_VARIABLES
from servespec.compiler.facts.attention_workspaces import WORKSPACE_VARIABLE
from servespec.compiler.facts.engine_fields import EngineField, EngineFlag, EngineTable, Fault, Setting
from servespec.compiler.facts.model_traits import LONG_VARIABLE
from servespec.compiler.facts.unbudgeted import PROFILED_LOGITS_VARIABLE
from servespec.compiler.fault_help import fault_help
from servespec.compiler.memory.split import PARTITION_VARIABLE
from servespec.diagnostics import Diagnostic, Related, Rule
from servespec.schema import spec_rules as rules
from servespec.schema.called import meant_fields
from servespec.schema.nearest import nearest
from servespec.schema.parse import dotted, sections, shown, unknown_key
from servespec.schema.renamed import unread_variable_help
from servespec.schema.source import SpecPath, SpecSource
from servespec.schema.spec import OpenSection, ServingSpec

_COUNTED_VARIABLES = frozenset({PARTITION_VARIABLE, PROFILED_LOGITS_VARIABLE, WORKSPACE_VARIABLE, LONG_VARIABLE})
"""Variables whose whole effect is known: on memory, counted there, or which lengths the engine takes."""


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """What the checks need: the spec, where it was read, the engine's table, and the user's consent to run code."""

    spec: ServingSpec
    source: SpecSource
    table: EngineTable
    allow_code: bool


def settings_findings(check: SettingsCheck) -> Iterator[Diagnostic]:
    """All findings about settings that carry the engine's names."""
    for name, model in sections():
        section = getattr(check.spec, name)
        if issubclass(model, OpenSection) and section is not None:
            yield from _declared(check, name, section)
            yield from _section(check, name, model, section)
    yield from _remote_code(check)
    yield from _drafting_class(check)
    for key, value in check.spec.engine.args.items():
        yield from _argument(check, key, value)
    yield from _spelled_twice(check)
    for key, value in check.spec.engine.env.items():
        yield from _variable(check, key, value)


def unclassified(check: SettingsCheck) -> tuple[str, ...]:
    """Settings under ``engine`` that change the plan in a way that nobody has modelled; the plan is incomplete."""
    flags = ((key, check.table.flag(key)) for key in check.spec.engine.args)
    variables = ((key, check.table.variable(key)) for key in check.spec.engine.env)
    found = [key for key, flag in flags if flag and flag.plan_relevant is not False and flag_home(flag) is None]
    known = {*VARIABLE_HOMES, *_COUNTED_VARIABLES}
    found += [key for key, var in variables if var and var.plan_relevant is not False and key not in known]
    return tuple(found)


_NAMED_BY_PLUGINS = frozenset({("model", "quantization"), ("model", "load_format")})
"""Fields whose names plug-ins of the engine may add to, and whose case does not count.

Source: vllm/model_executor/layers/quantization/__init__.py: register_quantization_config;
vllm/model_executor/model_loader/__init__.py: register_model_loader.
"""
_MOST_LISTED = 12
_OWN_RULES: Mapping[SpecPath, Rule] = {
    ("speculative", "method"): plan_rules.R108,
    ("attention", "backend"): plan_rules.R101,
}


def _declared(check: SettingsCheck, name: str, section: OpenSection) -> Iterator[Diagnostic]:
    """Names among the values of our own fields, as the engine declares them; numbers have bounds of our own."""
    for key in type(section).model_fields:
        path, value = (name, key), getattr(section, key)
        field = own_field(name, key, check.table)
        if field is None or not isinstance(value, str) or not field.type.all_choices:
            continue
        is_open = path in _NAMED_BY_PLUGINS
        if check.table.value_faults(field.type.closed, value.lower() if is_open else value):
            yield _no_such_name(check, path, value, field.type.all_choices)
        elif not is_open:
            yield from _trust(check, path, field, value)


def _no_such_name(check: SettingsCheck, path: SpecPath, value: str, choices: tuple[Any, ...]) -> Diagnostic:
    names = tuple(choice for choice in choices if isinstance(choice, str))
    near = nearest(value, names, limit=1)
    listed = ", ".join(f"`{name}`" for name in names[:_MOST_LISTED]) + (" ..." if len(names) > _MOST_LISTED else "")
    rule = rules.S233 if path in _NAMED_BY_PLUGINS else _OWN_RULES.get(path, rules.S217)
    message = f"`{dotted(path)}`: vLLM {check.table.version} has no `{value}`"
    return rule.at(check.source.place_of(path), message, f"did you mean `{near[0]}`?" if near else f"it has {listed}")


def _section(check: SettingsCheck, name: str, model: type[OpenSection], section: OpenSection) -> Iterator[Diagnostic]:
    fields = {field.name: field for field in section_fields(model, check.table)}
    for key, value in section.engine_fields.items():
        path = (name, key)
        field = fields.get(key)
        if field is None:
            yield _unknown_field(check, path, model, fields)
        else:
            yield from _value(check, path, field, value)


def _unknown_field(
    check: SettingsCheck, path: SpecPath, model: type[OpenSection], fields: Mapping[str, EngineField]
) -> Diagnostic:
    """An engine's name that the section does not have, in the section's own names first."""
    own = nearest(str(path[-1]), (*model.model_fields, *fields), limit=1)
    finding = unknown_key(path, check.source)
    if finding.rule is not rules.S102 or not own or meant_fields(str(path[0]), str(path[-1])):
        return finding
    return rules.S102.at(finding.place, finding.message, f"did you mean `{own[0]}`?")


def _value(check: SettingsCheck, path: SpecPath, field: EngineField, value: Any) -> Iterator[Diagnostic]:
    for fault in check.table.field_faults(field, value):
        yield _engine_value(check, path, fault)
    yield from _trust(check, path, field, value)


def _engine_value(check: SettingsCheck, path: SpecPath, fault: Fault) -> Diagnostic:
    """At the value that is wrong, which may stand inside the field's; at a key where that is."""
    inner = (*path, *fault.path)
    place = check.source.place_of_key(inner) if fault.is_key else check.source.place_of(inner)
    return rules.S217.at(place, f"`{dotted(inner)}`: {fault.because}", fault_help(fault))


def _trust(check: SettingsCheck, path: SpecPath, setting: Setting, value: Any) -> Iterator[Diagnostic]:
    if setting.secret and value:
        known = setting.name if setting.name.isupper() else "an environment variable of the server's own"
        message = f"`{dotted(path)}` holds a secret"
        help_text = f"delete it and set `{SECRET_VARIABLES.get(setting.name, known)}` in the shell"
        yield rules.S214.at(check.source.place_of_key(path), message, help_text)
    if setting.runs_code(value) and not check.allow_code:
        message = f"`{dotted(path)}` makes the engine run code from elsewhere: {shown(value)}"
        yield rules.S213.at(check.source.place_of_key(path), message, "pass `--allow-code` if you trust that code")


def _remote_code(check: SettingsCheck) -> Iterator[Diagnostic]:
    model = check.spec.model
    if not model.trust_remote_code:
        return
    place = check.source.place_of_key(("model", "trust_remote_code"))
    if not check.allow_code:
        message = "`model.trust_remote_code` makes the engine run the model repository's code"
        yield rules.S213.at(place, message, "pass `--allow-code` if you trust that code")
    if not _is_commit(model.revision):
        message = "`model.trust_remote_code` runs whatever the repository holds at start"
        yield rules.S213.at(place, message, "pin `model.revision` to a commit of 40 hex digits")


def _drafting_class(check: SettingsCheck) -> Iterator[Diagnostic]:
    """Without a method, the engine takes a dotted name for a class to import.

    Source: vllm/config/speculative.py: SpeculativeConfig._is_custom_proposer_path.
    """
    section = check.spec.speculative
    if section is None or section.model is None or section.method is not None or check.allow_code:
        return
    parts = section.model.split(".")
    if len(parts) > 1 and all(part.isidentifier() for part in parts):
        message = f"`speculative.model` makes the engine import the class {shown(section.model)}"
        help_text = "pass `--allow-code` if you trust that code, or write `./` before the name of a folder"
        yield rules.S213.at(check.source.place_of(("speculative", "model")), message, help_text)


def _is_commit(revision: str | None) -> bool:
    return revision is not None and len(revision) == 40 and set(revision) <= set("0123456789abcdef")


def _argument(check: SettingsCheck, key: str, value: Any) -> Iterator[Diagnostic]:
    path = ("engine", "args", key)
    flag = check.table.flag(key)
    if flag is None:
        yield _unknown_flag(check, path, key)
        return
    home = flag_home(flag)
    if flag.plan_relevant is not False and home is not None:
        message = f"`{key}` has a field of its own"
        yield rules.S212.at(check.source.place_of_key(path), message, f"write `{home}`")
        return
    # A reason quotes the value, which must not happen to a secret.
    if not flag.secret and not _switched_off(flag, value):
        for fault in check.table.value_faults(flag.type, value):
            yield _engine_value(check, path, fault)
    yield from _trust(check, path, flag, value)


def _spelled_twice(check: SettingsCheck) -> Iterator[Diagnostic]:
    """One flag under two spellings, of which the engine takes the last."""
    first: dict[str, str] = {}
    for key in check.spec.engine.args:
        flag = check.table.flag(key)
        if flag is None:
            continue
        before = first.setdefault(flag.name, key)
        if before != key:
            related = [Related(f"`{before}`", check.source.place_of_key(("engine", "args", before)))]
            message = f"`{key}` and `{before}` are the same flag"
            place = check.source.place_of_key(("engine", "args", key))
            yield rules.S206.at(place, message, "delete one of the two", related)


def _switched_off(flag: EngineFlag, value: Any) -> bool:
    """null leaves a flag out."""
    return value is None and flag.default is None


def _unknown_flag(check: SettingsCheck, path: SpecPath, key: str) -> Diagnostic:
    finding = unknown_key(path, check.source)
    if finding.rule is rules.S108:
        return finding
    near = nearest(key, _spellings(check.table, key), limit=1)
    help_text = f"did you mean `{near[0]}`?" if near else "`vllm serve --help=all` lists the flags"
    message = f"vLLM {check.table.version} has no flag `{key}`"
    if not key.strip("-_ "):
        message, help_text = "a flag has no name", "write the flag's name, or delete the line"
    return rules.S215.at(check.source.place_of_key(path), message, help_text)


def _spellings(table: EngineTable, key: str) -> Iterator[str]:
    """Long names as people write them; the negated ones where the key is negated."""
    negated = key.lstrip("-").replace("_", "-").startswith("no-")
    for name in table.flags():
        flag = table.flag(name)
        dashed = name.replace("_", "-")
        if negated and flag and flag.negation:
            yield f"no-{dashed}"
        elif not negated:
            yield dashed


def _variable(check: SettingsCheck, key: str, value: Any) -> Iterator[Diagnostic]:
    path = ("engine", "env", key)
    place = check.source.place_of_key(path)
    variable = check.table.variable(key)
    if variable is None:
        if not key.strip():
            yield rules.S216.at(place, "a variable has no name", "write its name, or delete the line")
            return
        help_text = unread_variable_help(key, value, nearest(key, check.table.variables(), limit=1))
        yield rules.S216.at(place, f"vLLM {check.table.version} reads no variable `{key}`", help_text)
        return
    home = VARIABLE_HOMES.get(key)
    if home is not None:
        yield rules.S212.at(place, f"`{key}` has a field of its own", f"write `{home}`")
        return
    yield from _trust(check, path, variable, value)

"""Where each setting goes in a spec, and what the engine makes of two spellings of one setting."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.config_value import accepted
from servespec.compiler.command_line.findings import refused, secret
from servespec.compiler.command_line.settings import Setting
from servespec.compiler.command_line.tiers import tiers_of
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.engine_homes import WHOLE_CONFIGS, config_home, flag_home
from servespec.compiler.facts.engine_fields import EngineField, EngineTable, Fault, bound_faults
from servespec.compiler.facts.short_forms import AUTO_FLAG
from servespec.diagnostics import Diagnostic, Related
from servespec.schema.nearest import nearest
from servespec.schema.parse import section_at
from servespec.schema.renamed import renamed_field

Path = tuple[str, ...]

_ARGS: Path = ("engine", "args")
_OVERRIDING = ("moe_backend", "linear_backend", "sparse_indexer_topk_backend", "monokernel")
"""Flags that replace a key of `--kernel-config` without a word: EngineArgs.create_engine_config."""
_LORA_SWITCH = "enable_lora"
_TIERS = "num_speculative_tokens_per_batch_size"
_PASSED_ON = ("additional_config",)
"""Flags whose home is not a field."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A value and its path in a spec; ``spelled`` names it in messages."""

    path: Path
    value: Any
    spelled: str
    word: Word
    overrides: bool = False


def carried(settings: Mapping[str, Setting], table: EngineTable, found: list[Diagnostic]) -> Iterable[Carried]:
    """Each setting once, on its path; what cannot be carried goes to ``found``."""
    taken: dict[Path, Carried] = {}
    for one in (*_of_configs(settings, table, found), *_of_flags(settings, table, found)):
        before = taken.get(one.path)
        taken[one.path] = one if before is None else _one_of(before, one, found)
    return _without_unused_lora(taken, found).values()


def _one_of(before: Carried, one: Carried, found: list[Diagnostic]) -> Carried:
    """Which of a config's key and a flag the engine takes."""
    related = [Related(f"{before.spelled} is the other", before.word.place)]
    if one.overrides:
        message = f"{one.spelled} replaces {before.spelled}"
        found.append(rules.S309.at(one.word.place, message, "delete one of them", related))
        return one
    message = f"vLLM refuses {one.spelled} beside {before.spelled}"
    found.append(rules.S308.at(one.word.place, message, "delete one of them", related))
    return before


# Whole configs


def _of_configs(settings: Mapping[str, Setting], table: EngineTable, found: list[Diagnostic]) -> Iterator[Carried]:
    for name in WHOLE_CONFIGS:
        setting = settings.get(name)
        if setting is not None:
            yield from _of_config(setting, table, found)


def _of_config(setting: Setting, table: EngineTable, found: list[Diagnostic]) -> Iterator[Carried]:
    """The keys of one config, each to its field."""
    config, whole = _config_class(setting, table), setting.word
    if not isinstance(setting.value, dict):
        found.append(rules.S305.at(whole.place, f"{whole.flag}: expected a mapping", 'write `{"key": value}`'))
        return
    yield Carried((WHOLE_CONFIGS[setting.flag.name],), {}, whole.flag, whole)
    fields = table.config(config)
    for key, written in setting.value.items():
        word = setting.keys.get(key, whole)
        name = key.replace("-", "_") if setting.flag.name == "speculative_config" else key
        field = fields.get(name)
        full = f"{setting.flag.long}.{key}"
        spelled = f"{quoted(full)}{word.where}"
        if field is None or field.internal:
            found.append(_unknown_key(spelled, name, config, word, table))
            continue
        value = accepted(field.type, written, table)
        fault = _field_fault(field, value, full, word, table)
        if fault is not None:
            found.append(fault)
        elif value is not None:
            yield _in_home(field, value, spelled, word)


def _config_class(setting: Setting, table: EngineTable) -> str:
    """The config class that a whole-config flag makes; a plain mapping to the parser may be a class all the same."""
    return setting.flag.type.config or table.config("VllmConfig")[setting.flag.name].type.config


def _unknown_key(spelled: str, key: str, config: str, word: Word, table: EngineTable) -> Diagnostic:
    section = section_at((config_section(config),))
    if section is not None and key in section.model_fields:
        help_text = f"vLLM {table.version} has no such field; a spec has, as `{config_section(config)}.{key}`"
        return rules.S302.at(word.place, f"{spelled} is a field of servespec, not of vLLM", help_text)
    replacement = renamed_field(key)
    if replacement is not None:
        return rules.S303.at(word.place, f"{spelled} is {replacement.what}", replacement.help)
    known = [name for name, field in table.config(config).items() if not field.internal]
    near = nearest(key, known, limit=1)
    help_text = f"did you mean `{near[0]}`?" if near else f"delete it: `{config}` has no such field"
    return rules.S302.at(word.place, f"vLLM {table.version} knows no {spelled}", help_text)


def config_section(config: str) -> str:
    """The section whose fields a config class has."""
    return (config_home(config, "") or "").partition(".")[0]


def _field_fault(field: EngineField, value: Any, name: str, word: Word, table: EngineTable) -> Diagnostic | None:
    if field.secret and value:
        return secret(name, field.name, word)
    return next((refused(name, word, fault) for fault in table.field_faults(field, value)), None)


def _in_home(field: EngineField, value: Any, spelled: str, word: Word) -> Carried:
    home = config_home(field.config, field.name)
    assert home is not None, field.name
    if field.name == _TIERS:
        tiers = tiers_of(value)
        if tiers is None:
            return Carried(("speculative", _TIERS), value, spelled, word)
        return Carried(("speculative", "dynamic"), tiers, spelled, word)
    return Carried(tuple(home.split(".")), _as_the_spec_spells(field, value), spelled, word)


def _as_the_spec_spells(field: EngineField, value: Any) -> Any:
    """A spec has one spelling of a mode; the engine takes any case and numbers."""
    if (field.config, field.name) == ("CompilationConfig", "cudagraph_mode"):
        kind = next(one for one in field.type.members if one.choices)
        return kind.choices[kind.values.index(value)] if value in kind.values else value.upper()
    return value


# Single flags


def _of_flags(settings: Mapping[str, Setting], table: EngineTable, found: list[Diagnostic]) -> Iterator[Carried]:
    for name, setting in settings.items():
        if name not in WHOLE_CONFIGS and name not in ("model", _LORA_SWITCH):
            yield from _of_flag(setting, table, found)
    switch = settings.get(_LORA_SWITCH)
    if switch is not None and switch.value:
        yield Carried(("lora",), {}, switch.word.flag, switch.word)


def _of_flag(setting: Setting, table: EngineTable, found: list[Diagnostic]) -> Iterator[Carried]:
    flag, word, value = setting.flag, setting.word, setting.value
    fault = _fault(setting, table)
    if fault is not None:
        found.append(refused(word.name, word, fault))
        return
    path = _path(setting)
    if flag.name == AUTO_FLAG.value and value < 0:
        message = f"{word.flag}: a spec has no form for `auto`, the longest context that fits the memory"
        found.append(rules.S316.at(word.place, message, "write the length that the engine logs at its start"))
        return
    if flag.name == "served_model_name" and len(value) == 1:
        path, value = ("model", "served_model_name"), value[0]
    unset = flag.name in _OVERRIDING and value in ("auto", False)
    if not unset:
        yield Carried(path, value, word.flag, word, overrides=flag.name in _OVERRIDING)


def _fault(setting: Setting, table: EngineTable) -> Fault | None:
    """Why the engine will not take the value, where its parser does."""
    flag, value = setting.flag, setting.value
    found = table.value_faults(flag.type, value)
    if not found and flag.config and flag.field and table.has_config(flag.config):
        field = table.config(flag.config).get(flag.field)
        found = bound_faults(field, value) if field is not None else ()
    return next(iter(found), None)


def _path(setting: Setting) -> Path:
    flag = setting.flag
    home = None if flag.name in (*_PASSED_ON, "served_model_name") else flag_home(flag)
    return (*_ARGS, flag.long.removeprefix("--")) if home is None else tuple(home.split("."))


def _without_unused_lora(taken: dict[Path, Carried], found: list[Diagnostic]) -> dict[Path, Carried]:
    """Without `--enable-lora` the engine makes no LoRA config, so its other flags do nothing."""
    if ("lora",) in taken:
        return taken
    unused = [one for path, one in taken.items() if path[0] == "lora"]
    for one in unused:
        message = f"{one.spelled} has no effect without `--enable-lora`"
        found.append(rules.S313.at(one.word.place, message, "add `--enable-lora`, or delete it"))
    return {path: one for path, one in taken.items() if path[0] != "lora"}


def nested(taken: Iterable[Carried]) -> dict[str, Any]:
    """Mappings from paths; a section that stands for itself may be empty."""
    data: dict[str, Any] = {}
    for one in taken:
        here = data
        for step in one.path[:-1]:
            here = here.setdefault(step, {})
        if one.value != {} or one.path[-1] not in here:
            here[one.path[-1]] = one.value
    return data

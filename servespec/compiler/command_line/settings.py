"""From parsed flags to settings, each with the value that counts: the last one given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.findings import refused, secret
from servespec.compiler.command_line.flag_value import NotTakenError, value_of
from servespec.compiler.command_line.parser import Given
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.facts.engine_fields import EngineFlag, EngineTable, Form
from servespec.diagnostics import Diagnostic

_CONFIG_FILE = "config"


@dataclass(frozen=True, slots=True)
class Setting:
    """A flag with the value that the engine gives it; ``word`` spells it, ``keys`` the keys of a mapping."""

    flag: EngineFlag
    word: Word
    value: Any
    keys: Mapping[str, Word] = field(default_factory=dict)


def settings_of(given: Sequence[Given], table: EngineTable, found: list[Diagnostic]) -> dict[str, Setting]:
    """Settings by the flag's name, in the order written; what is lost or refused goes to ``found``."""
    settings: dict[str, Setting] = {}
    last: dict[str, Given] = {}
    for one in given:
        name = one.flag.name
        before = last.get(name)
        if before is not None and one.flag.form is not Form.APPEND:
            found += _repeated(before, one)
            found += _lost_fault(settings.get(name), table)
        last[name] = one
        setting = _setting(one, table, found)
        if setting is not None:
            settings[name] = _appended(settings.get(name), setting)
        elif one.flag.form is not Form.APPEND:
            settings.pop(name, None)
    return settings


def _appended(before: Setting | None, setting: Setting) -> Setting:
    if before is None or setting.flag.form is not Form.APPEND:
        return setting
    return replace(setting, value=[*before.value, *setting.value])


def _setting(one: Given, table: EngineTable, found: list[Diagnostic]) -> Setting | None:
    fault = _not_carried(one)
    if fault is not None:
        found.append(fault)
        return None
    try:
        value = value_of(one, table)
    except NotTakenError as error:
        # A value that is not known is told as that, and cannot be wrong.
        if not any(word.unset for word in (one.word, *one.values)):
            found.append(refused(one.word.name, one.word, error.fault))
        return None
    keys = one.values[0].keys if one.values else {}
    return None if value is None else Setting(one.flag, one.word, value, keys)


def _not_carried(one: Given) -> Diagnostic | None:
    """A secret, or the config file that the engine passes over."""
    word = one.word
    if one.flag.secret:
        return secret(word.name, one.flag.name, word)
    if one.flag.name == _CONFIG_FILE:
        name = one.values[0].text
        message = f"vLLM reads no file for {word.flag} joined by `=`"
        return rules.S313.at(word.place, message, f"write `--config {quoted(name)[1:-1]}`, in two words")
    return None


def _repeated(before: Given, one: Given) -> Iterator[Diagnostic]:
    """A flag of the command line overrides its config file without a word; a lost JSON value is said anyway."""
    dotted = [bool(given.values) and given.values[0].config is not None for given in (before, one)]
    if dotted[1]:
        lost = "dotted keys" if dotted[0] else "value"
        message = f"the dotted keys from {one.word.flag} on replace the whole {lost} of {before.word.flag}"
        yield rules.S309.at(one.word.place, message, "write all keys in one form, under one spelling")
    elif before.word.place.file == one.word.place.file:
        message = f"{before.word.flag} is given again: {one.word.flag} wins"
        yield rules.S307.at(before.word.place, message, "delete one of them")


def _lost_fault(lost: Setting | None, table: EngineTable) -> Iterator[Diagnostic]:
    """The engine checks a config that is lost as well."""
    if lost is None or not lost.flag.type.config:
        return
    for fault in table.value_faults(lost.flag.type, lost.value)[:1]:
        yield refused(lost.word.name, lost.word, fault)

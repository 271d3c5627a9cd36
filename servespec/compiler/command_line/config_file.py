"""The words that `--config FILE` stands for, and where the engine puts them.

Source: vllm/utils/argparse_utils.py: FlexibleArgumentParser._pull_args_from_config and load_config_file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.program import Entry
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.facts.engine_fields import EngineFlag, EngineTable, Form
from servespec.diagnostics import Diagnostic, SpecError, has_errors
from servespec.schema.source import SpecSource, read_source

_OPTION = "--config"
_NAME_THE_MODEL = "write the model right after `vllm serve`; `import` takes `--set model.id=NAME` too"
_EXTENSIONS = (".yaml", ".yml")
# The engine reads YAML 1.1, where these unquoted words are booleans.
_OLD_BOOLEANS: Mapping[str, bool] = {"yes": True, "on": True, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a config file depends on: how the parser is reached, the engine's flags, the files' texts."""

    entry: Entry
    table: EngineTable
    config_text: Mapping[str, str]


def with_config_file(words: Sequence[Word], reading: Reading, found: list[Diagnostic]) -> list[Word]:
    """``words`` with those of the config file after the model and before all others; faults go to ``found``."""
    at = next((i for i, word in enumerate(words) if word.text == _OPTION), None)
    if at is None:
        return list(words)
    rest = [*words[:at], *words[at + 2 :]]
    found += (_twice(word) for word in rest if word.text == _OPTION)
    before = len(found)
    from_file = _file_words(words, at, reading, found)
    readable = not has_errors(found[before:])
    model_first = bool(rest) and at > 0 and not rest[0].text.startswith("-")
    has_model = model_first or any(word.text == "--model" for word in from_file)
    if reading.entry is Entry.SERVE and readable and not has_model:
        message = f"neither the words before {words[at].named} nor its file names a model"
        found.append(rules.S311.at(words[at].place, message, _NAME_THE_MODEL))
    return [*rest[:1], *from_file, *rest[1:]] if model_first else [*from_file, *rest]


def misses_model(finding: Diagnostic) -> bool:
    """Whether a finding says that no model is named, neither to the engine nor in its config file."""
    return finding.rule is rules.S314 or (finding.rule is rules.S311 and finding.help == _NAME_THE_MODEL)


def _twice(word: Word) -> Diagnostic:
    return rules.S311.at(word.place, f"{word.named} names a second file", "put both files into one")


def _file_words(words: Sequence[Word], at: int, reading: Reading, found: list[Diagnostic]) -> list[Word]:
    name = words[at + 1] if at + 1 < len(words) else None
    fault = _fault(words[at], name, reading)
    if name is None or fault is not None:
        found += () if fault is None else (fault,)
        return []
    try:
        source = read_source(reading.config_text[name.text], name.text)
    except SpecError as error:
        found += error.diagnostics
        return []
    return [word for key, value in source.data.items() for word in _key_words(source, key, value, reading, found)]


def _fault(option: Word, name: Word | None, reading: Reading) -> Diagnostic | None:
    if name is None:
        return rules.S311.at(option.place, f"{option.named} names no file", "write the file's name after it")
    if not name.text.endswith(_EXTENSIONS):
        message = f"{name.named} is not a YAML file by its name"
        return rules.S311.at(name.place, message, "name it `.yaml` or `.yml`: the engine refuses others")
    if name.text not in reading.config_text:
        return rules.S311.at(name.place, f"the file {name.named} cannot be read", "check its path")
    return None


def _key_words(source: SpecSource, key: str, value: Any, reading: Reading, found: list[Diagnostic]) -> Iterator[Word]:
    place = source.place_of_key((key,))
    flag = reading.table.flag(f"--{key}")
    value = _boolean_of(flag, value)
    texts = _texts(key, value, flag, reading.entry)
    if not texts and _is_lost(flag, value):
        message = f"vLLM drops `{key}: {'[]' if value == [] else 'false'}`"
        found.append(rules.S312.at(place, message, _say_it_instead(flag)))
    for text in texts:
        yield Word(text, place)


def _boolean_of(flag: EngineFlag | None, value: Any) -> Any:
    takes_boolean = flag is not None and flag.form in (Form.BOOLEAN, Form.SWITCH)
    return _OLD_BOOLEANS.get(value.lower(), value) if takes_boolean and isinstance(value, str) else value


def _texts(key: str, value: Any, flag: EngineFlag | None, entry: Entry) -> tuple[str, ...]:
    """What the engine makes of one line."""
    name = f"--{key}"
    if value is True:
        return (name,)
    if value is False:
        negation = f"--no-{key}"
        known = entry is Entry.API_SERVER and flag is not None and negation in flag.negations
        return (negation,) if known else ()
    if isinstance(value, list):
        return (name, *map(str, value)) if value else ()
    return (name, json.dumps(value) if isinstance(value, dict) else str(value))


def _is_lost(flag: EngineFlag | None, value: Any) -> bool:
    """Whether dropping the line changes anything."""
    return flag is None or flag.default != value


def _say_it_instead(flag: EngineFlag | None) -> str:
    if flag is None or flag.negation is None:
        return "delete the line"
    return f"write {quoted(flag.negation)} on the command line"

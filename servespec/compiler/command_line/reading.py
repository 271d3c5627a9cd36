"""Reading a whole command line: program, config file, flags, homes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.carrying import Carried, carried, nested
from servespec.compiler.command_line.config_file import Reading, with_config_file
from servespec.compiler.command_line.findings import uncertain
from servespec.compiler.command_line.parser import parse
from servespec.compiler.command_line.program import Entry, Program, read_program
from servespec.compiler.command_line.rewriting import normalised, without_dots
from servespec.compiler.command_line.settings import Setting, settings_of
from servespec.compiler.command_line.variables import carried_variables
from servespec.compiler.command_line.word import Word, typed_words
from servespec.compiler.facts.engine_fields import EngineTable, versions
from servespec.compiler.facts.engine_fields import table as engine_table
from servespec.compiler.parallel_ranks import ranks
from servespec.diagnostics import COMMAND_LINE, Diagnostic, Place, in_file_order
from servespec.schema.source import SpecSource
from servespec.schema.spec import ServingSpec

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - what the engine binds where nobody says otherwise
_MODEL_FLAG = re.compile(r"--model(=.+|$)", re.DOTALL)
_CONFIG_FLAG = re.compile(r"--config(=.+|$)", re.DOTALL)
_NAME_FLAG = re.compile(r"--served[-_]model[-_]name(=.+|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """``data`` is a spec without `hardware`; ``leftovers`` is what it does not say, and why."""

    data: dict[str, Any]
    leftovers: tuple[Diagnostic, ...]


def read_command_line(words: Sequence[str], table: EngineTable, config_text: Mapping[str, str]) -> CommandLine:
    """The spec that says what ``words``, as typed, say to the engine of ``table``.

    The release that a container's image names goes before ``table``.  ``config_text`` holds the text of a `--config`
    file by its name as written.  Raises SpecError where no word starts a server.
    """
    return read_words(typed_words(words), table, config_text)


def read_words(words: Sequence[Word], table: EngineTable, config_text: Mapping[str, str]) -> CommandLine:
    """The same of words that stand in a file."""
    program = read_program(words)
    found = [one for wrapper in program.wrappers for one in (*wrapper.findings(), *wrapper.unknown_release())]
    found += (one for word in program.arguments for one in uncertain(word))
    release = _release(program)
    table = engine_table(release.value) if release else table
    flags = read_flags(program, Reading(program.entry, table, config_text), found)
    taken = [
        _model(flags, program.entry, table, found),
        *carried(flags.settings, table, found),
        *carried_variables(program, table, found),
        *((release,) if release else ()),
    ]
    data = _in_spec_order({"servespec": 1, **nested(taken)})
    found += (one for wrapper in program.wrappers for one in wrapper.gpu_findings(ranks(data.get("parallel", {}))))
    return CommandLine(data, in_file_order(found))


def _release(program: Program) -> Carried | None:
    """The release that a container's image names, where its flags are known."""
    named = (wrapper.release() for wrapper in program.wrappers)
    image, release = next(filter(None, named), (None, ""))
    if image is None or release not in versions():
        return None
    return Carried(("engine", "version"), release, image.named, image)


@dataclass(frozen=True, slots=True)
class Flags:
    """What the engine's own parser makes of a command line: a positional model and the values of flags by name."""

    positional: Word | None
    settings: Mapping[str, Setting]


def read_flags(program: Program, reading: Reading, found: list[Diagnostic]) -> Flags:
    """The arguments of ``program`` as the engine parses them; what it would stop at or lose goes to ``found``."""
    arguments = program.arguments
    if program.entry is Entry.SERVE:
        arguments = _model_first(arguments, found)
    arguments = tuple(with_config_file(arguments, reading, found))
    parsed = parse(without_dots(normalised(arguments), found), reading.table)
    found += parsed.findings
    return Flags(parsed.positional, settings_of(parsed.given, reading.table, found))


def _model_first(words: tuple[Word, ...], found: list[Diagnostic]) -> tuple[Word, ...]:
    """The words with `--model NAME` turned into the positional model, as `vllm serve` does.

    Source: vllm/utils/argparse_utils.py: FlexibleArgumentParser.parse_args.
    """
    at = next((i for i, word in enumerate(words) if _MODEL_FLAG.match(word.text)), None)
    if at is None:
        found += _name_before_model(words)
        return words
    joined = words[at].text != "--model"
    if not joined and at + 1 == len(words):
        return words
    model = words[at].saying(words[at].text.removeprefix("--model=")) if joined else words[at + 1]
    return (model, *words[:at], *words[at + (1 if joined else 2) :])


def _name_before_model(words: tuple[Word, ...]) -> list[Diagnostic]:
    """A served name in front of the model would take the model for a second name, so the engine refuses it."""
    if not words or not words[0].text.startswith("-") or any(_CONFIG_FLAG.match(word.text) for word in words):
        return []
    names = [word for word in words if _NAME_FLAG.match(word.text)]
    message = "vLLM wants the model before {}"
    return [rules.S306.at(one.place, message.format(one.flag), "write `vllm serve MODEL ...`") for one in names[:1]]


def _model(flags: Flags, entry: Entry, table: EngineTable, found: list[Diagnostic]) -> Carried:
    """The positional model, else `--model`, else the engine's default."""
    path, flag, word = ("model", "id"), flags.settings.get("model"), flags.positional
    if word is not None and entry is Entry.SERVE:
        return Carried(path, word.text, word.named, word)
    if word is not None:
        message = f"the API server's module reads no model from {word.named}"
        found.append(rules.S313.at(word.place, message, "write `--model` before it"))
    if flag is not None:
        return Carried(path, flag.value, flag.word.flag, flag.word)
    default = table.flag("model")
    assert default is not None
    place = Place(COMMAND_LINE)
    # A fault of the file says already that there is no model, or that it is not known.
    if not any(one.rule is rules.S311 for one in found):
        found.append(rules.S314.at(place, f"no model is named, so vLLM serves `{default.default}`", "name the model"))
    return Carried(path, default.default, "`--model`", Word("--model", place))


def as_it_listens(command: CommandLine) -> CommandLine:
    """With the address that the engine binds by itself, every one of the machine, where the line names none.

    Source: vllm/entrypoints/launchers/launcher.py: setup_server.
    """
    serve = command.data.get("serve", {})
    has_socket = "uds" in command.data.get("engine", {}).get("args", {})
    if "host" in serve or has_socket:
        return command
    return replace(command, data=_in_spec_order({**command.data, "serve": {"host": EVERY_ADDRESS, **serve}}))


def _in_spec_order(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in ServingSpec.model_fields if name in data}


def command_line_source(command: CommandLine, gpu: str, count: int) -> SpecSource:
    """The spec of a command line on a machine of ``count`` devices named ``gpu``; its places name no lines."""
    data = _in_spec_order({**command.data, "hardware": {"gpu": gpu, "count": count}})
    return SpecSource(COMMAND_LINE, json.dumps(data, indent=1), data)

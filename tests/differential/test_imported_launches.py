"""What an imported spec launches against what its command line launched, both read by the engine's own parser.

Random lines, and the commands of public recipes where those are at hand.  The model's `config.json` is a stand-in, so
what its own rules refuse is counted and left out.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from servespec.compiler.command_line.file_commands import server_commands
from servespec.compiler.command_line.program import Entry, read_program
from servespec.compiler.command_line.server_command import ServerCommand
from servespec.compiler.command_line.tiers import tiers_of
from servespec.compiler.command_line.word import typed_words
from servespec.compiler.engine_homes import VARIABLE_HOMES, WHOLE_CONFIGS, flag_home
from servespec.compiler.facts import engine_fields as facts
from servespec.compiler.pipeline import compile_spec
from servespec.diagnostics import COMMAND_LINE, Place, Severity, SpecError, has_errors
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.importing import Import, imported
from servespec.schema.source import read_source
from tests.differential.engine_process import PYTHON, run
from tests.differential.test_command_line_parser import ENGINES, PROGRAMS, answers, lines, same
from tests.plans import MODELS, REPOSITORY

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with torch"),
    pytest.mark.usefixtures("quiet_shell"),
]

VERSION = "0.33.0"
RECIPES = REPOSITORY.parent / "shared" / "cases" / "recipes"
STAND_INS = Options(
    model_config=MODELS / "qwen3-8b" / "config.json",
    draft_config=MODELS / "eagle3-draft" / "config.json",
    allow_code=True,
)

NOT_COMPARED = {"model_tag", "model", "config", "subparser", "dispatch_function"}
PINNED = {"revision", "max_num_seqs", "max_num_batched_tokens", "port", "cudagraph_metrics"}
"""Flags that every launch line names, so that nothing is left to a default."""
PINNED_KEYS = {
    "attention_config": {"backend"},
    "speculative_config": {"method", "num_speculative_tokens", "num_speculative_tokens_per_batch_size"},
    "compilation_config": {"cudagraph_mode"},
}
"""Keys of configs that it names as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A command line, and that of the spec that it was imported to."""

    words: tuple[str, ...]
    entry: str
    again: tuple[str, ...]
    env: dict[str, str]
    variables: dict[str, str]
    leftover: frozenset[str]


def launch_of(done: Import) -> tuple[tuple[str, ...], dict[str, str]]:
    """Raises SpecError where the spec is refused."""
    plan = compile_spec(compile_request(read_source(done.text, "spec.yaml"), STAND_INS))
    program = [word for word in plan.lowered.argv if word != plan.resolution.request.spec.model.id][:2]
    assert program == ["vllm", "serve"]
    return plan.lowered.argv[2:], dict(plan.lowered.env)


def leftover_flags(done: Import) -> frozenset[str]:
    """The flags that findings name; those say that they are not carried, or have no effect."""
    named = {word.replace("_", "-") for one in done.leftovers for word in re.findall(r"`(-[\w-]+)", one.message)}
    table = facts.table(VERSION)
    flags = (table.flag(name) for name in table.flags())
    return frozenset(flag.name for flag in flags if flag and any(flag.long.startswith(word) for word in named))


def launched(command: ServerCommand, outcomes: Counter[str]) -> Launched | None:
    """None, and counted, for what is no launch: words that the engine refuses, and specs that are refused."""
    # Remote code, which many recipes let run, is taken at a pinned revision alone.
    settings = (f"engine.version={VERSION}", f"model.revision='{'0' * 40}'")
    done = imported(command, "h200", None, settings if command.place.file != COMMAND_LINE else settings[:1])
    if has_errors(done.leftovers):
        outcomes["refused by the engine's parser"] += 1
        return None
    try:
        again, env = launch_of(done)
    except SpecError as error:
        codes = sorted({one.code for one in error.diagnostics if one.severity is Severity.ERROR})
        outcomes[f"spec refused: {' '.join(codes)}"] += 1
        return None
    outcomes["launched"] += 1
    program = read_program(command.words)
    return Launched(
        words=tuple(word.text for word in program.arguments),
        entry="serve" if program.entry is Entry.SERVE else "api_server",
        again=again,
        env=env,
        variables={name: value for word, name, value in program.variables if not word.unset},
        leftover=leftover_flags(done),
    )


@functools.cache
def random_launches() -> tuple[tuple[Launched, ...], Counter[str]]:
    outcomes: Counter[str] = Counter()
    return tuple(_of_random_lines(outcomes)), outcomes


def _of_random_lines(outcomes: Counter[str]) -> Iterator[Launched]:
    for one, real in zip(lines(VERSION), answers(VERSION)["answers"], strict=True):
        # A file of the engine's parser stands in its own folder; here its text is what matters, not its name.
        if "values" not in real or one["files"]:
            continue
        words = typed_words([*PROGRAMS[one["entry"]], *one["words"]])
        found = launched(ServerCommand("a line", Place(COMMAND_LINE), words), outcomes)
        if found is not None:
            yield found


@functools.cache
def recipe_launches() -> tuple[tuple[Launched, ...], Counter[str]]:
    if not RECIPES.is_dir():
        pytest.skip("no recipes at hand")
    outcomes: Counter[str] = Counter()
    return tuple(_of_recipes(outcomes)), outcomes


def _of_recipes(outcomes: Counter[str]) -> Iterator[Launched]:
    for path in sorted(RECIPES.glob("*.yaml")):
        for command in server_commands(path.read_bytes(), str(path)):
            found = launched(command, outcomes)
            if found is not None:
                yield found


def parsed(launches: tuple[Launched, ...]) -> Iterator[tuple[Launched, dict[str, Any], dict[str, Any]]]:
    """The engine's own values of both lines."""
    root = ENGINES / f"vllm-{VERSION}"
    if not root.is_dir():
        pytest.skip(f"no .engines/vllm-{VERSION}")
    asked = [{"words": one.words, "entry": one.entry, "files": {}} for one in launches]
    asked += [{"words": one.again, "entry": "serve", "files": {}} for one in launches]
    answer = run("real_command_line.py", root, json.dumps(asked))["answers"]
    for one, before, after in zip(launches, answer[: len(launches)], answer[len(launches) :], strict=True):
        assert "values" in before, (one, before)
        assert "values" in after, (one, after)
        yield one, before["values"], after["values"]


def differences(one: Launched, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Values of the first line that the second does not have."""
    defaults = answers(VERSION)["defaults"]
    old, new = folded(before, defaults), folded(after, defaults)
    old["host"], new["host"] = address_of(before), address_of(after)
    lost = {}
    for name, value in old.items():
        if name in NOT_COMPARED or name in one.leftover or (name in PINNED and value == defaults.get(name)):
            continue
        rest = _without_pinned(one, name, value, new[name])
        if rest != ({}, {}):
            lost[name] = rest
    return lost


def address_of(values: dict[str, Any]) -> str:
    """Where a server listens: vllm/entrypoints/launchers/launcher.py: setup_server."""
    return "" if values["uds"] else values["host"] or "0.0.0.0"  # noqa: S104 - what is bound where no host is named


def folded(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Flags that stand for a key of a config, such as `--attention-backend`, put into it."""
    table, found = facts.table(VERSION), dict(values)
    whole = {section: name for name, section in WHOLE_CONFIGS.items()}
    for name in values:
        flag = table.flag(name)
        section, _, key = ((flag_home(flag) if flag else None) or "").partition(".")
        if key and section in whole and name != whole[section]:
            value = found.pop(name)
            if value != defaults[name]:
                found[whole[section]] = {**(found[whole[section]] or {}), key: value}
    return found


def _without_pinned(one: Launched, name: str, value: Any, again: Any) -> tuple[Any, Any]:
    """What is left of two configs once equal keys and those that a launch pins are taken out."""
    old = value if isinstance(value, dict) else {} if value is None else {"": value}
    new = again if isinstance(again, dict) else {} if again is None else {"": again}
    unlike = {key for key in old.keys() | new.keys() if not alike(name, key, old.get(key), new.get(key))}
    unlike -= {key for key in PINNED_KEYS.get(name, ()) if old.get(key) is None}
    if not any("engine_id" in word for word in one.words):
        unlike.discard("engine_id")  # made up anew by each parser
    return {key: old.get(key) for key in unlike}, {key: new.get(key) for key in unlike}


def alike(name: str, key: str, one: Any, other: Any) -> bool:
    """Equal to the engine: a choice by its name in any case, a last tier that ends somewhere, a switch left off."""
    if key == "num_speculative_tokens_per_batch_size":
        return tiers_of(one) == tiers_of(other)
    if key == "method" and str(one).endswith("_mtp"):
        return bool(other == "mtp")  # its own name for each model's
    if name == "enable_lora":
        return bool(one) == bool(other)
    if isinstance(one, str) and isinstance(other, str):
        return one.upper() == other.upper()
    return same(one, other)


@pytest.mark.parametrize(("kind", "least"), [("random", 200), ("recipes", 150)])
def test_an_imported_spec_launches_what_the_line_did(kind: str, least: int) -> None:
    launches, outcomes = random_launches() if kind == "random" else recipe_launches()

    compared = [(one, differences(one, before, after)) for one, before, after in parsed(launches)]

    lost = [(one.words, one.again, found) for one, found in compared if found]
    assert lost == [], (len(lost), lost[:3])
    assert outcomes["launched"] >= least, outcomes


def test_variables_reach_the_engine() -> None:
    """Those that the engine reads and that have no field of their own, with the last value of each."""
    launches, _ = recipe_launches()
    compared = 0
    for one in launches:
        for name, value in one.variables.items():
            if name not in VARIABLE_HOMES and facts.table(VERSION).variable(name) is not None:
                assert one.env[name] == value, one.words
                compared += 1
    assert compared > 20

"""Variables that stand before a command, to their fields or to `engine.env`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.carrying import Carried
from servespec.compiler.command_line.findings import secret, uncertain
from servespec.compiler.command_line.program import Program
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.engine_homes import VARIABLE_HOMES
from servespec.compiler.facts.engine_fields import EngineTable
from servespec.diagnostics import Diagnostic
from servespec.schema.nearest import nearest
from servespec.schema.renamed import unread_variable_help


def carried_variables(program: Program, table: EngineTable, found: list[Diagnostic]) -> Iterator[Carried]:
    """The last value of each variable that a spec may set."""
    last: dict[str, tuple[Word, str]] = {}
    for word, name, value in program.variables:
        if name in last:
            message = f"{last[name][0].flag} is set again: {word.flag} wins"
            found.append(rules.S307.at(word.place, message, "delete one of them"))
        last[name] = (word, value)
    for name, (word, value) in last.items():
        one = _carried(word, name, value, table)
        if not isinstance(one, Carried):
            found.append(one)
            continue
        found += uncertain(word)
        if not word.unset:
            yield one


def _carried(word: Word, name: str, value: str, table: EngineTable) -> Carried | Diagnostic:
    variable = table.variable(name)
    if variable is None:
        help_text = unread_variable_help(name, value, nearest(name, table.variables(), limit=1))
        return rules.S315.at(word.place, f"vLLM {table.version} reads no variable {word.flag}", help_text)
    if variable.secret:
        return secret(name, name, word)
    home = VARIABLE_HOMES.get(name)
    if home is None:
        return Carried(("engine", "env", name), value, word.flag, word)
    try:
        meant = _MEANINGS[name](value)
    except ValueError:
        return rules.S305.at(word.place, f"{word.flag}: expected 0 or 1, got {quoted(value)}", "write 0 or 1")
    return Carried(tuple(home.split(".")), meant, word.flag, word)


def _runner(value: str) -> str:
    return "v2" if int(value) else "v1"


def _is_one(value: str) -> bool:
    return value == "1"


def _is_number(value: str) -> bool:
    return bool(int(value))


# As vllm/envs.py reads each.
_MEANINGS: Mapping[str, Callable[[str], Any]] = {
    "VLLM_USE_V2_MODEL_RUNNER": _runner,
    "VLLM_USE_BREAKABLE_CUDAGRAPH": _is_one,
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": _is_number,
}

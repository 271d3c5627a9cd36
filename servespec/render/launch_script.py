"""A plan's launch as words, and as a POSIX shell script."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servespec.compiler.environment import KEPT_ENGINE_VARIABLES, WITHHELD_VARIABLES
from servespec.render.launch_comment import launch_comment

Json = Mapping[str, Any]


def launch_argv(plan: Json) -> str:
    """The words of the command as a JSON array on one line: no value needs quoting again."""
    return json.dumps(plan["launch"]["argv"], ensure_ascii=False) + "\n"


def launch_script(plan: Json, spec_name: str, folders: Sequence[str]) -> str:
    """A script that becomes the engine's first process, with the command and environment of the plan.

    ``folders`` are the model folders that the command names; the script looks for them before the engine does.
    """
    parts = [
        ["#!/bin/sh", *(f"# {line}" for line in _comment(plan, spec_name))],
        ["set -eu"],
        list(_withheld()),
        list(_folders(folders)),
        [f"export {name}={_in_quotes(value)}" for name, value in plan["launch"]["env"].items()],
        ["exec " + " \\\n  ".join(words_by_flag(plan["launch"]["argv"]))],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _comment(plan: Json, spec_name: str) -> Iterator[str]:
    yield from launch_comment(plan, spec_name)
    if plan["engine"]["lowering"] == "extension":
        yield f"Its workers load the extension of servespec {plan['servespec']}, which is installed where vLLM is."
    yield "shellcheck disable=SC1003,SC1112,SC2016 # values stand in quotes as they are"


def _withheld() -> Iterator[str]:
    """As `servespec serve` does: what would change the plan is not taken from the shell."""
    yield "# The engine's settings are the plan's; of the shell's it gets those that change nothing of it."
    yield r"for name in $(env | sed -n 's/^\(VLLM_[A-Za-z0-9_]*\)=.*/\1/p'); do"
    yield "  case $name in"
    yield f"    {' | '.join(sorted(KEPT_ENGINE_VARIABLES))}) ;;"
    yield '    *) unset "$name" ;;'
    yield "  esac"
    yield "done"
    yield f"unset {' '.join(sorted(WITHHELD_VARIABLES))}"


def _folders(folders: Sequence[str]) -> Iterator[str]:
    if not folders:
        return
    yield "# Relative paths start at the folder of the spec."
    yield "need_folder() {"
    yield '  if [ ! -d "$1" ]; then'
    yield "    printf '%s: there is no such folder; run this in the folder of the spec\\n' \"$1\" >&2"
    yield "    exit 1"
    yield "  fi"
    yield "}"
    yield from (f"need_folder {shlex.quote(folder)}" for folder in folders)


def words_by_flag(argv: Sequence[str]) -> list[str]:
    """The words that a POSIX shell reads, a line for each flag with what follows it."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [" ".join(line) for line in lines]


def _in_quotes(value: str) -> str:
    """In quotes even where a shell needs none: `A==` reads like a mistake."""
    return "'" + value.replace("'", "'\"'\"'") + "'"

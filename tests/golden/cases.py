"""One folder a case: `spec.yaml`, and what `servespec plan spec.yaml` makes of it.

Comments at the top of a spec may give `options:` of the command line and variables of the `shell:`.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "cases"

_ANNOTATION = re.compile(r"^# (options|shell): (.*)$", re.MULTILINE)
_LONGEST_LINE = 160


@dataclass(frozen=True, slots=True)
class Case:
    """A folder with a spec, the words that go with it on the command line, and the variables of its shell."""

    folder: Path
    options: tuple[str, ...]
    shell: dict[str, str]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def refused(self) -> bool:
        return (self.folder / "errors.txt").exists()


def case_of(folder: Path) -> Case:
    text = (folder / "spec.yaml").read_text(encoding="utf-8")
    notes = dict(_ANNOTATION.findall(text))
    shell = dict(word.split("=", 1) for word in shlex.split(notes.get("shell", "")))
    return Case(folder, tuple(shlex.split(notes.get("options", ""))), shell)


def every_case() -> tuple[Case, ...]:
    return tuple(case_of(path.parent) for path in sorted(FOLDER.glob("*/spec.yaml")))


def golden_json(document: dict[str, Any]) -> str:
    """A plan for a golden file: one line for what fits on one, and nothing that changes from release to release."""
    inputs = {**document["inputs"], "facts_sha256": "(any)"}
    return "".join(_lines({**document, "servespec": "(any)", "inputs": inputs}, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    short = json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    if len(indent) + len(short) <= _LONGEST_LINE or not isinstance(value, dict | list) or _is_flat(value):
        yield short
    elif isinstance(value, dict):
        yield "{"
        for at, (key, below) in enumerate(value.items()):
            yield f"{',' if at else ''}\n{inner}{json.dumps(key)}: "
            yield from _lines(below, inner)
        yield f"\n{indent}}}"
    else:
        yield "["
        for at, below in enumerate(value):
            yield f"{',' if at else ''}\n{inner}"
            yield from _lines(below, inner)
        yield f"\n{indent}]"


def _is_flat(value: Any) -> bool:
    """A list of sizes stays on its line, however long."""
    return isinstance(value, list) and all(isinstance(item, int) for item in value)

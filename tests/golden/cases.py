"""One folder a case: `spec.yaml`, and what `servespec plan spec.yaml` makes of it.

Comments at the top of a spec may give `options:` of the command line and variables of the `shell:`.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servespec.compiler.json_text import json_text

FOLDER = Path(__file__).resolve().parent / "cases"

_ANNOTATION = re.compile(r"^# (options|shell): (.*)$", re.MULTILINE)


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
    """A plan for a golden file, without what changes from release to release."""
    inputs = {**document["inputs"], "facts_sha256": "(any)"}
    return json_text({**document, "servespec": "(any)", "inputs": inputs})

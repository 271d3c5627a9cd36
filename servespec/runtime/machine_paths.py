"""Paths of this machine in what is made to be shared: commands and documents of measurements.

What lies below the current folder is named from there.  Elsewhere a word of a command and a folder of records keep
their last name alone, and a text has `~` for the home folder.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

_PATH_IN_A_WORD = re.compile(r"(?<![^=,])/[^=,]+")


def shown_command(words: Sequence[str]) -> str:
    """A command line with no path that only this machine has."""
    return shlex.join(_PATH_IN_A_WORD.sub(lambda path: _shown_path(path[0]), word) for word in words)


def without_machine_paths(document: Any, folder: Path | None = None) -> Any:
    """``document`` with every text as others may read it; ``folder`` holds the records of what it tells of."""
    roots = {str(Path.cwd()): ".", str(Path.home()): "~"}
    if folder is not None:
        records = str(folder.absolute())
        roots = {records: _shown_path(records), **roots}
    # A folder of records may lie below the current one, and that below the home folder.
    deepest_first = sorted(roots.items(), key=lambda root: len(root[0]), reverse=True)
    return _shown(document, {root: shown for root, shown in deepest_first if root != "/"})


def _shown_path(path: str) -> str:
    known = Path(path)
    return str(known.relative_to(Path.cwd())) if known.is_relative_to(Path.cwd()) else known.name or path


def _shown(value: Any, roots: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _shown_text(value, roots)
        case list():
            return [_shown(part, roots) for part in value]
        case dict():
            return {key: _shown(part, roots) for key, part in value.items()}
    return value


def _shown_text(text: str, roots: Mapping[str, str]) -> str:
    for root, shown in roots.items():
        # Not where it is the end or the beginning of a longer name.
        found = rf"(?<![\w./~-]){re.escape(root)}(?:/|(?![\w.-]))"
        text = re.sub(found, partial(_instead, shown), text)
    return text


def _instead(shown: str, root: re.Match[str]) -> str:
    if not root[0].endswith("/"):
        return shown
    return "" if shown == "." else f"{shown}/"

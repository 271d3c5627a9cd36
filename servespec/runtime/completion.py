"""What a shell may complete a spec's argument to: presets, and spec files of a folder."""

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from servespec.presets.catalog import preset_names
from servespec.provenance import PRESET_PREFIX

_SPEC_ENDINGS = (".yaml", ".yml")
_AFTER_COLON = "_SERVESPEC_AFTER_COLON"
"""Set in a completing process whose shell has typed `preset:` already."""


def mend_broken_word(environ: MutableMapping[str, str]) -> None:
    """bash breaks words at colons, and replaces only what is behind one: `preset`, `:` and a part of a name.

    The first two are taken out of the words, and :func:`spec_words` then completes the part alone.
    """
    words = environ.get("COMP_WORDS", "").split()
    at = int(environ.get("COMP_CWORD", "0"))
    part = words[at] if at < len(words) else ""
    first = at - 1 if part == ":" else at - 2
    if first < 0 or words[first : first + 2] != [PRESET_PREFIX.removesuffix(":"), ":"]:
        return
    environ["COMP_WORDS"] = " ".join([*words[:first], "" if part == ":" else part])
    environ["COMP_CWORD"] = str(first)
    environ[_AFTER_COLON] = "1"


def spec_words(incomplete: str) -> Iterator[str]:
    """The words that start with ``incomplete``, as the shell puts them."""
    if _AFTER_COLON in os.environ:
        yield from (name for name in preset_names() if name.startswith(incomplete))
        return
    yield from (word for name in preset_names() if (word := f"{PRESET_PREFIX}{name}").startswith(incomplete))
    yield from _files(incomplete)


def _files(incomplete: str) -> Iterator[str]:
    """Spec files, and folders that may hold some, as they are typed."""
    typed, _, stem = incomplete.rpartition("/")
    folder = f"{typed}/" if "/" in incomplete else ""
    try:
        found = sorted(Path(folder or ".").expanduser().iterdir())
    except (OSError, RuntimeError):
        return
    for path in found:
        if not path.name.startswith(stem) or (path.name.startswith(".") and not stem):
            continue
        if path.is_dir():
            yield f"{folder}{path.name}/"
        elif path.name.endswith(_SPEC_ENDINGS):
            yield f"{folder}{path.name}"

"""What a shell may complete a spec's argument to: presets, and spec files of a folder."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from servespec.presets.catalog import PRESET_PREFIX, preset_names

_SPEC_ENDINGS = (".yaml", ".yml")


def spec_words(before: Sequence[str], incomplete: str) -> Iterator[str]:
    """The words that start with ``incomplete``; ``before`` are the words to its left.

    A shell that breaks words at colons hands over `preset`, `:` and the rest apart, and wants the rest alone back.
    """
    bare = _broken_at_colon(before, incomplete)
    if bare is not None:
        yield from (name for name in preset_names() if name.startswith(bare))
        return
    yield from (word for name in preset_names() if (word := f"{PRESET_PREFIX}{name}").startswith(incomplete))
    yield from _files(incomplete)


def _broken_at_colon(before: Sequence[str], incomplete: str) -> str | None:
    """What was typed of a preset's name after a colon that broke the word; None where none did."""
    prefix = PRESET_PREFIX.removesuffix(":")
    if incomplete == ":" and before[-1:] == [prefix]:
        return ""
    return incomplete if list(before[-2:]) == [prefix, ":"] else None


def _files(incomplete: str) -> Iterator[str]:
    """Spec files, and folders that may hold some, as they are typed."""
    folder, name = (incomplete, "") if incomplete.endswith("/") else (str(Path(incomplete).parent), incomplete)
    typed = incomplete[: incomplete.rfind("/") + 1]
    stem = name.rpartition("/")[2]
    try:
        found = sorted(Path(folder or ".").expanduser().iterdir())
    except OSError:
        return
    for path in found:
        if path.name.startswith(stem) and (stem.startswith(".") or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{typed}{path.name}/"
            elif path.name.endswith(_SPEC_ENDINGS):
                yield f"{typed}{path.name}"

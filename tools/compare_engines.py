"""What a new wheel moves under servespec.

    python tools/compare_engines.py OLD_ROOT NEW_ROOT

Both roots are unpacked wheels (``tools/fetch_engines.py``).  Lists the functions whose digest moved, the
fields, flags and variables that came, went or changed their type or default, the functions that began or ceased
to name the list of graph sizes, and the quotes behind the old version's numbers that no longer stand in the new
files.  Exit 0 when nothing moved, 1 otherwise.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine_facts import table_of
from engine_reading.digests import digests
from engine_reading.list_mentions import list_mentions
from engine_reading.quotes import missing_quotes
from engine_reading.source import Engine

_COMPARED = (
    "type",
    "default",
    "bounds",
    "required",
    "internal",
    "spellings",
    "negations",
    "form",
    "nargs",
    "deprecated",
)


def moved_digests(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """One line a function whose source is other, gone or new."""
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{_change(name in old, name in new)} {name}"


def moved_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """One line a field, flag or variable that came, went or changed."""
    old_rows, new_rows = _rows(old), _rows(new)
    for name in sorted(old_rows.keys() | new_rows.keys()):
        before, after = old_rows.get(name), new_rows.get(name)
        if before is None or after is None:
            yield f"{_change(before is not None, after is not None)} {name}"
        else:
            yield from _changed_parts(name, before, after)


def moved_readers(old: Engine, new: Engine) -> Iterator[str]:
    """One line a function that names the list of graph sizes in one of the wheels alone."""
    before, after = list_mentions(old), list_mentions(new)
    for path, function in sorted(before ^ after):
        yield f"{_change((path, function) in before, (path, function) in after)} {path}:{function}"


def moved_quotes(version: str, new_root: Path) -> Iterator[str]:
    """One line a quote that is gone from the new wheel."""
    for one in missing_quotes(version, new_root):
        yield f"gone {one.path}: {' '.join(one.quote.split())}"


def _changed_parts(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for part in _COMPARED:
        if before.get(part) != after.get(part):
            yield f"changed {name}: {part} {_difference(before.get(part), after.get(part))}"


def _difference(before: Any, after: Any) -> str:
    """The choices that came and went, where that is all the difference; else both values."""
    old, new = _choices(before), _choices(after)
    if _without_choices(before) == _without_choices(after) and old != new:
        came, went = sorted(new - old), sorted(old - new)
        return ", ".join([*(f"+{one}" for one in came), *(f"-{one}" for one in went)])
    return f"{_shown(before)} -> {_shown(after)}"


def _choices(value: Any) -> set[str]:
    """Every literal and enum name inside a type expression."""
    if isinstance(value, dict):
        own = {str(one) for key in _CHOICE_KEYS for one in value.get(key, [])}
        return own.union(*(_choices(one) for one in value.values()))
    return set().union(*(_choices(one) for one in value)) if isinstance(value, list) else set()


def _without_choices(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: None if k in _CHOICE_KEYS else _without_choices(one) for k, one in value.items()}
    return [_without_choices(one) for one in value] if isinstance(value, list) else value


_CHOICE_KEYS = ("literal", "names", "values")


def _rows(table: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a table under one name: ``Config.field``, ``--flag`` or ``VARIABLE``."""
    fields = {f"{name}.{key}": row for name, one in table["configs"].items() for key, row in one["fields"].items()}
    flags = {f"--{name.replace('_', '-')}": row for name, row in table["flags"].items()}
    return {**fields, **flags, **table["variables"]}


def _change(was: bool, is_now: bool) -> str:
    if was and is_now:
        return "changed"
    return "gone" if was else "new"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


_WIDTH = 120


def version_of(root: Path) -> str:
    """The version in the metadata of an unpacked wheel; '' where it has none."""
    for path in sorted(root.glob("vllm*.dist-info/METADATA")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("Version: "):
                return line.removeprefix("Version: ").strip()
    return ""


def report(old_root: Path, new_root: Path) -> dict[str, list[str]]:
    """The lines of each part of the report."""
    old, new = Engine(old_root), Engine(new_root)
    old_version, new_version = version_of(old_root), version_of(new_root)
    tables = table_of(old, old_version), table_of(new, new_version)
    return {
        "digests": list(moved_digests(digests(old), digests(new))),
        "fields, flags and variables": list(moved_settings(*tables)),
        "readers of the token list": list(moved_readers(old, new)),
        f"quotes of {old_version}": list(moved_quotes(old_version, new_root)),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old_root", type=Path)
    parser.add_argument("new_root", type=Path)
    given = parser.parse_args(arguments)
    parts = report(given.old_root, given.new_root)
    for title, lines in parts.items():
        print(f"{title}: {len(lines)} moved" if lines else f"{title}: nothing moved")
        for line in lines:
            print(f"  {line}")
    return 1 if any(parts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

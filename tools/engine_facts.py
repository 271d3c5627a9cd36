"""Write ``servespec/compiler/facts/vllm/<version>.json`` and ``digests.json`` from unpacked wheels.

    python tools/engine_facts.py [--check] [VERSION ...]

The wheels are read as text from ``$SERVESPEC_ENGINES`` (default ``.engines``, which ``tools/fetch_engines.py``
fills); nothing of them is imported.  ``--check`` writes nothing and exits 1 when a committed file differs from
what would be written.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine_reading import classification as judged
from engine_reading.configs import ConfigClass, ConfigField, config_classes
from engine_reading.digests import digests
from engine_reading.field_type import TypeJson, union
from engine_reading.flags import Flag, flags, frontend_class
from engine_reading.source import Engine
from engine_reading.variables import Variable, variables

ROOT = Path(__file__).resolve().parent.parent
ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", ROOT / ".engines"))
FACTS = ROOT / "servespec" / "compiler" / "facts" / "vllm"
VERSIONS = ("0.32.0", "0.33.0")

Row = dict[str, Any]
Table = dict[str, dict[str, Row]]


def table_of(engine: Engine, version: str) -> dict[str, Any]:
    """The whole table of one version, as the JSON that is committed."""
    configs = config_classes(engine)
    frontend = frontend_class(engine)
    verdicts = _Verdicts({**configs, frontend.name: frontend})
    read_variables = variables(engine)
    return {
        "version": version,
        "configs": {name: _config_row(one, verdicts) for name, one in sorted(verdicts.configs.items())},
        "flags": {name: _flag_row(one, verdicts) for name, one in flags(engine, configs).items()},
        "variables": {**_outside_rows(), **{n: _variable_row(v) for n, v in sorted(read_variables.items())}},
    }


class _Verdicts:
    """What the hand-made lists say of the fields of one version."""

    def __init__(self, configs: dict[str, ConfigClass]) -> None:
        self.configs = configs

    def of_field(self, config: str, name: str) -> bool | None:
        split = judged.FIELDS.get(config)
        listed = split.verdict(name) if split else None
        return self._of_nested(config, name) if listed is None else listed

    def _of_nested(self, config: str, name: str) -> bool | None:
        """A field that holds a config class changes the plan where any of the class's fields does."""
        field = self.configs[config].fields.get(name)
        nested = [n for n in _config_names(field.type) if n in self.configs] if field else []
        if not nested:
            return None
        return self.of_config(nested[0])

    def of_config(self, config: str) -> bool | None:
        fields = self.configs[config].fields.values()
        all_verdicts = [self.of_field(config, f.name) for f in fields if not f.is_internal]
        return None if None in all_verdicts else any(all_verdicts)

    def of_flag(self, flag: Flag) -> bool | None:
        if flag.config_field and flag.config in self.configs:
            return self.of_field(flag.config, flag.config_field)
        return judged.FLAGS.verdict(flag.name)


def _config_names(kind: TypeJson) -> Iterator[str]:
    if isinstance(kind, dict) and "config" in kind:
        yield kind["config"]
    for member in kind.get("union", []) if isinstance(kind, dict) else []:
        yield from _config_names(member)


def _config_row(one: ConfigClass, verdicts: _Verdicts) -> dict[str, Any]:
    rows = {f.name: _field_row(one.name, f, verdicts) for f in one.fields.values()}
    return {"file": one.path, "line": one.line, "fields": dict(sorted(rows.items()))}


def _field_row(config: str, field: ConfigField, verdicts: _Verdicts) -> Row:
    key = f"{config}.{field.name}"
    return {
        "type": _accepted(key, _known(field.type, verdicts)),
        "default": field.default,
        "line": field.line,
        **({"plan": verdicts.of_field(config, field.name)} if not field.is_internal else {"internal": True}),
        **({"bounds": field.bounds} if field.bounds else {}),
        **({"required": True} if field.is_required else {}),
        **_marks(judged.CODE_FIELDS.get(key), key in judged.SECRET_FIELDS),
    }


def _flag_row(flag: Flag, verdicts: _Verdicts) -> Row:
    key = f"{flag.config}.{flag.config_field}"
    code = True if flag.name in judged.CODE_FLAGS else judged.CODE_FIELDS.get(key)
    return {
        "spellings": list(flag.spellings),
        **({"negations": list(flag.negations)} if flag.negations else {}),
        "form": flag.form,
        "type": _accepted(key, _known(flag.type, verdicts)),
        "default": flag.default,
        "config": flag.config,
        "field": flag.config_field,
        "file": flag.path,
        "line": flag.line,
        "plan": verdicts.of_flag(flag),
        **({"nargs": flag.nargs} if flag.nargs is not None else {}),
        **({"deprecated": flag.deprecated} if flag.deprecated is not None else {}),
        **_marks(code, key in judged.SECRET_FIELDS),
    }


def _variable_row(one: Variable) -> Row:
    return {
        "type": one.type,
        "default": one.default,
        "line": one.line,
        "plan": judged.variable_verdict(one.name),
        **_marks(one.name in judged.CODE_VARIABLES, one.name in judged.SECRET_VARIABLES),
    }


def _outside_rows() -> dict[str, Row]:
    """Variables that the engine's own table does not have: of type text, with no default that it knows."""
    names = judged.OUTSIDE_VARIABLES.plan | judged.OUTSIDE_VARIABLES.other
    return {
        name: {
            "type": "str",
            "default": None,
            "plan": judged.OUTSIDE_VARIABLES.verdict(name),
            **_marks(name in judged.CODE_VARIABLES, name in judged.SECRET_VARIABLES),
        }
        for name in sorted(names)
    }


def _marks(code: Any, is_secret: bool) -> Row:
    marks: Row = {"code": list(code) if isinstance(code, tuple) else code} if code else {}
    return {**marks, "secret": True} if is_secret else marks


def _accepted(key: str, kind: TypeJson) -> TypeJson:
    """The annotation and what the field's validator takes besides."""
    if key in judged.FOLDED and isinstance(kind, dict):
        return {**kind, "folded": True}
    return union([kind, judged.WIDER[key]]) if key in judged.WIDER else kind


def _known(kind: TypeJson, verdicts: _Verdicts) -> TypeJson:
    """A config class that the table does not hold is an opaque object."""
    if not isinstance(kind, dict):
        return kind
    if "config" in kind:
        return kind if kind["config"] in verdicts.configs else {"any": kind["config"]}
    return {key: _known_part(part, verdicts) if key in _NESTED else part for key, part in kind.items()}


_NESTED = {"union", "list", "set", "tuple", "dict"}


def _known_part(part: Any, verdicts: _Verdicts) -> Any:
    return [_known(one, verdicts) for one in part] if isinstance(part, list) else _known(part, verdicts)


def rendered(table: dict[str, Any]) -> str:
    """One field a line, so that a diff of two versions reads as a list of changes."""
    configs = {name: {**row, "fields": row["fields"]} for name, row in table["configs"].items()}
    parts = [f'"version": {json.dumps(table["version"])}', f'"configs": {{\n{_config_lines(configs)}\n}}']
    parts += [f'"{key}": {_lines(table[key])}' for key in ("flags", "variables")]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _config_lines(configs: dict[str, Any]) -> str:
    return ",\n".join(
        f'{json.dumps(name)}: {{"file": {json.dumps(row["file"])}, "line": {row["line"]}, '
        f'"fields": {_lines(row["fields"])}}}'
        for name, row in configs.items()
    )


def _lines(rows: dict[str, Row]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_compact(row)}" for name, row in rows.items()) + "\n}"


def _compact(row: Any) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=True)


def files_for(versions: tuple[str, ...]) -> dict[Path, str]:
    """What the committed files of ``versions`` must hold, by path."""
    engines = {version: Engine(ENGINES / f"vllm-{version}") for version in versions}
    wanted = {FACTS / f"{v}.json": rendered(table_of(engine, v)) for v, engine in engines.items()}
    recorded = {**_recorded_digests(), **{v: digests(engine) for v, engine in engines.items()}}
    wanted[FACTS / "digests.json"] = json.dumps(recorded, indent=1, sort_keys=True) + "\n"
    return wanted


def _recorded_digests() -> dict[str, dict[str, str]]:
    path = FACTS / "digests.json"
    recorded: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
    return recorded


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 on a difference")
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), metavar="VERSION")
    given = parser.parse_args(arguments)
    wanted = files_for(tuple(given.versions))
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(f"{'stale' if given.check else 'wrote'} {path.relative_to(ROOT)}")
        if not given.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
    if stale and given.check:
        print("run: python tools/engine_facts.py")
    return 1 if stale and given.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Reading a spec that an argument names, and everything that `validate` says about it."""

import sys
from pathlib import Path

from servespec.compiler.facts.engine_fields import table, versions
from servespec.compiler.spec_checks import early_findings
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.presets.catalog import preset_bytes, preset_names
from servespec.provenance import PRESET_PREFIX
from servespec.runtime.config_rules import R008, R014, R023
from servespec.runtime.document_kinds import Kind, kind_by_hand, use_of, written_kind
from servespec.runtime.json_mapping import json_mapping
from servespec.runtime.supported import unsupported
from servespec.schema.nearest import nearest_by_words
from servespec.schema.overlays import EXTENDS, layered
from servespec.schema.overrides import with_overrides
from servespec.schema.parse import parse_spec, shown
from servespec.schema.source import SpecSource, read_source
from servespec.schema.spec import ServingSpec
from servespec.schema.spec_rules import S226, S227

_NAMES = "name a file, `preset:NAME`, or `-` for standard input"


def read_argument(argument: str) -> tuple[str, bytes]:
    """The name and the bytes of a file, a preset, or standard input for `-`; SpecError where it cannot be read."""
    if argument == "-":
        return "<stdin>", sys.stdin.buffer.read()
    return argument, spec_bytes(argument)


def spec_bytes(argument: str) -> bytes:
    """The bytes of a file or a preset that an argument names; SpecError where it cannot be read, and for a folder."""
    if argument.startswith(PRESET_PREFIX):
        return _preset(argument, Place(argument))
    try:
        return Path(argument).read_bytes()
    except IsADirectoryError:
        message, files = f"`{argument}` is a folder, and folders are not searched", f"{argument.rstrip('/')}/*.yaml"
        raise SpecError([R008.at(Place(argument), message, f"name the files, such as `{files}`")]) from None
    except OSError as error:
        message = f"cannot read `{argument}`: {(error.strerror or 'unreadable').lower()}"
        is_preset = argument in preset_names()
        help_text = f"write `{PRESET_PREFIX}{argument}`" if is_preset else _NAMES
        raise SpecError([R008.at(Place(argument), message, help_text)]) from None


def _preset(argument: str, place: Place) -> bytes:
    name = argument.removeprefix(PRESET_PREFIX)
    found = preset_bytes(name)
    if found is not None:
        return found
    near = " or ".join(f"`{PRESET_PREFIX}{one}`" for one in nearest_by_words(name, preset_names()))
    suggestion = f"did you mean {near}? " if near else ""
    help_text = f"{suggestion}`servespec presets list` names them"
    raise SpecError([R014.at(place, f"there is no preset `{name}`", help_text)])


def read_spec(argument: str, settings: tuple[str, ...] = ()) -> SpecSource:
    """The spec that an argument names, over its bases and under the overrides.

    Raises SpecError for a file of another kind, before its keys are held against those of a spec.
    """
    name, raw = read_argument(argument)
    data = json_mapping(raw) if raw.lstrip().startswith(b"{") else None
    written = None if data is None else written_kind(data)
    if written is not None:
        raise SpecError([_no_spec(name, written)])
    source = read_source(raw, name)
    kind = kind_by_hand(source.data)
    if kind is not Kind.SPEC:
        raise SpecError([_no_spec(name, kind)])
    return with_overrides(with_bases(source), settings)


def _no_spec(name: str, kind: Kind) -> Diagnostic:
    return R023.at(Place(name), f"the file is no spec, it is of the kind {kind}", use_of(kind))


def with_bases(source: SpecSource, above: tuple[Path, ...] = ()) -> SpecSource:
    """``source`` over the files that its `extends` names; ``above`` are the files that led to it.

    Raises SpecError with all that cannot be read, or that extend what led to them.
    """
    if EXTENDS not in source.data:
        return source
    written = source.data[EXTENDS]
    names = [written] if isinstance(written, str) else written
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        message = f"`{EXTENDS}` is {shown(written)}"
        raise SpecError([S226.at(source.place_of((EXTENDS,)), message, "write a file's name, or a list of names")])
    chain = (*above, Path(source.name).resolve())
    places = [source.place_of((EXTENDS,) if isinstance(written, str) else (EXTENDS, at)) for at in range(len(names))]
    bases: list[SpecSource] = []
    found: list[Diagnostic] = []
    for name, place in zip(names, places, strict=True):
        try:
            bases.append(_base(source, name, place, chain))
        except SpecError as error:
            found += error.diagnostics
    if found:
        raise SpecError(found)
    return layered(source, bases)


def _base(source: SpecSource, name: str, place: Place, chain: tuple[Path, ...]) -> SpecSource:
    if name.startswith(PRESET_PREFIX):
        return read_source(_preset(name, place), name)
    path = base_folder(source) / name
    if path.resolve() in chain:
        raise SpecError([S227.at(place, f"`{name}` extends this file itself", "delete one of the two `extends`")])
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"cannot read `{name}`: {(error.strerror or 'unreadable').lower()}"
        help_text = "name a file, from the folder of this one, or `preset:NAME`"
        raise SpecError([S226.at(place, message, help_text)]) from None
    return with_bases(read_source(raw, str(path)), chain)


def spec_diagnostics(
    source: SpecSource, *, allow_code: bool, allow_unverified_engine: bool = False
) -> tuple[Diagnostic, ...]:
    """Everything that `validate` can say: no model facts, no network, no machine."""
    parsed = parse_spec(source)
    allowed = allow_unverified_engine
    return (
        *parsed.diagnostics,
        *further_findings(parsed.spec, source, allow_code, allow_unverified_engine=allowed),
    )


def further_findings(
    spec: ServingSpec | None, source: SpecSource, allow_code: bool, *, allow_unverified_engine: bool = False
) -> tuple[Diagnostic, ...]:
    """What the later rules say about the values that were accepted, so that all faults show in one run."""
    if spec is None:
        return ()
    version = spec.engine.version if spec.engine.version in versions() else versions()[-1]
    found = early_findings(spec, source, table(version), allow_code=allow_code)
    return (*found, *unsupported(spec, source, allow_unverified_engine=allow_unverified_engine))


def base_folder(source: SpecSource) -> Path:
    """The spec's own folder, which relative paths start from; the current one for standard input."""
    path = Path(source.name)
    return path.parent if path.is_file() else Path()

"""Reading a spec that an argument names, and everything that `validate` says about it."""

import sys
from pathlib import Path

from servespec.compiler.facts.engine_fields import table, versions
from servespec.compiler.spec_checks import spec_findings
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.presets.catalog import PRESET_PREFIX, preset_bytes, preset_names
from servespec.runtime.config_rules import R008, R014
from servespec.schema.nearest import nearest
from servespec.schema.overrides import with_overrides
from servespec.schema.parse import parse_spec
from servespec.schema.source import SpecSource, read_source
from servespec.schema.spec import ServingSpec


def read_spec(argument: str, settings: tuple[str, ...] = ()) -> SpecSource:
    """The spec that an argument names, with overrides laid over it.

    A file, `-` for standard input, or `preset:NAME`.  Raises SpecError where it cannot be read or is not YAML.
    """
    if argument == "-":
        return with_overrides(read_source(sys.stdin.buffer.read(), "<stdin>"), settings)
    return with_overrides(read_source(spec_bytes(argument), argument), settings)


def spec_bytes(argument: str) -> bytes:
    """The bytes of a file or a preset that an argument names; SpecError where it cannot be read, and for a folder."""
    if argument.startswith(PRESET_PREFIX):
        return _preset(argument)
    try:
        return Path(argument).read_bytes()
    except IsADirectoryError:
        message = f"`{argument}` is a folder, and folders are not searched"
        help_text = f"name the files, such as `{argument.rstrip('/')}/*.yaml`"
        raise SpecError([R008.at(Place(argument), message, help_text)]) from None
    except OSError as error:
        message = f"cannot read `{argument}`: {(error.strerror or 'unreadable').lower()}"
        help_text = "name a file, `preset:NAME`, or `-` for standard input"
        raise SpecError([R008.at(Place(argument), message, help_text)]) from None


def _preset(argument: str) -> bytes:
    name = argument.removeprefix(PRESET_PREFIX)
    found = preset_bytes(name)
    if found is not None:
        return found
    near = nearest(name, preset_names())
    suggestion = f"did you mean `{PRESET_PREFIX}{near[0]}`? " if near else ""
    help_text = f"{suggestion}`servespec presets list` names them"
    raise SpecError([R014.at(Place(argument), f"there is no preset `{name}`", help_text)])


def spec_diagnostics(source: SpecSource, *, allow_code: bool) -> tuple[Diagnostic, ...]:
    """Everything that `validate` can say: no model facts, no network, no machine."""
    parsed = parse_spec(source)
    return (*parsed.diagnostics, *further_findings(parsed.spec, source, allow_code))


def further_findings(spec: ServingSpec | None, source: SpecSource, allow_code: bool) -> tuple[Diagnostic, ...]:
    """What the later rules say about the values that were accepted, so that all faults show in one run."""
    if spec is None:
        return ()
    version = spec.engine.version if spec.engine.version in versions() else versions()[-1]
    return spec_findings(spec, source, table(version), allow_code=allow_code)


def base_folder(source: SpecSource) -> Path:
    """The spec's own folder, which relative paths start from; the current one for standard input."""
    path = Path(source.name)
    return path.parent if path.is_file() else Path()

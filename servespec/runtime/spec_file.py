"""Reading a spec that an argument names, and everything that `validate` says about it."""

import sys
from pathlib import Path

from servespec.compiler.facts.engine_fields import table, versions
from servespec.compiler.spec_checks import spec_findings
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.config_rules import R008
from servespec.schema.overrides import with_overrides
from servespec.schema.parse import parse_spec
from servespec.schema.source import SpecSource, read_source
from servespec.schema.spec import ServingSpec


def read_spec(argument: str, settings: tuple[str, ...] = ()) -> SpecSource:
    """The spec that an argument names: a file, or `-` for standard input, with overrides laid over it."""
    if argument == "-":
        return with_overrides(read_source(sys.stdin.buffer.read(), "<stdin>"), settings)
    path = Path(argument)
    try:
        raw = path.read_bytes()
    except OSError as error:
        place = Place(argument)
        message = f"cannot read `{argument}`: {(error.strerror or 'unreadable').lower()}"
        raise SpecError([R008.at(place, message, "name a spec file, or `-` for standard input")]) from None
    return with_overrides(read_source(raw, argument), settings)


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

"""A spec file moved from the legacy capture fields to the new ones, with the plans before and after."""

from codecs import BOM_UTF8
from dataclasses import dataclass, replace
from pathlib import Path

from servespec.compiler.lower import Lowering
from servespec.compiler.migration import Migration, migration_of
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place, SpecError, has_errors
from servespec.runtime.config_rules import R008
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.private_file import rewrite
from servespec.runtime.spec_file import further_findings, with_bases
from servespec.schema.capture_fields import legacy_in_force
from servespec.schema.parse import parse_spec
from servespec.schema.source import SpecSource, read_source
from servespec.schema.spec_rules import S225


@dataclass(frozen=True, slots=True)
class Migrated:
    """``before`` has the unmodified engine beside it, whose graphs the legacy fields were written for."""

    migration: Migration
    before: Plan
    after: Plan


class RefusedAfterError(SpecError):
    """The spec is fine as it stands, and its findings are about ``text``, the migrated one."""

    def __init__(self, text: str, error: SpecError) -> None:
        super().__init__(error.diagnostics)
        self.text = text


def legacy_findings(source: SpecSource, *, allow_code: bool) -> tuple[Diagnostic, ...]:
    """The findings of a spec in which legacy fields are in force; none where there is nothing to migrate.

    Raises SpecError where the spec is refused.
    """
    parsed = parse_spec(source)
    found = (*parsed.diagnostics, *further_findings(parsed.spec, source, allow_code))
    if parsed.spec is None or has_errors(found):
        raise SpecError(found)
    return found if legacy_in_force(parsed.spec.compilation) else ()


def migrated(source: SpecSource, options: Options) -> Migrated:
    """The migration of a spec in which legacy fields are in force; SpecError where either form is refused."""
    before = compile_spec(compile_request(source, replace(options, with_stock=True)))
    migration = migration_of(before.resolution)
    try:
        after = compile_spec(compile_request(with_bases(read_source(migration.text, source.name)), options))
    except SpecError as error:
        raise RefusedAfterError(migration.text, error) from None
    if after.lowered.lowering is Lowering.NONE and not after.resolution.complete:
        message = "not enough is known of the model for the new fields to reach the engine"
        raise SpecError([S225.at(source.place_of_key(("compilation",)), message, "keep the legacy fields")])
    return Migrated(migration, before, after)


def write_spec(path: Path, text: str) -> None:
    """Puts ``text`` in the place of a spec; SpecError where that is not possible."""
    try:
        raw = path.read_bytes()
        rewrite(path, (BOM_UTF8 if raw.startswith(BOM_UTF8) else b"") + text.encode("utf-8"))
    except OSError as error:
        message = f"cannot write `{path}`: {(error.strerror or 'unwritable').lower()}"
        raise SpecError([R008.at(Place(str(path)), message, "leave `--write` out, and the text is printed")]) from None

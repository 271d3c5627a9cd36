"""`validate`: files of every kind, checked without a network or a machine."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from servespec.cli.application import app
from servespec.cli.exit_codes import EXIT_REFUSED
from servespec.cli.options import AllowCode, AllowEngine, Settings, complete_spec
from servespec.cli.reporting import FindingsFormat, print_findings, text_of
from servespec.cli.waiting import waiting

if TYPE_CHECKING:
    from servespec.diagnostics import Diagnostic


@app.command()
def validate(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Specs, plans, records and other files of servespec's, preset:NAME, or -.",
            autocompletion=complete_spec,
        ),
    ],
    format: Annotated[FindingsFormat, typer.Option(help="How findings are printed.")] = FindingsFormat.text,  # noqa: A002
    strict: Annotated[bool, typer.Option(help="Fail on warnings too.")] = False,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    settings: Settings = None,
) -> None:
    """Check files, each by its kind: what needs no model facts, no network and no machine."""
    from servespec.diagnostics import Severity

    found, texts, kinds = [], {}, []
    # One may be standard input, where a person types.
    with waiting(f"checking {len(paths)} files") if len(paths) > 1 else nullcontext():
        for path in paths:
            kind, findings, text = _validated(path, tuple(settings or ()), allow_code, allow_unverified_engine)
            found += findings
            texts["<stdin>" if path == "-" else path] = text
            kinds.append(kind)
    print_findings(found, texts, format, to_stdout=True)
    limit = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    if any(finding.severity in limit for finding in found):
        raise typer.Exit(EXIT_REFUSED)
    if format is FindingsFormat.text:
        typer.echo(_valid_text(kinds), err=True)


def _valid_text(kinds: list[str]) -> str:
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    words = [f"{count} {kind if count == 1 or kind.endswith('s') else f'{kind}s'}" for kind, count in counts.items()]
    return f"{', '.join(words)}: {'it is' if len(kinds) == 1 else 'all are'} valid"


def _validated(
    path: str, settings: tuple[str, ...], allow_code: bool, allow_unverified_engine: bool
) -> tuple[str, list["Diagnostic"], str]:
    """What a file is, and what is wrong with it."""
    from servespec.diagnostics import SpecError, in_file_order
    from servespec.runtime.document_kinds import Kind
    from servespec.runtime.documents import document_findings, document_of

    try:
        document = document_of(path, settings)
        findings = document_findings(document, allow_code=allow_code, allow_unverified_engine=allow_unverified_engine)
    except SpecError as error:
        return str(Kind.SPEC), list(error.diagnostics), text_of(path)
    if settings and document.kind is not Kind.SPEC:
        raise typer.BadParameter(f"it lays values over specs, and `{path}` is none", param_hint="--set")
    text = "" if document.source is None else document.source.text
    return str(document.kind), list(in_file_order(findings)), text

"""Plans, texts and findings on their way out: data to stdout, talk to stderr."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from servespec.cli.exit_codes import refusal_code
from servespec.cli.waiting import waiting

if TYPE_CHECKING:
    from servespec.compiler.plan import Plan
    from servespec.diagnostics import Diagnostic
    from servespec.runtime.gather import Options
    from servespec.runtime.serving import OnLaunchEvent


class FindingsFormat(StrEnum):
    text = "text"
    json = "json"
    github = "github"


def write_text(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    with writing(output, "--output"):
        output.write_text(text, encoding="utf-8")


@contextmanager
def writing(file: Path, option: str) -> Iterator[None]:
    """A file that cannot be written is a fault of the option that names it."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "unwritable").lower()
        raise typer.BadParameter(f"cannot write `{file}`: {reason}", param_hint=option) from None


def compiled(spec: str, options: "Options") -> "Plan":
    """The plan, its findings on stderr."""
    made, texts = planned(spec, options)
    print_findings(list(made.diagnostics), texts, FindingsFormat.text, to_stdout=False)
    return made


def planned(spec: str, options: "Options") -> tuple["Plan", dict[str, str]]:
    """The plan, and the texts of the files that its findings are about; nothing is printed."""
    from servespec.compiler.pipeline import compile_spec
    from servespec.runtime.gather import compile_request
    from servespec.runtime.spec_file import read_spec

    with reporting(spec):
        source = read_spec(spec, options.settings)
    with reporting(source.name, source.text), waiting("planning"):
        made = compile_spec(compile_request(source, options))
    return made, dict(source.texts)


def shares_terminal() -> bool:
    """Whether one terminal shows what goes to stdout and what goes to stderr, so that order is what a person sees."""
    # Python has no stream in place of one that is closed.
    streams = (sys.stdout, sys.stderr)
    if any(stream is None or not stream.isatty() for stream in streams):
        return False
    return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())


@contextmanager
def telling(plan: "Plan") -> Iterator["OnLaunchEvent"]:
    """Says on stderr what happens in a launch of ``plan``; on a terminal with a bar of what is under way."""
    if sys.stderr.isatty():
        from servespec.cli.launch_bar import launch_bar

        with launch_bar(plan) as taking:
            yield taking
        return
    from servespec.render.serve_text import event_line

    def say(event: Any) -> None:
        line = event_line(event, plan)
        if line is not None:
            typer.echo(line, err=True)

    yield say


def text_of(path: str) -> str:
    from servespec.diagnostics import SpecError
    from servespec.runtime.spec_file import spec_bytes
    from servespec.schema.source import excerpt_text

    try:
        return excerpt_text(spec_bytes(path))
    except SpecError:
        return ""


@contextmanager
def reporting(spec: str, text: str | None = None) -> Iterator[None]:
    """The one place where a refused spec becomes text and an exit code."""
    from servespec.diagnostics import SpecError

    try:
        yield
    except SpecError as error:
        texts = {spec: text_of(spec) if text is None else text}
        print_findings(list(error.diagnostics), texts, FindingsFormat.text, to_stdout=False)
        raise typer.Exit(refusal_code(error)) from None


def print_findings(
    found: "list[Diagnostic]",
    texts: dict[str, str],
    format: FindingsFormat,  # noqa: A002
    *,
    to_stdout: bool,
) -> None:
    from servespec.render import diagnostics as render

    findings = [finding.to_json() for finding in found]
    stream = sys.stdout if to_stdout else sys.stderr
    match format:
        case FindingsFormat.json:
            text = json.dumps(render.envelope(findings), indent=1, ensure_ascii=False) + "\n"
        case FindingsFormat.github:
            text = render.github(findings)
        case FindingsFormat.text:
            text = render.text(findings, _with_texts(texts, found), color=_wants_color(stream))
    typer.echo(text, nl=False, err=not to_stdout)


def _with_texts(texts: dict[str, str], found: "list[Diagnostic]") -> dict[str, str]:
    """``texts`` and those of the other files that findings are about, such as the bases of a spec.

    Of a file with a secret that was left out nothing is shown: the line would show it.  Nor is it of standard input,
    which cannot be read again.
    """
    from servespec.compiler.command_rules import S310

    places = [place for one in found for place in (one.place, *(related.place for related in one.related))]
    with_secret = {one.place.file for one in found if one.rule is S310}
    others = {place.file for place in places if place.range is not None} - texts.keys() - with_secret
    return {**texts, **{name: text for name in others if (text := text_of(name))}}


def _wants_color(stream: Any) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

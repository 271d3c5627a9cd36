"""`serve`: plan, launch, and stay in the foreground."""

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from servespec.cli.application import app
from servespec.cli.options import (
    AllowCode,
    AllowEngine,
    ConfigFile,
    DraftFile,
    Measured,
    PlanFormat,
    Settings,
    Spec,
    options_of,
)
from servespec.cli.reporting import FindingsFormat, compiled, print_findings, reporting, telling, write_text

if TYPE_CHECKING:
    from servespec.compiler.plan import Plan


class OnDrift(StrEnum):
    fail = "fail"
    warn = "warn"


@app.command()
def serve(
    spec: Spec,
    dry_run: Annotated[bool, typer.Option(help="Print the command line and environment, start nothing.")] = False,
    format: Annotated[PlanFormat, typer.Option(help="How a dry run is printed.")] = PlanFormat.text,  # noqa: A002
    ask: Annotated[str | None, typer.Option(metavar="QUESTION", help="Ask one question once ready, then stop.")] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the log, the plan and the record.")
    ] = None,
    on_drift: Annotated[OnDrift, typer.Option(help="What to do when other graphs were captured.")] = OnDrift.fail,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
    measured: Measured = None,
) -> None:
    """Plan, launch the engine, wait until it is ready, and stay in the foreground."""

    options = options_of(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    made = compiled(spec, replace(options, measured=tuple(measured or ())))
    if dry_run:
        write_text(_dry_run(made, format), None)
        return
    raise typer.Exit(_served(made, spec, record, ask, on_drift))


def _dry_run(made: "Plan", format: PlanFormat) -> str:  # noqa: A002
    import shlex

    lowered = made.lowered
    if format is PlanFormat.json:
        return json.dumps({"argv": list(lowered.argv), "env": dict(lowered.env)}, ensure_ascii=False) + "\n"
    return shlex.join([*(f"{name}={value}" for name, value in lowered.env.items()), *lowered.argv]) + "\n"


def _served(made: "Plan", spec: str, record: Path | None, question: str | None, on_drift: OnDrift) -> int:
    from servespec.render.serve_text import dispatch_table, verification_line
    from servespec.runtime.ask import ask as ask_server
    from servespec.runtime.capture_report import verification_steps
    from servespec.runtime.dispatch_counts import read_counts
    from servespec.runtime.own_server import own_key
    from servespec.runtime.serving import run, serving_of

    def task(url: str) -> None:
        assert question is not None
        typer.echo(f"asking: {question}", err=True)
        typer.echo(ask_server(url, question, api_key=own_key()))

    with reporting(spec):
        serving = serving_of(made, record)
        with telling(made) as on_event:
            outcome = run(
                made,
                serving,
                on_event,
                task if question is not None else None,
                fail_on_drift=on_drift is OnDrift.fail,
            )
    if outcome.ready_seconds is not None:
        typer.echo(dispatch_table(read_counts(serving.folder), made.lowered.statistics), err=True, nl=False)
        typer.echo(verification_line(verification_steps(made, serving.folder)), err=True, nl=False)
    if outcome.diagnostics:
        print_findings(list(outcome.diagnostics), {}, FindingsFormat.text, to_stdout=False)
    return outcome.exit_code

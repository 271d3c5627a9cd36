"""`schema`, `explain` and `doctor`: what there is to know about files, names and this machine."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from servespec.cli.application import app
from servespec.cli.exit_codes import EXIT_USAGE
from servespec.cli.options import PlanFormat
from servespec.cli.reporting import reporting, writing


class SchemaName(StrEnum):
    spec = "spec"
    plan = "plan"
    record = "record"
    verification = "verification"
    bench = "bench"
    steps = "steps"
    comparison = "comparison"


@app.command()
def schema(name: Annotated[SchemaName, typer.Argument(help="Which schema.")]) -> None:
    """Print a published JSON Schema (draft 2020-12)."""
    from servespec.compiler.comparison_schema import COMPARISON_SCHEMA
    from servespec.compiler.plan import PLAN_SCHEMA
    from servespec.compiler.record_schema import RECORD_SCHEMA
    from servespec.compiler.spec_schema import spec_schema
    from servespec.runtime.bench.results import BENCH_SCHEMA
    from servespec.runtime.step_times_document import STEP_TIMES_SCHEMA
    from servespec.runtime.verification_document import VERIFICATION_SCHEMA

    documents = {
        SchemaName.plan: PLAN_SCHEMA,
        SchemaName.record: RECORD_SCHEMA,
        SchemaName.verification: VERIFICATION_SCHEMA,
        SchemaName.bench: BENCH_SCHEMA,
        SchemaName.steps: STEP_TIMES_SCHEMA,
        SchemaName.comparison: COMPARISON_SCHEMA,
    }
    typer.echo(json.dumps(documents.get(name) or spec_schema(), indent=1, ensure_ascii=False))


def _complete_name(incomplete: str) -> list[str]:
    from servespec.render.explanation import explained_names

    return [name for name in explained_names() if name.startswith(incomplete)]


@app.command(context_settings={"ignore_unknown_options": True})
def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="A field such as scheduler.max_num_seqs, a value, a code, or a flag or variable of the engine.",
            autocompletion=_complete_name,
        ),
    ],
) -> None:
    """Say what a field, a value or a diagnostic code means: unit, default, rule, source."""
    from servespec.render.explanation import explanation

    text = explanation(name)
    if text.found:
        typer.echo(text.text, nl=False)
        return
    typer.echo(text.text, err=True, nl=False)
    raise typer.Exit(EXIT_USAGE)


@app.command()
def doctor(
    device_file: Annotated[
        Path | None, typer.Option("--device-file", metavar="FILE", help="Describe this machine's GPU in a file.")
    ] = None,
    format: Annotated[PlanFormat, typer.Option(help="How the report is printed.")] = PlanFormat.text,  # noqa: A002
) -> None:
    """Say what this machine has for planning and serving, and what mends what is missing."""
    from servespec.runtime.doctor import readings, write_device_file

    if device_file is not None:
        with reporting(str(device_file), ""), writing(device_file, "--device-file"):
            device = write_device_file(device_file)
        typer.echo(f"wrote {device_file}: {device.device_name}", err=True)
        return
    if format is PlanFormat.json:
        typer.echo(json.dumps([reading.to_json() for reading in readings()], indent=1, ensure_ascii=False))
        return
    for reading in readings():
        typer.echo(f"{reading.name:<11} {reading.said}" + (f"  ({reading.mend})" if reading.mend else ""))

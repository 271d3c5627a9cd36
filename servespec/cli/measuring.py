"""`verify`, `steps` and `bench`: what runs on a GPU and is measured there."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servespec.cli.application import app
from servespec.cli.options import (
    AllowCode,
    AllowEngine,
    Concurrency,
    ConfigFile,
    DraftFile,
    InputTokens,
    Output,
    OutputTokens,
    PlanFormat,
    Prompts,
    RecordFolder,
    Settings,
    Spec,
    options_of,
)
from servespec.cli.output_file import check_output, write_measured
from servespec.cli.reporting import FindingsFormat, compiled, print_findings, reporting, telling, write_text

if TYPE_CHECKING:
    from servespec.runtime.bench.session import BenchEvent
    from servespec.runtime.measured_launch import MeasuredLaunch


@app.command()
def verify(
    spec: Spec,
    format: Annotated[PlanFormat, typer.Option(help="How the result is printed.")] = PlanFormat.text,  # noqa: A002
    output: Output = None,
    record: RecordFolder = None,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """Start the engine, hold every captured graph against an eager run of the same inputs, and stop."""
    from servespec.render.verification_text import verification_text
    from servespec.runtime.verification import verify as verify_plan

    check_output(output)
    options = options_of(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    made = compiled(spec, options)
    with reporting(spec), telling(made) as on_event:
        found = verify_plan(made, record, on_event)
    raise typer.Exit(_told(found, verification_text, format, output))


def _told(
    found: "MeasuredLaunch",
    text_of: Callable[[dict[str, Any]], str],
    format: PlanFormat,  # noqa: A002
    output: Path | None,
) -> int:
    """The exit code of a launch that measured, once its findings and its document are written."""
    from servespec.compiler.json_text import json_text

    print_findings(list(found.outcome.diagnostics), {}, FindingsFormat.text, to_stdout=False)
    text = json_text(found.document) if format is PlanFormat.json else text_of(found.document)
    write_measured(text, output, has_measured=found.has_measured)
    return found.outcome.exit_code


@app.command()
def steps(
    spec: Spec,
    requests: Annotated[
        str, typer.Option(metavar="N,...|auto", help="Decoding requests of a step; auto: sizes that are captured.")
    ] = "auto",
    tokens: Annotated[
        str, typer.Option(metavar="N,...|auto", help="Tokens of a step with prompts; auto: sizes that are captured.")
    ] = "auto",
    repeats: Annotated[int, typer.Option(help="Runs of each size in each mode, in turns.")] = 15,
    format: Annotated[PlanFormat, typer.Option(help="How the result is printed.")] = PlanFormat.text,  # noqa: A002
    output: Output = None,
    record: RecordFolder = None,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """Start the engine, time the same steps with FULL graphs, with PIECEWISE graphs and eagerly, and stop."""
    from servespec.render.step_times_text import step_times_text
    from servespec.runtime.step_times import time_steps, wanted_of

    check_output(output)
    options = options_of(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    made = compiled(spec, options)
    with reporting(spec):
        wanted = wanted_of(made, requests=requests, tokens=tokens, repeats=repeats)
        with telling(made) as on_event:
            found = time_steps(made, wanted, record, on_event)
    raise typer.Exit(_told(found, step_times_text, format, output))


@app.command()
def bench(
    spec: Spec,
    arms: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Ways to serve: stock, spec, a lowering, or a spec file."),
    ] = "stock,legacy,extension",
    concurrency: Concurrency = "1,16,64",
    input_tokens: InputTokens = 256,
    output_tokens: OutputTokens = 128,
    prompts: Prompts = 4,
    rounds: Annotated[int, typer.Option(help="Measured rounds: pairs of every two arms.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the prompts.")] = 0,
    side_by_side: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Keep all arms up at once, each with a KV cache of this size.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Results; a bench goes on where they end.")
    ] = Path("bench.json"),
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for logs and records.")] = None,
    format: Annotated[PlanFormat, typer.Option(help="How the results are printed.")] = PlanFormat.text,  # noqa: A002
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """Measure arms of a spec against each other: interleaved rounds, vLLM's own client, ratios with intervals."""
    from servespec.compiler.json_text import json_text
    from servespec.render.bench_text import bench_text, stopped_line
    from servespec.runtime.bench import command
    from servespec.runtime.bench.design import BenchDesign
    from servespec.runtime.bench.stopping import Stopped

    check_output(output)
    options = options_of(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    with reporting(spec):
        wanted = command.Wanted(
            spec=spec,
            design=BenchDesign(
                arms=command.parsed_list("--arms", arms),
                concurrencies=command.parsed_numbers("--concurrency", concurrency),
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                prompts_per_request=prompts,
                rounds=rounds,
                seed=seed,
                side_by_side_kv_bytes=command.parsed_size("--side-by-side", side_by_side),
            ),
            options=options,
            output=output,
            folder=record or output.with_suffix(".logs"),
            pass_on=command.passed_on(options),
        )
        try:
            results = command.bench(wanted, _tell_bench)
        except Stopped as stopped:
            typer.echo(stopped_line(str(stopped), output if output.exists() else None), err=True)
            raise typer.Exit(128 + stopped.signum) from None
    write_text(json_text(dict(results)) if format is PlanFormat.json else bench_text(results), None)


def _tell_bench(event: "BenchEvent") -> None:
    from servespec.render.bench_text import bench_event_line
    from servespec.runtime.bench.session import Warned

    if isinstance(event, Warned):
        print_findings(list(event.findings), {}, FindingsFormat.text, to_stdout=False)
    else:
        typer.echo(bench_event_line(event), err=True)

"""`profile`, `acceptance`, `predict` and `grid`: curves of step times, and what follows from them."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

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


@app.command()
def profile(
    spec: Spec,
    num_speculative_tokens: Annotated[
        str, typer.Option(metavar="K,...|auto", help="Drafts of a request; auto: K of the spec and its halves to 0.")
    ] = "auto",
    requests: Annotated[
        str, typer.Option(metavar="N,...|auto", help="Decoding requests of a step; auto: up to the widest batch.")
    ] = "auto",
    tokens: Annotated[
        str, typer.Option(metavar="N,...|auto", help="Tokens of a step with prompts; auto: up to the widest step.")
    ] = "auto",
    repeats: Annotated[int, typer.Option(help="Runs of each size.")] = 15,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The curve.")] = Path("curve.json"),
    record: RecordFolder = None,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """Start the engine, time steps of every batch with each K as it would serve them, and stop: a curve."""
    from servespec.compiler.json_text import json_text
    from servespec.render.profile_text import profile_text
    from servespec.runtime.profiling import plan_to_profile, wanted_profile
    from servespec.runtime.step_times import time_steps

    check_output(output)
    options = options_of(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    with reporting(spec):
        made, drafts = plan_to_profile(spec, num_speculative_tokens, options)
        wanted = wanted_profile(made, drafts, requests=requests, tokens=tokens, repeats=repeats)
        with telling(made) as on_event:
            found = time_steps(made, wanted, record, on_event)
    print_findings(list(found.outcome.diagnostics), {}, FindingsFormat.text, to_stdout=False)
    write_measured(json_text(found.document), output, has_measured=found.has_measured)
    write_text(profile_text(found.document), None)
    raise typer.Exit(found.outcome.exit_code)


@app.command()
def acceptance(
    source: Annotated[
        str, typer.Argument(metavar="URL|FILE", help="A running server, or a result of `vllm bench serve`.")
    ],
    seconds: Annotated[
        float,
        typer.Option(
            min=0, max=86_400, help="Count what is drafted in this time; 0 takes all since the server's start."
        ),
    ] = 0,
    format: Annotated[PlanFormat, typer.Option(help="How the rates are printed.")] = PlanFormat.text,  # noqa: A002
    output: Output = None,
) -> None:
    """Read how often drafts are accepted, as a line for `speculative.dynamic`."""
    from servespec.compiler.json_text import json_text
    from servespec.render.acceptance_text import acceptance_line, acceptance_summary
    from servespec.runtime.acceptance_source import measured_acceptance

    with reporting(source, ""):
        found = measured_acceptance(source, seconds)
    print_findings(list(found.findings), {}, FindingsFormat.text, to_stdout=False)
    document = found.to_json()
    typer.echo(acceptance_summary(document), err=True)
    write_text(json_text(document) if format is PlanFormat.json else acceptance_line(document), output)


@app.command()
def predict(
    spec: Spec,
    concurrency: Concurrency = "1,16,64",
    input_tokens: InputTokens = 256,
    output_tokens: OutputTokens = 128,
    prompts: Prompts = 4,
    front_end_ms: Annotated[
        float | None,
        typer.Option(
            "--front-end-ms", min=0, max=60_000, help="What each request takes of client and API server; as fitted."
        ),
    ] = None,
    format: Annotated[PlanFormat, typer.Option(help="How the figures are printed.")] = PlanFormat.text,  # noqa: A002
    output: Output = None,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """What tiers by a curve serve under the traffic of a bench, beside every fixed K; no GPU is needed."""
    from servespec.cli.work_bar import shown
    from servespec.compiler.json_text import json_text
    from servespec.compiler.traffic import TrafficAsked
    from servespec.compiler.traffic_prediction import FRONT_END_SECONDS, predicted_traffic
    from servespec.render.traffic_text import traffic_text
    from servespec.runtime.bench.command import parsed_numbers
    from servespec.runtime.traffic_dice import new_dice

    check_output(output)
    made = compiled(spec, options_of(settings, allow_code, allow_unverified_engine, model_config, draft_config))
    with reporting(spec):
        asked = TrafficAsked(
            concurrencies=parsed_numbers("--concurrency", concurrency),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            prompts_per_request=prompts,
        )
        through = partial(shown, "playing requests")
        front_end_seconds = FRONT_END_SECONDS if front_end_ms is None else front_end_ms / 1000
        document = predicted_traffic(made, asked, new_dice, through, front_end_seconds)
    write_text(json_text(document) if format is PlanFormat.json else traffic_text(document), output)


class GridKind(StrEnum):
    decode = "decode"
    prefill = "prefill"


@app.command()
def grid(
    curves: Annotated[
        list[str], typer.Argument(metavar="CURVE...", help="What `servespec profile` wrote, or several of one engine.")
    ],
    of: Annotated[
        GridKind, typer.Option("--of", help="Decode graphs, in requests, or prefill graphs, in tokens.")
    ] = GridKind.decode,
    num_speculative_tokens: Annotated[
        int | None, typer.Option(min=0, metavar="K", help="Drafts of a decode; the largest K of the curve.")
    ] = None,
    cap: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The largest size; the largest that was timed.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Mean share of a step that padding may cost; the default's.")
    ] = None,
    padded_row_cost: Annotated[
        float, typer.Option(metavar="SHARE", help="What a padded row costs of a real one.")
    ] = 1.0,
    format: Annotated[PlanFormat, typer.Option(help="How the sizes are printed.")] = PlanFormat.text,  # noqa: A002
    output: Output = None,
) -> None:
    """Capture sizes by a measured curve, with what padding costs, beside the default grid."""
    from servespec.compiler.json_text import json_text
    from servespec.render.grid_text import grid_text
    from servespec.runtime.curve_grid import GridWanted, grid_of

    wanted = GridWanted(
        kind=of.value,
        num_speculative_tokens=num_speculative_tokens,
        cap=cap,
        epsilon=epsilon,
        padded_row_cost=padded_row_cost,
    )
    with reporting(curves[0], ""):
        document = grid_of(curves, wanted)
    write_text(json_text(document) if format is PlanFormat.json else grid_text(document), output)

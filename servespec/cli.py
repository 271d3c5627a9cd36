"""The command line: reads arguments, makes one call, prints.  Data goes to stdout, talk to stderr."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servespec import __version__

if TYPE_CHECKING:
    from servespec.compiler.command_line.server_command import ServerCommand
    from servespec.compiler.plan import Plan
    from servespec.diagnostics import Diagnostic, SpecError
    from servespec.presets.catalog import PresetGoal
    from servespec.runtime.gather import Options
    from servespec.runtime.measured_launch import MeasuredLaunch
    from servespec.runtime.migrating import Migrated

app = typer.Typer(
    name="servespec",
    help="Compile one YAML serving spec into the exact CUDA-graph plan of a vLLM server, then launch it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXIT_REFUSED, EXIT_USAGE, EXIT_DOES_NOT_FIT, EXIT_UNSUPPORTED, EXIT_LAUNCH_FAILED, EXIT_DIFFERS = 1, 2, 3, 4, 5, 6
EXIT_OUR_FAULT = 70
STOCK = "stock"
LAUNCH_FAILED_CODES = frozenset({"L030", "L031"})
UNSUPPORTED_CODES = frozenset({"R004", "R005", "R009", "R010", "R011", "R116", "R118", "L027", "L032"})
DOES_NOT_FIT_CODES = frozenset({"P126", "P129"})


class FindingsFormat(StrEnum):
    text = "text"
    json = "json"
    github = "github"


class PlanFormat(StrEnum):
    text = "text"
    json = "json"


class PlanForm(StrEnum):
    text = "text"
    json = "json"
    markdown = "markdown"
    html = "html"


class Emit(StrEnum):
    argv = "argv"
    shell = "shell"
    compose = "compose"
    dockerfile = "dockerfile"


class OnDrift(StrEnum):
    fail = "fail"
    warn = "warn"


class SchemaName(StrEnum):
    spec = "spec"
    plan = "plan"
    record = "record"
    verification = "verification"
    bench = "bench"
    steps = "steps"
    comparison = "comparison"


def _complete_spec(incomplete: str) -> list[str]:
    from servespec.runtime.completion import spec_words

    return list(spec_words(incomplete))


Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC", help="A spec file, preset:NAME, or - for standard input.", autocompletion=_complete_spec
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Lay a value over the spec; repeatable.")
]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Let the spec make the engine run code from elsewhere.")]
AllowEngine = Annotated[
    bool, typer.Option("--allow-unverified-engine", help="Plan an unknown version with the nearest facts.")
]
ConfigFile = Annotated[Path | None, typer.Option(metavar="FILE", help="The model's config.json.")]
DraftFile = Annotated[Path | None, typer.Option(metavar="FILE", help="The draft model's config.json.")]
Measured = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="What an earlier run measured: a record of `serve`, step times; repeatable."),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"servespec {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Shared options."""


@app.command()
def validate(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Specs, plans, records and other files of servespec's, preset:NAME, or -.",
            autocompletion=_complete_spec,
        ),
    ],
    format: Annotated[FindingsFormat, typer.Option(help="How findings are printed.")] = FindingsFormat.text,  # noqa: A002
    strict: Annotated[bool, typer.Option(help="Fail on warnings too.")] = False,
    allow_code: AllowCode = False,
    settings: Settings = None,
) -> None:
    """Check files, each by its kind: what needs no model facts, no network and no machine."""
    from servespec.diagnostics import Severity

    found, texts, kinds = [], {}, []
    for path in paths:
        kind, findings, text = _validated(path, tuple(settings or ()), allow_code)
        found += findings
        texts["<stdin>" if path == "-" else path] = text
        kinds.append(kind)
    _print_findings(found, texts, format, to_stdout=True)
    limit = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    if any(finding.severity in limit for finding in found):
        raise typer.Exit(EXIT_REFUSED)
    if format is FindingsFormat.text:
        typer.echo(_valid_text(kinds), err=True)


def _valid_text(kinds: list[str]) -> str:
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    words = [f"{count} {kind if count == 1 or kind.endswith('s') else f'{kind}s'}" for kind, count in counts.items()]
    return f"{', '.join(words)}: {'it is' if len(kinds) == 1 else 'all are'} valid"


def _validated(path: str, settings: tuple[str, ...], allow_code: bool) -> tuple[str, list["Diagnostic"], str]:
    """What a file is, and what is wrong with it."""
    from servespec.diagnostics import SpecError, in_file_order
    from servespec.runtime.documents import Kind, document_findings, document_of

    try:
        document = document_of(path, settings)
        findings = document_findings(document, allow_code=allow_code)
    except SpecError as error:
        return str(Kind.SPEC), list(error.diagnostics), _text_of(path)
    if settings and document.kind is not Kind.SPEC:
        raise typer.BadParameter(f"it lays values over specs, and `{path}` is none", param_hint="--set")
    text = "" if document.source is None else document.source.text
    return str(document.kind), list(in_file_order(findings)), text


def _text_of(path: str) -> str:
    from servespec.diagnostics import SpecError
    from servespec.runtime.spec_file import spec_bytes
    from servespec.schema.source import excerpt_text

    try:
        return excerpt_text(spec_bytes(path))
    except SpecError:
        return ""


@app.command()
def plan(
    spec: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC | -- vllm serve ...",
            help="A spec file, preset:NAME, -, or a server's command line.",
            autocompletion=_complete_spec,
        ),
    ],
    format: Annotated[  # noqa: A002
        PlanForm,
        typer.Option(help="How the plan is printed; html needs `servespec[page]` and is always against stock."),
    ] = PlanForm.text,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="stock|legacy|FILE",
            help="Show the stock engine beside it, or compare with the legacy list, a spec, a plan or a record.",
        ),
    ] = None,
    details: Annotated[bool, typer.Option(help="Also sizes, resolved values and the launch line.")] = False,
    emit: Annotated[Emit | None, typer.Option(help="Print the launch in this form, and not the plan.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU of a command line, such as h200.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many GPUs a command line has.")] = 1,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
    measured: Measured = None,
) -> None:
    """Show what will be captured and which batch runs from which graph, before anything is launched."""

    options = _options(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    _require_charts(format)
    with_stock = against == STOCK or format is PlanForm.html
    options = replace(options, with_stock=with_stock, measured=tuple(measured or ()))
    if emit is not None:
        _refuse_beside_emit(spec, format, against, details)
        _write(_emitted(spec[0], options, emit), output)
        return
    if len(spec) == 1:
        made, mended = _compiled(spec[0], options), ""
    else:
        made, mended = _command_planned(spec, gpu, count, options)
    if against is not None and against != STOCK:
        raise typer.Exit(_compared(made, against, options, format, details, output))
    text = _plan_output(made.to_json(), format, details)
    _write(text + mended if format is PlanForm.text else text, output)


def _compared(
    made: "Plan",
    against: str,
    options: "Options",
    format: PlanForm,  # noqa: A002
    details: bool,
    output: Path | None,
) -> int:
    """The exit code of a comparison, once it is written."""
    if format not in (PlanForm.text, PlanForm.json):
        raise typer.BadParameter("a comparison is printed as text or json", param_hint="--format")
    from servespec.compiler.comparison import compared
    from servespec.compiler.json_text import json_text
    from servespec.render.comparison_text import comparison_text
    from servespec.runtime.comparing import plan_against

    name = made.resolution.request.source.name
    with _reporting(against):
        other = plan_against(against, made, options)
    comparison = compared(other, made.to_json(), (against, name))
    text = json_text(comparison) if format is PlanForm.json else comparison_text(comparison, details=details)
    _write(text, output)
    return 0 if comparison["same"] else EXIT_DIFFERS


def _refuse_beside_emit(
    spec: list[str],
    format: PlanForm,  # noqa: A002
    against: str | None,
    details: bool,
) -> None:
    if len(spec) > 1:
        message = "it takes a spec: a command line is a launch already; write the spec that mends it to a file"
        raise typer.BadParameter(message, param_hint="--emit")
    if format is not PlanForm.text or against is not None or details:
        message = "it prints the launch and not the plan, so `--format`, `--against` and `--details` say nothing of it"
        raise typer.BadParameter(message, param_hint="--emit")


def _emitted(spec: str, options: "Options", emit: Emit) -> str:
    """The launch of a spec in a form that others start."""
    from servespec.compiler.container import container_of, official_image
    from servespec.render.launch_compose import launch_compose
    from servespec.render.launch_dockerfile import dockerfile
    from servespec.render.launch_script import launch_argv, launch_script
    from servespec.runtime.gather import model_folders

    made = _compiled(spec, options)
    document, folders, name = made.to_json(), model_folders(made), made.resolution.request.source.name
    with _reporting(spec):
        match emit:
            case Emit.argv:
                if document["launch"]["env"]:
                    variables = ", ".join(document["launch"]["env"])
                    typer.echo(f"the launch also sets {variables}: `--emit shell` and `compose` do", err=True)
                return launch_argv(document)
            case Emit.shell:
                return launch_script(document, name, folders)
            case Emit.compose:
                return launch_compose(document, name, container_of(made, folders))
            case Emit.dockerfile:
                return dockerfile(official_image(made), __version__)


def _command_planned(words: list[str], gpu: str | None, count: int, options: "Options") -> tuple["Plan", str]:
    """The plan of a server's command line, and the spec that would mend it."""
    from servespec.runtime.command_file import mended_spec, plan_of_command

    if gpu is None:
        raise typer.BadParameter("a command line does not say which GPU it is for", param_hint="--gpu")
    with _reporting("command line", ""):
        made, command = plan_of_command(words, gpu, count, options)
    _print_findings([*command.leftovers, *made.diagnostics], {}, FindingsFormat.text, to_stdout=False)
    return made, f"\na spec that mends it:\n\n{mended_spec(made, command)}"


def _require_charts(format: PlanForm) -> None:  # noqa: A002
    if format is not PlanForm.html:
        return
    from servespec.render.page.drawing import is_installed

    if not is_installed():
        message = (
            "`html` draws its charts with vl-convert-python, which is not installed: pip install 'servespec[page]'"
        )
        raise typer.BadParameter(message, param_hint="--format")


def _plan_output(document: dict[str, Any], format: PlanForm, details: bool) -> str:  # noqa: A002
    from servespec.compiler.json_text import json_text

    match format:
        case PlanForm.json:
            return json_text(document)
        case PlanForm.markdown:
            from servespec.render.plan_markdown import plan_markdown

            return plan_markdown(document)
        case PlanForm.html:
            from servespec.render.page.document import plan_page

            return plan_page(document)
        case PlanForm.text:
            from servespec.render.plan_text import plan_text

            return plan_text(document, details=details)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


@app.command("import")
def import_command(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | -- vllm serve ...",
            help="A script, Markdown, a vLLM recipe, the YAML of --config, -, or a server's command line.",
        ),
    ],
    gpu: Annotated[str, typer.Option(help="The GPU that it runs on, such as h200.")],
    count: Annotated[int | None, typer.Option(min=1, help="How many GPUs; what the layout needs if not said.")] = None,
    number: Annotated[
        int | None, typer.Option("--command", metavar="N", min=1, help="Which command of a file that holds several.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
    settings: Settings = None,
) -> None:
    """Turn a server's command line, or a file that holds one, into a spec that launches the same."""
    from servespec.diagnostics import has_errors
    from servespec.runtime.importing import IMPORTED, commands_of, imported

    with _reporting(command[0]):
        chosen = _chosen(commands_of(command), number)
        done = imported(chosen, gpu, count, tuple(settings or ()))
    _print_findings(list(done.leftovers), {}, FindingsFormat.text, to_stdout=False)
    _print_findings(list(done.findings), {IMPORTED: done.text}, FindingsFormat.text, to_stdout=False)
    _write(done.text, output)
    if has_errors((*done.leftovers, *done.findings)):
        raise typer.Exit(EXIT_REFUSED)


def _chosen(commands: "tuple[ServerCommand, ...]", number: int | None) -> "ServerCommand":
    """The one command, or the one that a number names; never silently the first of several."""
    if number is None and len(commands) == 1:
        return commands[0]
    if number is not None and number <= len(commands):
        return commands[number - 1]
    listed = "\n".join(f"  {at}  {command.title}" for at, command in enumerate(commands, 1))
    message = f"the file holds {len(commands)} commands; name one with `--command N`:\n{listed}"
    raise typer.BadParameter(message, param_hint="--command")


@app.command()
def migrate(
    spec: Spec,
    write: Annotated[bool, typer.Option("--write", help="Change the file in place.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if there is something to.")] = False,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """Move a spec from the legacy capture fields to the new ones, and say which graphs that changes."""
    from servespec.runtime.migrating import RefusedAfterError, legacy_findings, migrated, write_spec
    from servespec.runtime.spec_file import read_spec

    if write and (check or spec == "-"):
        raise typer.BadParameter("it changes a file, so it takes one, and no `--check`", param_hint="--write")
    options = _options(None, allow_code, allow_unverified_engine, model_config, draft_config)
    with _reporting(spec):
        source = read_spec(spec)
    with _reporting(source.name, source.text):
        legacy = legacy_findings(source, allow_code=allow_code)
    if not legacy:
        _write("" if write or check else source.own.text, None)
        typer.echo(f"{source.name}: nothing to migrate", err=True)
        return
    if check:
        _print_findings(list(legacy), {source.name: source.text}, FindingsFormat.text, to_stdout=False)
        raise typer.Exit(EXIT_REFUSED)
    with _reporting(source.name, source.text):
        try:
            done = migrated(source, options)
        except RefusedAfterError as error:
            typer.echo(f"{source.name}: the spec can stay as it is; migrated, it would be refused", err=True)
            with _reporting(source.name, error.text):
                raise
        if write:
            write_spec(Path(spec), done.migration.text)
    _tell_migration(source.name, done)
    _write("" if write else done.migration.text, None)


def _tell_migration(name: str, done: "Migrated") -> None:
    """What became of the fields, and what of the graphs."""
    from servespec.render.migration_text import migration_text

    typer.echo(migration_text(name, done.migration.changes, done.before.to_json(), done.after.to_json()), err=True)


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

    options = _options(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    made = _compiled(spec, replace(options, measured=tuple(measured or ())))
    if dry_run:
        _write(_dry_run(made, format), None)
        return
    raise typer.Exit(_served(made, spec, record, ask, on_drift))


def _dry_run(made: "Plan", format: PlanFormat) -> str:  # noqa: A002
    from servespec.render.plan_text import shell_line

    lowered = made.lowered
    if format is PlanFormat.json:
        return json.dumps({"argv": list(lowered.argv), "env": dict(lowered.env)}, ensure_ascii=False) + "\n"
    return shell_line([*(f"{name}={value}" for name, value in lowered.env.items()), *lowered.argv]) + "\n"


def _served(made: "Plan", spec: str, record: Path | None, question: str | None, on_drift: OnDrift) -> int:
    from servespec.render.serve_text import dispatch_table, event_line
    from servespec.runtime.ask import ask as ask_server
    from servespec.runtime.dispatch_counts import read_counts
    from servespec.runtime.serving import run, serving_of

    def task(url: str) -> None:
        assert question is not None
        typer.echo(f"asking: {question}", err=True)
        typer.echo(ask_server(url, question))

    with _reporting(spec):
        serving = serving_of(made, record)
    outcome = run(
        made,
        serving,
        lambda event: typer.echo(event_line(event, made), err=True),
        task if question is not None else None,
        fail_on_drift=on_drift is OnDrift.fail,
    )
    if outcome.ready_seconds is not None:
        typer.echo(dispatch_table(read_counts(serving.folder), made.lowered.statistics), err=True, nl=False)
    if outcome.diagnostics:
        _print_findings(list(outcome.diagnostics), {}, FindingsFormat.text, to_stdout=False)
    return outcome.exit_code


@app.command()
def verify(
    spec: Spec,
    format: Annotated[PlanFormat, typer.Option(help="How the result is printed.")] = PlanFormat.text,  # noqa: A002
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the log and the results.")] = None,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """Start the engine, hold every captured graph against an eager run of the same inputs, and stop."""
    from servespec.render.serve_text import event_line
    from servespec.render.verification_text import verification_text
    from servespec.runtime.verification import verify as verify_plan

    options = _options(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    made = _compiled(spec, options)
    with _reporting(spec):
        found = verify_plan(made, record, lambda event: typer.echo(event_line(event, made), err=True))
    raise typer.Exit(_told(found, verification_text, format, output))


def _told(
    found: "MeasuredLaunch",
    text_of: Callable[[dict[str, Any]], str],
    format: PlanFormat,  # noqa: A002
    output: Path | None,
) -> int:
    """The exit code of a launch that measured, once its findings and its document are written."""
    from servespec.compiler.json_text import json_text

    _print_findings(list(found.outcome.diagnostics), {}, FindingsFormat.text, to_stdout=False)
    _write(json_text(found.document) if format is PlanFormat.json else text_of(found.document), output)
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
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the log and the results.")] = None,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
) -> None:
    """Start the engine, time the same steps with FULL graphs, with PIECEWISE graphs and eagerly, and stop."""
    from servespec.render.serve_text import event_line
    from servespec.render.step_times_text import step_times_text
    from servespec.runtime.step_times import time_steps, wanted_of

    options = _options(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    made = _compiled(spec, options)
    with _reporting(spec):
        wanted = wanted_of(made, requests=requests, tokens=tokens, repeats=repeats)
        found = time_steps(made, wanted, record, lambda event: typer.echo(event_line(event, made), err=True))
    raise typer.Exit(_told(found, step_times_text, format, output))


@app.command()
def bench(
    spec: Spec,
    arms: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Ways to serve: stock, spec, a lowering, or a spec file."),
    ] = "stock,legacy,extension",
    concurrency: Annotated[str, typer.Option(metavar="N,...", help="Requests at a time, in requests.")] = "1,16,64",
    input_tokens: Annotated[int, typer.Option(help="Prompt of one request, in tokens.")] = 256,
    output_tokens: Annotated[int, typer.Option(help="Answer of one request, in tokens.")] = 128,
    prompts: Annotated[int, typer.Option(help="Prompts for each request at a time.")] = 4,
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
    from servespec.render.bench_text import bench_event_line, bench_text
    from servespec.runtime.bench import command
    from servespec.runtime.bench.design import BenchDesign

    options = _options(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    with _reporting(spec):
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
        results = command.bench(wanted, lambda event: typer.echo(bench_event_line(event), err=True))
    _write(json_text(dict(results)) if format is PlanFormat.json else bench_text(results), None)


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


@app.command(context_settings={"ignore_unknown_options": True})
def explain(
    name: Annotated[str, typer.Argument(help="A field such as scheduler.max_num_seqs, a value, or a code.")],
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
) -> None:
    """Say what this machine has for planning and serving, and what mends what is missing."""
    from servespec.runtime.doctor import readings, write_device_file

    if device_file is not None:
        with _reporting(str(device_file), ""):
            device = write_device_file(device_file)
        typer.echo(f"wrote {device_file}: {device.device_name}", err=True)
        return
    for reading in readings():
        typer.echo(f"{reading.name:<11} {reading.said}" + (f"  ({reading.mend})" if reading.mend else ""))


# Presets and first specs


presets_app = typer.Typer(
    name="presets", help="Specs that come with servespec: find one, and read it.", no_args_is_help=True
)
app.add_typer(presets_app)


class ListFormat(StrEnum):
    text = "text"
    json = "json"


def _complete_preset(incomplete: str) -> list[str]:
    from servespec.presets.catalog import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def _complete_gpu(incomplete: str) -> list[str]:
    from servespec.compiler.facts.devices import DEVICES

    return [name for name in DEVICES if name.startswith(incomplete)]


def _complete_goal(incomplete: str) -> list[str]:
    from servespec.presets.catalog import PresetGoal

    return [goal.value for goal in PresetGoal if goal.value.startswith(incomplete)]


@presets_app.command("list")
def list_presets(
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[xCOUNT]", help="Of this GPU, such as h200 or gb200x4.", autocompletion=_complete_gpu
        ),
    ] = None,
    goal: Annotated[
        str | None, typer.Option(metavar="GOAL", help="For this goal, such as latency.", autocompletion=_complete_goal)
    ] = None,
    format: Annotated[ListFormat, typer.Option(help="How the list is printed.")] = ListFormat.text,  # noqa: A002
) -> None:
    """Name the presets, with what each is for and whether it was measured."""
    from servespec.presets.catalog import presets
    from servespec.render.preset_text import preset_list

    machine = None if gpu is None else _machine(gpu)
    wanted = None if goal is None else _goal(goal)
    found = [
        preset.to_json()
        for preset in presets()
        if (machine is None or gpu in (preset.gpu, f"{preset.gpu}x{preset.count}"))
        and (wanted is None or preset.goal is wanted)
    ]
    _write(preset_list(found) if format is ListFormat.text else json.dumps(found, indent=1) + "\n", None)
    if not found:
        typer.echo("no preset is for that; `servespec init` writes a spec of your own", err=True)


@presets_app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A preset's name.", autocompletion=_complete_preset)],
) -> None:
    """Print a preset: a spec to read, or to write to a file and change."""
    from servespec.presets.catalog import PRESET_PREFIX
    from servespec.runtime.spec_file import spec_bytes

    argument = f"{PRESET_PREFIX}{name.removeprefix(PRESET_PREFIX)}"
    with _reporting(argument):
        text = spec_bytes(argument).decode("utf-8")
    typer.echo(text, nl=False)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The spec to write.")] = Path("spec.yaml"),
    model: Annotated[
        str | None, typer.Option(metavar="ID", help="The model: its name on the hub, or a folder.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME[xCOUNT]", help="The GPUs, such as h200 or gb200x4.", autocompletion=_complete_gpu),
    ] = None,
    goal: Annotated[
        str | None, typer.Option(metavar="GOAL", help="What it is for, such as latency.", autocompletion=_complete_goal)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Write a commented spec; asks on a terminal for what the options do not say."""
    from servespec.presets.starting import GOAL_VALUES, starting_spec
    from servespec.runtime.probe import this_machine

    if file.exists() and not force:
        raise typer.BadParameter(f"`{file}` exists; name another, or pass `--force`", param_hint="FILE")
    named = _from_spec(model or _asked("--model", "model (its name on the hub, or a folder)", None), file)
    machine = _machine(gpu or _asked("--gpu", "GPUs, such as h200 or gb200x4", this_machine() or None))
    wanted = _goal(goal or _asked("--goal", f"goal ({', '.join(GOAL_VALUES)})", "balanced"))
    made = starting_spec(named, *machine, wanted)
    if made is None:
        message = f"only presets are for `{wanted}`; without one it takes {', '.join(GOAL_VALUES)}"
        raise typer.BadParameter(message, param_hint="--goal")
    _write_new(file, made.text, force)
    typer.echo(f"wrote {file}, from {f'preset:{made.preset}' if made.preset else 'the values of the goal'}", err=True)
    typer.echo(f"next: servespec plan {file}", err=True)


def _from_spec(model: str, file: Path) -> str:
    """A folder as the spec names it, from the spec's own folder; any other name as it is."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    return os.path.join(os.curdir, os.path.relpath(folder, file.parent))  # noqa: PTH118 - a Path drops the dot


def _write_new(file: Path, text: str, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        reason = (error.strerror or "unwritable").lower()
        raise typer.BadParameter(f"cannot write `{file}`: {reason}", param_hint="FILE") from None


def _asked(option: str, question: str, default: str | None) -> str:
    """What a person answers; without a terminal there is nobody to ask."""
    if not _is_terminal():
        raise typer.BadParameter("it is needed where there is no terminal to ask on", param_hint=option)
    answer: str = typer.prompt(question, default=default, err=True)
    if not answer.strip():
        raise typer.BadParameter("the answer is empty", param_hint=option)
    return answer.strip()


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _machine(gpu: str) -> tuple[str, int]:
    from servespec.compiler.facts.devices import DEVICES
    from servespec.presets.catalog import machine_of

    name, count = machine_of(gpu)
    if name not in DEVICES:
        raise typer.BadParameter(f"`{name}` is not in the device table: {', '.join(DEVICES)}", param_hint="--gpu")
    return name, count


def _goal(text: str) -> "PresetGoal":
    from servespec.presets.catalog import PresetGoal

    try:
        return PresetGoal(text)
    except ValueError:
        raise typer.BadParameter(f"it takes {', '.join(PresetGoal)}", param_hint="--goal") from None


# Shared


def _options(
    settings: list[str] | None,
    allow_code: bool,
    allow_unverified_engine: bool,
    model_config: Path | None,
    draft_config: Path | None,
) -> "Options":
    from servespec.runtime.gather import Options

    return Options(
        settings=tuple(settings or ()),
        allow_code=allow_code,
        allow_unverified_engine=allow_unverified_engine,
        model_config=model_config,
        draft_config=draft_config,
    )


def _compiled(spec: str, options: "Options") -> "Plan":
    """The plan, its findings on stderr."""
    from servespec.compiler.pipeline import compile_spec
    from servespec.runtime.gather import compile_request
    from servespec.runtime.spec_file import read_spec

    with _reporting(spec):
        source = read_spec(spec, options.settings)
    with _reporting(source.name, source.text):
        made = compile_spec(compile_request(source, options))
    _print_findings(list(made.diagnostics), dict(source.texts), FindingsFormat.text, to_stdout=False)
    return made


@contextmanager
def _reporting(spec: str, text: str | None = None) -> Iterator[None]:
    """The one place where a refused spec becomes text and an exit code."""
    from servespec.diagnostics import SpecError

    try:
        yield
    except SpecError as error:
        texts = {spec: _text_of(spec) if text is None else text}
        _print_findings(list(error.diagnostics), texts, FindingsFormat.text, to_stdout=False)
        raise typer.Exit(_refusal_code(error)) from None


def _refusal_code(error: "SpecError") -> int:
    """Of what was refused, or could not be done."""
    from servespec.diagnostics import Severity

    codes = {finding.code for finding in error.diagnostics if finding.severity is Severity.ERROR}
    if codes & UNSUPPORTED_CODES:
        return EXIT_UNSUPPORTED
    if codes & LAUNCH_FAILED_CODES:
        return EXIT_LAUNCH_FAILED
    return EXIT_DOES_NOT_FIT if codes and codes <= DOES_NOT_FIT_CODES else EXIT_REFUSED


def _print_findings(
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

    Of a file with a secret that was left out nothing is shown: the line would show it.
    """
    from servespec.compiler.command_rules import S310

    places = [place for one in found for place in (one.place, *(related.place for related in one.related))]
    with_secret = {one.place.file for one in found if one.rule is S310}
    others = {place.file for place in places if place.range is not None} - texts.keys() - with_secret
    return {**texts, **{name: _text_of(name) for name in others}}


def _wants_color(stream: Any) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def main() -> None:
    """Entry point; what is not a user's mistake ends with its own exit code."""
    if os.environ.get("_SERVESPEC_COMPLETE") == "complete_bash":
        from servespec.runtime.completion import mend_broken_word

        mend_broken_word(os.environ)
    try:
        app()
    except (KeyboardInterrupt, BrokenPipeError):
        raise SystemExit(130) from None
    except AssertionError:
        traceback.print_exc()
        typer.echo("this is a fault of servespec, not of your spec; please report it with the lines above", err=True)
        raise SystemExit(EXIT_OUR_FAULT) from None

"""`plan`: what will be captured, as text, JSON, Markdown or a page; beside another plan; or as the launch."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servespec import __version__
from servespec.cli.application import app
from servespec.cli.exit_codes import EXIT_DIFFERS
from servespec.cli.machines import complete_gpu, machine_for_command
from servespec.cli.options import (
    AllowCode,
    AllowEngine,
    ConfigFile,
    DraftFile,
    Measured,
    Output,
    Settings,
    complete_spec,
    options_of,
)
from servespec.cli.reporting import (
    FindingsFormat,
    compiled,
    planned,
    print_findings,
    reporting,
    shares_terminal,
    write_text,
)
from servespec.cli.waiting import waiting

if TYPE_CHECKING:
    from servespec.compiler.command_line import Mended
    from servespec.compiler.plan import Plan
    from servespec.diagnostics import Diagnostic
    from servespec.runtime.gather import Options


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


STOCK = "stock"


def _complete_against(incomplete: str) -> list[str]:
    return [*(name for name in (STOCK, "legacy") if name.startswith(incomplete)), *complete_spec(incomplete)]


@app.command()
def plan(
    spec: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC | -- vllm serve ...",
            help="A spec file, preset:NAME, -, or a server's command line.",
            autocompletion=complete_spec,
        ),
    ],
    format: Annotated[  # noqa: A002
        PlanForm,
        typer.Option(help="How the plan is printed; html needs `servespec[page]` and is always against stock."),
    ] = PlanForm.text,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="stock|legacy|SPEC|FILE",
            help="Show the stock engine beside it, or compare with the legacy list, a spec, a plan or a record.",
            autocompletion=_complete_against,
        ),
    ] = None,
    details: Annotated[bool, typer.Option(help="Also sizes, resolved values and the launch line.")] = False,
    emit: Annotated[Emit | None, typer.Option(help="Print the launch in this form, and not the plan.")] = None,
    output: Output = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[xCOUNT]", help="The GPUs of a command line, such as h200.", autocompletion=complete_gpu
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many GPUs a command line has; what the layout needs if not said.")
    ] = None,
    settings: Settings = None,
    allow_code: AllowCode = False,
    allow_unverified_engine: AllowEngine = False,
    model_config: ConfigFile = None,
    draft_config: DraftFile = None,
    measured: Measured = None,
) -> None:
    """Show what will be captured and which batch runs from which graph, before anything is launched."""

    options = options_of(settings, allow_code, allow_unverified_engine, model_config, draft_config)
    if len(spec) == 1:
        _refuse_beside_spec(gpu, count)
    _require_charts(format)
    with_stock = against == STOCK or format is PlanForm.html
    options = replace(options, with_stock=with_stock, measured=tuple(measured or ()))
    if emit is not None:
        _refuse_beside_emit(spec, format, against, details)
        write_text(_emitted(spec[0], options, emit), output)
        return
    done = _spec_planned(spec[0], options) if len(spec) == 1 else _command_planned(spec, gpu, count, options)
    if against is not None and against != STOCK:
        done.tell()
        raise typer.Exit(_compared(done.plan, against, options, format, details, output))
    text = _plan_output(done.plan.to_json(), format, details)
    # The verdict first: on a terminal the findings would push it far down, or out of sight.
    plan_first = output is None and shares_terminal()
    if not plan_first:
        done.tell()
    write_text(text + done.mended if format is PlanForm.text else text, output)
    if plan_first and done.findings:
        typer.echo(err=True)
        done.tell()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A plan with what is to be said of it; ``mended`` follows the plan of a command line."""

    plan: "Plan"
    findings: "tuple[Diagnostic, ...]"
    texts: dict[str, str]
    mended: str = ""

    def tell(self) -> None:
        print_findings(list(self.findings), self.texts, FindingsFormat.text, to_stdout=False)


def _spec_planned(spec: str, options: "Options") -> _Planned:
    made, texts = planned(spec, options)
    return _Planned(plan=made, findings=made.diagnostics, texts=texts)


def _refuse_beside_spec(gpu: str | None, count: int | None) -> None:
    """A spec says its machine itself, so an option that says another would be passed over."""
    for option, field, value in (("--gpu", "gpu", gpu), ("--count", "count", count)):
        if value is not None:
            message = f"it is for a command line; over a spec lay `--set hardware.{field}={value}`"
            raise typer.BadParameter(message, param_hint=option)


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
    from servespec.runtime.comparing import drift_findings, plan_against

    name = made.resolution.request.source.name
    with reporting(against):
        other = plan_against(against, made, options)
    print_findings(list(drift_findings(other, against)), {}, FindingsFormat.text, to_stdout=False)
    comparison = compared(other, made.to_json(), (against, name))
    text = json_text(comparison) if format is PlanForm.json else comparison_text(comparison, details=details)
    write_text(text, output)
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

    made = compiled(spec, options)
    document, folders, name = made.to_json(), model_folders(made), made.resolution.request.source.name
    with reporting(spec):
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


def _command_planned(words: list[str], gpu: str | None, count: int | None, options: "Options") -> _Planned:
    """The plan of a server's command line, and the spec that would mend it."""
    from servespec.runtime.command_file import mended_spec, plan_of_command

    if gpu is None:
        raise typer.BadParameter("a command line does not say which GPU it is for", param_hint="--gpu")
    machine = machine_for_command(gpu, count)
    with reporting("command line", ""), waiting("planning"):
        made, command = plan_of_command(words, machine, options)
    findings, mended = (*command.leftovers, *made.diagnostics), _mended_text(mended_spec(made, command))
    return _Planned(plan=made, findings=findings, texts={}, mended=mended)


def _mended_text(mended: "Mended") -> str:
    if mended.text:
        return f"\na spec that mends it:\n\n{mended.text}"
    return f"\nno spec mends it: {mended.obstacle}\n" if mended.obstacle else ""


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

            with waiting("drawing the page"):
                return plan_page(document)
        case PlanForm.text:
            from servespec.render.plan_text import plan_text

            return plan_text(document, details=details)

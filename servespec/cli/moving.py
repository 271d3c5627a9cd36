"""`import` and `migrate`: from what people have to a spec of today."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from servespec.cli.application import app
from servespec.cli.exit_codes import EXIT_REFUSED
from servespec.cli.machines import complete_gpu, machine_for_command
from servespec.cli.options import AllowCode, AllowEngine, ConfigFile, DraftFile, Output, Settings, Spec, options_of
from servespec.cli.reporting import FindingsFormat, print_findings, reporting, write_text

if TYPE_CHECKING:
    from servespec.compiler.command_line.server_command import ServerCommand
    from servespec.runtime.migrating import Migrated


@app.command("import")
def import_command(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | -- vllm serve ...",
            help="A script, Markdown, a vLLM recipe, a Compose file or Kubernetes manifest, the YAML of --config, -, "
            "or a server's command line.",
        ),
    ],
    gpu: Annotated[
        str,
        typer.Option(
            metavar="NAME[xCOUNT]", help="The GPUs that it runs on, such as h200.", autocompletion=complete_gpu
        ),
    ],
    count: Annotated[int | None, typer.Option(min=1, help="How many GPUs; what the layout needs if not said.")] = None,
    number: Annotated[
        int | None, typer.Option("--command", metavar="N", min=1, help="Which command of a file that holds several.")
    ] = None,
    output: Output = None,
    settings: Settings = None,
) -> None:
    """Turn a server's command line, or a file that holds one, into a spec that launches the same."""
    from servespec.diagnostics import has_errors
    from servespec.runtime.importing import IMPORTED, commands_of, imported

    machine = machine_for_command(gpu, count)
    with reporting(command[0]):
        chosen = _chosen(commands_of(command), number)
        done = imported(chosen, *machine, tuple(settings or ()))
    print_findings(list(done.leftovers), {}, FindingsFormat.text, to_stdout=False)
    print_findings(list(done.findings), {IMPORTED: done.text}, FindingsFormat.text, to_stdout=False)
    write_text(done.text, output)
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
    options = options_of(None, allow_code, allow_unverified_engine, model_config, draft_config)
    with reporting(spec):
        source = read_spec(spec)
    with reporting(source.name, source.text):
        legacy = legacy_findings(source, allow_code=allow_code)
    if not legacy:
        write_text("" if write or check else source.own.text, None)
        typer.echo(f"{source.name}: nothing to migrate", err=True)
        return
    if check:
        print_findings(list(legacy), {source.name: source.text}, FindingsFormat.text, to_stdout=False)
        raise typer.Exit(EXIT_REFUSED)
    with reporting(source.name, source.text):
        try:
            done = migrated(source, options)
        except RefusedAfterError as error:
            typer.echo(f"{source.name}: the spec can stay as it is; migrated, it would be refused", err=True)
            with reporting(source.name, error.text):
                raise
        if write:
            write_spec(Path(spec), done.migration.text)
    _tell_migration(source.name, done)
    write_text("" if write else done.migration.text, None)


def _tell_migration(name: str, done: "Migrated") -> None:
    """What became of the fields, and what of the graphs."""
    from servespec.render.migration_text import migration_text

    typer.echo(migration_text(name, done.migration.changes, done.before.to_json(), done.after.to_json()), err=True)

"""The program itself, which commands add themselves to."""

from typing import Annotated

import typer

from servespec import __version__

app = typer.Typer(
    name="servespec",
    help="Compile one YAML serving spec into the exact CUDA-graph plan of a vLLM server, then launch it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"servespec {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Shared options."""

"""The file that `-o` names where a GPU measures: looked at before anything starts, kept where nothing was measured."""

import os
from pathlib import Path

import typer

from servespec.cli.reporting import write_text


def check_output(output: Path | None) -> None:
    """Raises a usage error where the file could not be written: a run of minutes would be lost at its end."""
    fault = None if output is None else _fault(output)
    if fault is not None:
        raise typer.BadParameter(f"`{output}` {fault}; name another file", param_hint="--output")


def _fault(path: Path) -> str | None:
    try:
        if path.is_dir():
            return "is a folder"
        if not path.parent.is_dir():
            return f"lies in `{path.parent}`, which is no folder"
        return None if os.access(path if path.exists() else path.parent, os.W_OK) else "cannot be written"
    except OSError as error:
        return f"cannot be reached: {error.strerror}"


def write_measured(text: str, output: Path | None, *, has_measured: bool) -> None:
    """What a run that measured nothing has to say takes the place of no earlier result."""
    if output is None or has_measured:
        write_text(text, output)
        return
    kept = "was left as it was" if output.exists() else "was not written"
    typer.echo(f"nothing was measured: `{output}` {kept}", err=True)

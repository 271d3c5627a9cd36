"""The commands of the program, as a person types them."""

from collections.abc import Iterator
from typing import Any

import typer

from servespec.cli import app


def commands_of(group: Any = None) -> Iterator[tuple[str, Any]]:
    """(words, command) of every command that can be run, those of groups with the group's name before theirs."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {inner}", one) for inner, one in commands_of(command))
        else:
            yield name, command

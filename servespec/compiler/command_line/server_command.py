"""One command of a file that starts a server."""

from dataclasses import dataclass

from servespec.compiler.command_line.word import Word
from servespec.diagnostics import Diagnostic, Place


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """``words`` with their places, variables first; ``found`` is what the file says of it and no word can carry."""

    title: str
    place: Place
    words: tuple[Word, ...]
    found: tuple[Diagnostic, ...] = ()

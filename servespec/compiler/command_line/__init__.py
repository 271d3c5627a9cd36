"""From a command line that people already have to a spec, and back to one that mends it."""

from servespec.compiler.command_line.mending import Mended, mended
from servespec.compiler.command_line.reading import (
    CommandLine,
    as_it_listens,
    command_line_source,
    read_command_line,
)

__all__ = ["CommandLine", "Mended", "as_it_listens", "command_line_source", "mended", "read_command_line"]

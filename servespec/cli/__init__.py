"""The command line: reads arguments, makes one call, prints.  Data goes to stdout, talk to stderr.

Each command stands in a module named for what people want of it.
"""

import atexit
import gc
import os
import sys
from importlib import import_module
from typing import Final

from servespec.cli.application import app
from servespec.cli.our_fault import OurFault

_COMMANDS: Final = ("validating", "planning", "moving", "serving", "measuring", "curves", "explaining", "starting")
"""Modules that add their commands, in the order in which help lists them."""
_NEW_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000

for _name in _COMMANDS:
    import_module(f"{__name__}.{_name}")


def main() -> None:
    """Entry point; what is not a user's mistake ends with its own exit code."""
    _collect_seldom()
    _open_closed_streams()
    if os.environ.get("_SERVESPEC_COMPLETE") == "complete_bash":
        from servespec.runtime.completion import mend_broken_word

        mend_broken_word(os.environ)
    try:
        with OurFault():
            app()
    except (KeyboardInterrupt, BrokenPipeError):
        raise SystemExit(130) from None


def _open_closed_streams() -> None:
    """A service may start us without one; the next file would take its number, and what is said be written into it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The least that is free, so that of the three each gets its own.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, closefd=False))


def _collect_seldom() -> None:
    """Spares looking for reference cycles, of which a command makes few, while modules load and when it ends."""
    gc.set_threshold(_NEW_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)

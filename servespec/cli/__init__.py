"""The command line: reads arguments, makes one call, prints.  Data goes to stdout, talk to stderr.

Each command stands in a module named for what people want of it.
"""

import os
from importlib import import_module
from typing import Final

from servespec.cli.application import app
from servespec.cli.our_fault import OurFault

_COMMANDS: Final = ("validating", "planning", "moving", "serving", "measuring", "curves", "explaining", "starting")
"""Modules that add their commands, in the order in which help lists them."""

for _name in _COMMANDS:
    import_module(f"{__name__}.{_name}")


def main() -> None:
    """Entry point; what is not a user's mistake ends with its own exit code."""
    if os.environ.get("_SERVESPEC_COMPLETE") == "complete_bash":
        from servespec.runtime.completion import mend_broken_word

        mend_broken_word(os.environ)
    try:
        with OurFault():
            app()
    except (KeyboardInterrupt, BrokenPipeError):
        raise SystemExit(130) from None

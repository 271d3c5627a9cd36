"""The folder of a launch, with its log, its plan, its record and what workers leave: one command's at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.run_rules import LOG_UNWRITABLE

_WRITABLE: Final = "name a folder that you can write to"


@contextmanager
def launch_folder(folder: Path) -> Iterator[None]:
    """Makes ``folder``, which is nobody else's while the block runs.

    Raises SpecError where it cannot be made, or where another command has it: a second launch would cut the log of the
    first, take its workers' reports away and write over its record.
    """
    with written_in(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _claim(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def written_in(folder: Path) -> Iterator[None]:
    """Raises SpecError where what the block writes in ``folder`` cannot be written."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SpecError(
            [_refused(folder, f"for the log and the records cannot be written: {why}", _WRITABLE)]
        ) from None


def _claim(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        finding = _refused(folder, "is in use by another servespec that still runs", "stop that one, or name another")
        raise SpecError([finding]) from None
    except OSError:
        # A file system of a network may have no locks for folders: nobody can be told from us there.
        return


def _refused(folder: Path, why: str, help_text: str) -> Diagnostic:
    return LOG_UNWRITABLE.at(Place(str(folder)), f"the folder `{folder}` {why}", f"{help_text}: `--record DIR`")

"""Files that are there whole or not at all; private ones only their owner can read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from typing import BinaryIO


def write_private(path: Path, text: str) -> None:
    """Puts ``text`` in the place of whatever ``path`` held; raises OSError where that is not possible."""
    _write(path, text, 0o600)


def write_whole(path: Path, text: str) -> None:
    """The same with the permissions that the user's files have."""
    _write(path, text, 0o666)


def rewrite(path: Path, data: bytes) -> None:
    """Puts ``data`` in the place of what the file holds and keeps its permissions; a link stays one."""
    target = path.resolve()
    with _in_place_of(target, 0o600) as file:
        file.write(data)
        os.fchmod(file.fileno(), S_IMODE(target.stat().st_mode))


def _write(path: Path, text: str, mode: int) -> None:
    with _in_place_of(path, mode) as file:
        file.write(text.encode())


@contextmanager
def _in_place_of(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` once it is whole, and is gone where it cannot be.

    ``mode`` is less the process's umask.
    """
    written = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        written.replace(path)
    finally:
        # A signal may end the writing too.
        written.unlink(missing_ok=True)

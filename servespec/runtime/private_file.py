"""Files that are there whole or not at all; private ones only their owner can read."""

import os
from pathlib import Path
from stat import S_IMODE


def write_private(path: Path, text: str) -> None:
    """Puts ``text`` in the place of whatever ``path`` held; raises OSError where that is not possible."""
    _write(path, text, 0o600)


def write_whole(path: Path, text: str) -> None:
    """The same with the permissions that the user's files have."""
    _write(path, text, 0o666)


def rewrite(path: Path, data: bytes) -> None:
    """Puts ``data`` in the place of what the file holds and keeps its permissions; a link stays one."""
    target = path.resolve()
    written = target.with_name(f"{target.name}.{os.getpid()}.part")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), S_IMODE(target.stat().st_mode))
    written.replace(target)


def _write(path: Path, text: str, mode: int) -> None:
    """``mode`` less the process's umask."""
    written = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    written.replace(path)

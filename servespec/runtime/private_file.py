"""Files that only their owner can read, which are there whole or not at all."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Puts ``text`` in the place of whatever ``path`` held; raises OSError where that is not possible."""
    written = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    written.replace(path)

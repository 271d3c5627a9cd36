"""A word to a person who waits at a terminal for work that is usually done at once."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

# Chosen: shorter waits need no word, and one that comes and goes at once is noise.
_PATIENCE_SECONDS = 1.0


@contextmanager
def waiting(words: str, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """On a terminal a spinner on standard error, once the patience is over; it goes when the work is done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    shown: list[Any] = []
    timer = Timer(patience_seconds, lambda: shown.append(_spinner(words)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for spinner in shown:
            spinner.stop()


def _spinner(words: str) -> Any:
    # Loading it takes a good part of what a command takes that is done at once.
    from rich.console import Console

    status = Console(stderr=True).status(words)
    status.start()
    return status

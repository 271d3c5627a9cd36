"""A bar of work that this process does itself, for a person who waits at a terminal."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

_T = TypeVar("_T")


def shown(words: str, items: Sequence[_T]) -> Iterable[_T]:
    """``items`` one by one; on a terminal a bar on standard error counts them, and goes when all are done."""
    console = Console(stderr=True)
    return track(items, words, console=console, transient=True, disable=not console.is_terminal)

"""Takes the place of something of the engine for a while, and gives it back."""

from contextlib import ExitStack
from typing import Any, Final

_ABSENT: Final = object()


def substitute(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Sets an attribute of a class, module or object; ``undo`` makes it what it was, or inherited again."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    undo.callback(*((delattr, owner, name) if before is _ABSENT else (setattr, owner, name, before)))

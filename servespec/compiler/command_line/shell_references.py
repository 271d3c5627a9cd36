"""What a `$` or a backtick of a shell script begins, and where it ends."""

import re
from dataclasses import dataclass
from typing import Final

from servespec.schema.source_faults import Span

_NAMED: Final = re.compile(r"\$(?:(\w+)|[@*#?!$-])", re.ASCII)
_BRACED: Final = re.compile(r"\$\{(\w+)(\[[@*]\])?(?:(:?[-=?])(.*))?\}", re.ASCII | re.DOTALL)
_OPENED: Final = {"$(": ")", "${": "}", "`": "`"}
_DEFAULTS: Final = ("-", "=")


@dataclass(frozen=True, slots=True)
class Reference:
    """``name`` is None for anything but a variable; ``default`` is where the value to take in its stead is written."""

    end: int
    name: str | None = None
    is_array: bool = False
    default: Span | None = None
    assigns: bool = False


def reference_at(text: str, at: int, end: int, *, quoted: bool) -> Reference | None:
    """The reference that begins at ``at``; None where a `$` stands for itself."""
    opened = _opened(text, at)
    if not opened:
        named = _NAMED.match(text, at, end)
        return Reference(named.end(), named[1]) if named else None
    after = _end(text, at + len(opened), end, _Level(_OPENED[opened], quoted and opened == "${"))
    braced = _BRACED.fullmatch(text, at, after)
    if braced is None:
        return Reference(after)
    operator = (braced[3] or "")[-1:]
    default = braced.span(4) if operator in _DEFAULTS and operator else None
    return Reference(after, braced[1], braced[2] == "[@]", default, operator == "=")


@dataclass(frozen=True, slots=True)
class _Level:
    """Something open, up to ``closer``; single quotes are letters where it is ``quoted``."""

    closer: str
    quoted: bool = False


def _opened(text: str, at: int) -> str:
    return next((opener for opener in _OPENED if text.startswith(opener, at)), "")


def _end(text: str, at: int, end: int, first: _Level) -> int:
    """Behind the bracket that closes ``first``; ``end`` where nothing does.

    Brackets are counted without recursion, so that no text nests too deep.
    """
    levels = [first]
    while levels and at < end:
        at = _step(text, at, end, levels)
    return min(at, end)


def _step(text: str, at: int, end: int, levels: list[_Level]) -> int:
    """One character, or what belongs together, with the levels that it opens or closes."""
    here, character = levels[-1], text[at]
    if character == "\\":
        return at + 2
    if character == here.closer:
        levels.pop()
        return at + 1
    if here.closer == "`":
        return at + 1
    opened = _opened(text, at)
    if opened:
        levels.append(_Level(_OPENED[opened], opened == "${" and here.quoted))
        return at + len(opened)
    if character == '"':
        levels.append(_Level('"', quoted=True))
    elif character == "(" and here.closer == ")":
        levels.append(_Level(")"))
    elif character == "'" and not here.quoted:
        return _behind(text, "'", at + 1, end)
    elif character == "#" and here.closer == ")" and text[at - 1].isspace():
        return _behind(text, "\n", at, end)
    return at + 1


def _behind(text: str, closer: str, at: int, end: int) -> int:
    found = text.find(closer, at, end)
    return end if found < 0 else found + 1

"""The commonest slip: a colon without the space that ends a key, so that `key:value` is one word."""

import re
from collections.abc import Container
from dataclasses import dataclass

_JOINED = re.compile(r"([A-Za-z_][\w-]+):(?![\s:/])(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JoinedKey:
    """``name`` and what follows its colon, ``rest``; ``at`` is where the colon stands in the text that was searched."""

    name: str
    rest: str
    at: int

    @property
    def help(self) -> str:
        """What to type; a value that goes on elsewhere is left to the person."""
        value = self.rest.strip()
        is_whole = value and not set(value) & set("\n{}[]#")
        return f"put a space after the colon: `{self.name}: {value}`" if is_whole else "put a space after the colon"


def joined_key(word: object, names: Container[str]) -> JoinedKey | None:
    """The field of ``names`` that a key or value starts with, where a colon without a space follows it."""
    found = _JOINED.fullmatch(word) if isinstance(word, str) else None
    if found is None or found[1] not in names:
        return None
    return JoinedKey(found[1], found[2], found.end(1))


def joined_line(text: str, index: int) -> JoinedKey | None:
    """The same of the line at ``index``, or of the one with content above it; any name counts."""
    start = text.rfind("\n", 0, index) + 1
    end = text.find("\n", index)
    lines = [(start, text[start : end if end >= 0 else len(text)])]
    above = text[:start].rstrip()
    if above:
        lines.append((above.rfind("\n") + 1, above[above.rfind("\n") + 1 :]))
    for at, line in lines:
        word = line.lstrip().removeprefix("- ")
        found = _JOINED.fullmatch(word)
        if found is not None:
            return JoinedKey(found[1], found[2], at + len(line) - len(word) + found.end(1))
    return None

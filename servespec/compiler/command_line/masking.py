"""Words of a command line as they may be shown: what may be a secret is left out, wherever in a word it stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TELLING: Final = "token|secret|passw|credential|authorization|api[_-]?key|[_-]key"
_SECRET_NAME: Final = re.compile(_TELLING, re.IGNORECASE)
# A value ends with its word, or where the next `NAME=` begins: `A=x,TOKEN=y,B=z` is three variables.
_PAIR: Final = re.compile(
    rf"(?P<name>(?<![\w.-])[\w.-]*(?:{_TELLING})[\w.-]*+)(?P<sign>[\"']?=|[\"']?:\s|[\"']:)"
    r".+?(?=[,;\s]\s?(?:[A-Za-z_][\w.-]*=|[\"'][\w.-]+[\"']:)|\Z)",
    re.IGNORECASE | re.DOTALL,
)
# Chosen: tokens of Hugging Face and OpenAI are longer, and a name such as `hf_cache` is shorter.
_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9])(?P<name>hf_|sk-)[\w-]{6,}")
_LEFT_OUT: Final = "…"


@dataclass(frozen=True, slots=True)
class Masked:
    """A word as it may be shown; ``secrets`` are the names of what is left out of it."""

    text: str
    secrets: tuple[str, ...] = ()


def masked(texts: Sequence[str]) -> tuple[Masked, ...]:
    """Every word of a line; what follows an option that is named like a secret is one."""
    return tuple(_masked(text, texts[at - 1] if at else "") for at, text in enumerate(texts))


def _masked(text: str, before: str) -> Masked:
    is_value = before.startswith("-") and "=" not in before and not text.startswith("-")
    if is_value and "=" not in text and _SECRET_NAME.search(before):
        return Masked(_LEFT_OUT, (before,))
    pairs = [found["name"] for found in _PAIR.finditer(text)]
    left = _PAIR.sub(rf"\g<name>\g<sign>{_LEFT_OUT}", text)
    tokens = [found["name"] + _LEFT_OUT for found in _TOKEN.finditer(left)]
    return Masked(_TOKEN.sub(rf"\g<name>{_LEFT_OUT}", left), (*pairs, *tokens))

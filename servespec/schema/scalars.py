"""What an unquoted word of YAML means: the core schema of YAML 1.2, and nothing more.

`yes`, `no`, `on` and `off` are text, as are dates and `1_024`; `0o17` is octal and `017` is seventeen.
"""

import re

Scalar = str | int | float | bool | None

# Bounds every number so that it can be printed, put into JSON and turned into a float.
MAX_NUMBER_CHARACTERS = 64

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)")


class NumberTooLongError(ValueError):
    """The word is a number of more than ``MAX_NUMBER_CHARACTERS`` characters."""


def plain_scalar(word: str) -> Scalar:
    """The value of an unquoted ``word``; raises :class:`NumberTooLongError`."""
    if word in _WORDS:
        return _WORDS[word]
    if word[0] not in "+-.0123456789":
        return word
    number = _number(word)
    return word if number is None else number


def _number(word: str) -> int | float | None:
    for pattern, base in ((_DECIMAL, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(word):
            return int(_bounded(word), base)
    if _FLOAT.fullmatch(word):
        return float(_bounded(word))
    if infinity := _INFINITY.fullmatch(word):
        return float(f"{infinity[1]}inf")
    return float("nan") if _NAN.fullmatch(word) else None


def _bounded(word: str) -> str:
    if len(word) > MAX_NUMBER_CHARACTERS:
        raise NumberTooLongError
    # `0o17` and `0x1F` are Python's own spellings for int(word, 8) and int(word, 16).
    return word

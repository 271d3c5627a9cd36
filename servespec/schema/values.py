"""Values as people write them: sizes, counts, fractions and booleans.

Each function takes what YAML read and returns the value, or a :class:`Refusal` that says why not and what to
write.  What could mean two things is refused.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from servespec.units import Bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value is not taken, to follow its name in a message; ``right_form`` is what to write instead."""

    reason: str
    right_form: str


_DECIMAL_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BYTES_IN: Mapping[str, int] = {**_DECIMAL_BYTES, "kB": 10**3, **_BINARY_BYTES}

# As the engine reads its own command line: vllm/utils/argparse_utils.py: human_readable_int.
_DECIMAL_COUNT = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_COUNT = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_COUNT_IN: Mapping[str, int] = {**_DECIMAL_COUNT, **_BINARY_COUNT}

_NUMBER_AND_SUFFIX = re.compile(r"([-+]?)(\d+(?:_\d+)*)?(\.\d+)?\s*([A-Za-z%]*)", re.ASCII)
_GROUPED_BY_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+", re.ASCII)
_DECIMAL_COMMA = re.compile(r"(\d*),(\d+)\s*%?", re.ASCII)
_LONGEST_TEXT = 64
# Sizes and counts reach the engine as signed integers of 64 bits.
_LARGEST = 2**63 - 1

_SIZE_FORM = "a number of bytes, or a size such as `4GiB` (2^30) or `4GB` (10^9)"
_COUNT_FORM = "a whole number, such as `8192`"
_FRACTION_FORM = "a fraction above 0 and up to 1, such as `0.9` or `90%`"
_BOOLEAN_FORM = "`true` or `false`"


@dataclass(frozen=True, slots=True)
class _Amount:
    """A number with what follows it; ``number`` is exact."""

    number: Decimal
    suffix: str


def parse_bytes(value: object) -> Bytes | Refusal:
    """A size in bytes from a whole number of bytes or a number with `B`, `kB`, `KiB`, ..., `TB`, `TiB`.

    `KB` is taken as `kB`; other spellings are refused, since `4G` and `4Gb` mean different things to
    different people.
    """
    amount = _amount(value, _SIZE_FORM)
    if isinstance(amount, Refusal):
        return amount
    if amount.suffix and amount.suffix not in _BYTES_IN:
        return _unknown_size_suffix(amount)
    size = _whole(amount.number * _BYTES_IN.get(amount.suffix, 1), "a whole number of bytes", _SIZE_FORM)
    return size if isinstance(size, Refusal) else Bytes(size)


def parse_count(value: object) -> int | Refusal:
    """A count, zero or more, from a whole number or the engine's short forms: `8k` is 8000, `8K` is 8192."""
    amount = _amount(value, _COUNT_FORM)
    if isinstance(amount, Refusal):
        return amount
    if amount.suffix not in ("", *_COUNT_IN):
        reason = f"`{amount.suffix}` is not a suffix of a count"
        return Refusal(reason, "a whole number, `8k` for 8000 or `8K` for 8192, as in the engine")
    if amount.suffix in _BINARY_COUNT and amount.number != amount.number.to_integral_value():
        lower = f"{amount.number}{amount.suffix.lower()}"
        reason = f"a fraction of `{amount.suffix}` (a power of two) is not a round count"
        return Refusal(reason, f"`{lower}` with a decimal suffix, or the whole number itself")
    return _whole(amount.number * _COUNT_IN.get(amount.suffix, 1), "a whole number", _COUNT_FORM)


def parse_fraction(value: object) -> float | Refusal:
    """A fraction in (0, 1] from a number or a percentage."""
    amount = _amount(value, _FRACTION_FORM)
    if isinstance(amount, Refusal):
        return amount
    if amount.suffix not in ("", "%"):
        return Refusal(f"`{amount.suffix}` is not a suffix of a fraction", _FRACTION_FORM)
    fraction = amount.number / 100 if amount.suffix else amount.number
    if 0 < fraction <= 1 and float(fraction) > 0:
        return float(fraction)
    return _outside_of_one(amount)


def parse_boolean(value: object) -> bool | Refusal:
    """A boolean, written without quotes; no word stands for one."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return Refusal(f"{_kind(value)} is not a boolean", _BOOLEAN_FORM)
    meant = _boolean_word(value.strip().lower())
    if meant is None:
        return Refusal("text is not a boolean", _BOOLEAN_FORM)
    if value.strip().lower() == meant:
        return Refusal("text in quotes is not a boolean", f"`{meant}` without quotes")
    return Refusal("YAML 1.2 reads this word as text, not as a boolean", f"`{meant}`")


def _boolean_word(word: str) -> str | None:
    if word in ("true", "yes", "on", "y"):
        return "true"
    return "false" if word in ("false", "no", "off", "n") else None


def _amount(value: object, form: str) -> _Amount | Refusal:
    """The number in ``value``, not negative and finite, with its suffix."""
    amount = _amount_in_text(value, form) if isinstance(value, str) else _amount_of_number(value, form)
    if isinstance(amount, _Amount) and amount.number < 0:
        return Refusal("the number is negative", form)
    return amount


def _amount_of_number(value: object, form: str) -> _Amount | Refusal:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Refusal(f"{_kind(value)} is not a number", form)
    if not math.isfinite(value):
        return Refusal("the number is not finite", form)
    # By way of its shortest form, 0.1 is one tenth and not the nearest binary fraction.
    return _Amount(Decimal(repr(value)), "")


def _amount_in_text(text: str, form: str) -> _Amount | Refusal:
    text = text.strip()
    if not text:
        return Refusal("the value is empty", form)
    found = _NUMBER_AND_SUFFIX.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None or not (found[2] or found[3]):
        return _not_a_number(text, form)
    digits = (found[2] or "0").replace("_", "")
    number = Decimal(f"{found[1]}{digits}{found[3] or ''}")
    return _Amount(number, found[4])


def _not_a_number(text: str, form: str) -> Refusal:
    if len(text) > _LONGEST_TEXT:
        return Refusal("the text is too long for a number", form)
    if _GROUPED_BY_COMMAS.fullmatch(text):
        plain, grouped = text.replace(",", ""), text.replace(",", "_")
        return Refusal("a comma separates the digits", f"`{plain}` or `{grouped}`")
    if _DECIMAL_COMMA.fullmatch(text):
        return Refusal("a comma stands for the decimal point", f"`{text.replace(',', '.')}`")
    return Refusal("the text is not a number", form)


def _whole(number: Decimal, what: str, form: str) -> int | Refusal:
    if number > _LARGEST:
        return Refusal("the number is larger than the engine's integers", form)
    if number != number.to_integral_value():
        return Refusal(f"the value is not {what}", form)
    return int(number)


def _unknown_size_suffix(amount: _Amount) -> Refusal:
    letter = amount.suffix[0].upper()
    if letter not in "KMGT" or amount.suffix.lower() not in _size_spellings(letter.lower()):
        return Refusal(f"`{amount.suffix}` is not a unit of size", _SIZE_FORM)
    power = "KMGT".index(letter) + 1
    binary = f"`{amount.number}{letter}iB` (2^{10 * power})"
    decimal = f"`{amount.number}{letter}B` (10^{3 * power})"
    return Refusal(f"`{amount.suffix}` can mean more than one size", f"{binary} or {decimal}")


def _size_spellings(letter: str) -> tuple[str, ...]:
    return (letter, f"{letter}b", f"{letter}i", f"{letter}ib")


# Chosen: nobody serves with less than a fifth of a device, so a smaller number is a fraction with a slip in it.
_LEAST_PERCENT = 20


def _outside_of_one(amount: _Amount) -> Refusal:
    if amount.suffix or not 1 < amount.number <= 100:
        return Refusal("the value is not above 0 and up to 1", _FRACTION_FORM)
    if amount.number < _LEAST_PERCENT:
        return Refusal("the value is above 1", _FRACTION_FORM)
    percent = format(amount.number.normalize(), "f")
    fraction = format((amount.number / 100).normalize(), "f")
    return Refusal("the value is above 1", f"`{percent}%` or `{fraction}`")


_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)

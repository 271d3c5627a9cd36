"""Numbers as the engine's flags take them: `8k` is 8000, `8K` is 8192.

Source: vllm/utils/argparse_utils.py: human_readable_int; vllm/engine/arg_utils.py: _compute_kwargs.
"""

import re
from collections.abc import Mapping

_SHORT = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_FACTORS: Mapping[str, int] = {
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
}  # fmt: skip


def human_readable_int(text: str) -> int:
    """A whole number in digits or a short form; ValueError otherwise."""
    text = text.strip()
    found = _SHORT.fullmatch(text)
    if found is None:
        return int(text)
    number, suffix = found.groups()
    if suffix.isupper():
        return int(number) * _FACTORS[suffix]
    try:
        return int(float(number) * _FACTORS[suffix])
    except OverflowError:
        raise ValueError("the number is not finite") from None


def human_readable_int_or_auto(text: str) -> int:
    """As :func:`human_readable_int`; `auto` and `-1` are -1."""
    if text.strip() == "-1" or text.strip().lower() == "auto":
        return -1
    return human_readable_int(text)


def expanded(json_text: str) -> str:
    """A JSON text with its bare short forms written out; text in quotes stays.

    Source: vllm/engine/arg_utils.py: _expand_json_human_readable_numbers.
    """
    parts = re.split(r'("(?:[^"\\]|\\.)*")', json_text)
    parts[::2] = (re.sub(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", _in_digits, part) for part in parts[::2])
    return "".join(parts)


def _in_digits(found: re.Match[str]) -> str:
    return str(human_readable_int(found[0]))

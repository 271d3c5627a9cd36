"""The engine's rewriting of words before they are parsed: dashes, optimization levels, dotted keys.

Source: vllm/utils/argparse_utils.py: FlexibleArgumentParser.parse_args.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.human_number import human_readable_int
from servespec.compiler.command_line.word import Word, quoted, read_json
from servespec.diagnostics import Diagnostic

_LEVELS = ("0", "1", "2", "3")
_NEGATIVE_FRACTION = re.compile(r"-\d*\.\d+")
# Chosen: as deep as `read_json` reads.
_MOST_KEYS = 24


@dataclass(slots=True)
class _Dotted:
    """The mapping that the dotted keys of one spelling make; built up word by word, then handed on."""

    first: Word
    config: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Word] = field(default_factory=dict)


def normalised(words: Sequence[Word]) -> list[Word]:
    """Dashes for underscores in the names of flags, and `--optimization-level` for `-O`."""
    written: list[Word] = []
    for at, word in enumerate(words):
        following = words[at + 1].text if at + 1 < len(words) else ""
        written += (word.saying(text) for text in _spelled(word.text, following))
    return written


def _spelled(text: str, following: str) -> tuple[str, ...]:
    if text.startswith("--help="):
        return ("--help",)
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        head, dot, keys = name.partition(".")
        return (head.replace("_", "-") + dot + keys + equals + value,)
    if text == "-O":
        return ("--optimization-level",) if following in _LEVELS else (text,)
    if text.startswith("-O"):
        return ("--optimization-level", text[3:] if text[2] == "=" else text[2:])
    return (text,)


def without_dots(words: Sequence[Word], found: list[Diagnostic]) -> list[Word]:
    """The words with dotted keys put together, one mapping a spelling, at the end; faults go to ``found``."""
    kept: list[Word] = []
    dotted: dict[str, _Dotted] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.text.partition("=")
        if not name.startswith("-") or "." not in name:
            kept.append(word)
            continue
        given = word.saying(value) if equals else next(rest, None)
        fault = _fault(word, name, given)
        if fault is not None:
            found.append(fault)
        elif given is not None:
            _add(dotted, word, name, given, found)
    return [*kept, *_as_words(dotted)]


def _as_words(dotted: dict[str, _Dotted]) -> Iterator[Word]:
    for spelling, one in dotted.items():
        yield one.first.saying(spelling)
        yield Word("{…}", one.first.place, one.first.number, one.config, one.keys)


def _fault(word: Word, name: str, given: Word | None) -> Diagnostic | None:
    if _NEGATIVE_FRACTION.fullmatch(name):
        help_text = f"join it to its flag with `=`, as in `--flag={name}`"
        return rules.S305.at(word.place, f"vLLM reads {word.named} as a dotted key, not as a number", help_text)
    if given is None:
        return rules.S305.at(word.place, f"{word.flag} is the last word and has no value", "write its value")
    if name.count(".") > _MOST_KEYS:
        return rules.S305.at(word.place, f"{word.flag} nests too deep", "no config of the engine is so deep")
    return None


def _add(dotted: dict[str, _Dotted], word: Word, name: str, given: Word, found: list[Diagnostic]) -> None:
    appends = name.endswith("+")
    spelling, *keys = name.removesuffix("+").split(".")
    value: Any = given.text.split(",") if appends else dotted_value(given.text)
    for key in reversed(keys):
        value = {key: value}
    one = dotted.setdefault(spelling, _Dotted(word))
    one.keys.update(dict.fromkeys(value, word))
    for key in _merge(one.config, value):
        message = f"{quoted(f'{spelling}.{key}')} is given more than once; the last one{word.where} wins"
        found.append(rules.S307.at(word.place, message, "delete the others"))


def dotted_value(text: str) -> Any:
    """JSON, else a number such as `8k`, else the text itself."""
    try:
        return read_json(text)
    except ValueError:
        return human_readable_or_text(text)


def human_readable_or_text(text: str) -> Any:
    try:
        return human_readable_int(text)
    except ValueError:
        return text


def _merge(into: dict[str, Any], update: dict[str, Any]) -> Iterable[str]:
    """Lays ``update`` over ``into``, lists joined; the dotted names of what was replaced."""
    replaced: list[str] = []
    for key, value in update.items():
        old = into.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            replaced += (f"{key}.{inner}" for inner in _merge(old, value))
        elif isinstance(value, list) and isinstance(old, list):
            into[key] = [*old, *value]
        else:
            replaced += [key] if key in into else []
            into[key] = value
    return replaced

"""Words to flags with their words, as Python's argparse does it for the engine.

Source: argparse.ArgumentParser._parse_known_args, with the flags of vllm/engine/arg_utils.py: EngineArgs.add_cli_args.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.word import Word
from servespec.compiler.engine_homes import field_homes
from servespec.compiler.facts.engine_fields import EngineFlag, EngineTable, Form
from servespec.diagnostics import Diagnostic
from servespec.schema.nearest import nearest
from servespec.schema.renamed import renamed_field

_HELP = ("-h", "--help")
_NOT_REGISTERED = "-O"
"""Rewritten before the parser sees it."""
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_WITHOUT_VALUE = (Form.SWITCH, Form.BOOLEAN)
_FALSE_WORDS = ("false", "0", "no", "off")
_MOST_LISTED = 4


@dataclass(frozen=True, slots=True)
class Given:
    """A flag as written: ``word`` spells it, ``values`` are the words it takes, ``negated`` sets it to false."""

    flag: EngineFlag
    word: Word
    values: tuple[Word, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Parsed:
    """``positional`` is the first word that belongs to no flag."""

    given: tuple[Given, ...]
    positional: Word | None
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _Option:
    """A word that is read as a flag: ``spellings`` are the full ones it may mean, ``explicit`` follows its `=`."""

    word: Word
    spellings: tuple[str, ...]
    explicit: str | None


def parse(words: Sequence[Word], table: EngineTable) -> Parsed:
    """Every flag with its values; a finding for every word that the engine would stop at."""
    names = _spellings(table)
    end = next((at for at, word in enumerate(words) if word.text == "--"), len(words))
    options = [_option(word, names) for word in words[:end]]
    given: list[Given] = []
    loose: list[Word] = []
    found: list[Diagnostic] = []
    at = 0
    while at < end:
        option = options[at]
        at += 1
        if option is None:
            loose.append(words[at - 1])
            continue
        following = _following(words[at:end], options[at:end])
        taken = _take(option, following, table)
        at += taken.count
        given += () if taken.given is None else (taken.given,)
        found += taken.findings
    loose += words[end + 1 :]
    return Parsed(tuple(given), loose[0] if loose else None, (*found, *map(_unexpected, loose[1:])))


def _spellings(table: EngineTable) -> Mapping[str, str]:
    """Every spelling that the engine's parser knows, with the flag's name."""
    names = dict.fromkeys(_HELP, "")
    for name in table.flags():
        flag = table.flag(name)
        assert flag is not None, name
        names |= {one: name for one in (*flag.spellings, *flag.negations) if one != _NOT_REGISTERED}
    return names


def _option(word: Word, names: Mapping[str, str]) -> _Option | None:
    """How a word reads as a flag; None for a value."""
    text = word.text
    if not text.startswith("-") or text == "-":
        return None
    if text in names:
        return _Option(word, (text,), None)
    head, equals, explicit = text.partition("=")
    if equals and head in names:
        return _Option(word, (head,), explicit)
    meant = tuple(_meant(text, names))
    if not meant and (_NEGATIVE_NUMBER.fullmatch(text) or " " in text):
        return None
    given = meant[0][1] if meant else None
    return _Option(word, tuple(spelling for spelling, _ in meant), given)


def _meant(text: str, names: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Spellings that ``text`` cuts short, each with what follows an `=` or a single letter."""
    head, equals, after = text.partition("=")
    explicit = after if equals else None
    for spelling in names:
        if text[1] != "-" and spelling == text[:2]:
            yield spelling, text[2:]
        elif spelling.startswith(head):
            yield spelling, explicit


def _following(words: Sequence[Word], options: Sequence[_Option | None]) -> tuple[Word, ...]:
    """The words up to the next flag."""
    end = next((at for at, option in enumerate(options) if option is not None), len(options))
    return tuple(words[:end])


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one flag makes of the words after it; ``count`` of them are used up."""

    given: Given | None
    count: int
    findings: tuple[Diagnostic, ...] = ()


def _take(option: _Option, following: tuple[Word, ...], table: EngineTable) -> _Taken:
    if len(option.spellings) != 1:
        # Which of the words were meant as its values is not known, so all are.
        fault = _ambiguous(option) if option.spellings else _unknown(option, table)
        return _Taken(None, len(following), (fault,))
    spelling = option.spellings[0]
    flag = table.flag(spelling)
    if spelling in _HELP or flag is None:
        message = f"{option.word.flag} prints help and starts no server"
        return _Taken(None, len(following), (rules.S301.at(option.word.place, message, "delete it"),))
    negated = spelling in flag.negations
    if option.explicit is not None:
        return _explicit(option, flag, negated)
    count = _value_count(flag, len(following))
    if count is None:
        return _Taken(None, 0, (_missing(option.word, flag),))
    return _Taken(Given(flag, option.word, following[:count], negated), count)


def _explicit(option: _Option, flag: EngineFlag, negated: bool) -> _Taken:
    """A value after `=` is the only one that the flag gets."""
    word, explicit = option.word, option.explicit
    assert explicit is not None
    if flag.form in _WITHOUT_VALUE:
        right_form = flag.negation if explicit.lower() in _FALSE_WORDS else flag.long
        help_text = f"write `{right_form}`" if right_form else "delete it"
        return _Taken(None, 0, (rules.S305.at(word.place, f"{word.flag} takes no value", help_text),))
    return _Taken(Given(flag, word, (word.saying(explicit),), negated), 0)


def _value_count(flag: EngineFlag, available: int) -> int | None:
    """How many of the words after it a flag takes; None where there are too few."""
    if flag.form in _WITHOUT_VALUE:
        return 0
    if flag.nargs == "?":
        return min(1, available)
    if flag.nargs == "+":
        return available or None
    wanted = flag.nargs if isinstance(flag.nargs, int) else 1
    return wanted if available >= wanted else None


def _missing(word: Word, flag: EngineFlag) -> Diagnostic:
    message = f"{word.flag} has no value"
    return rules.S305.at(word.place, message, f"write {flag.type}; one that starts with `-` after `=`")


def _unexpected(word: Word) -> Diagnostic:
    return rules.S306.at(word.place, f"{word.named} belongs to no flag", "delete it, or check the flag before it")


def _ambiguous(option: _Option) -> Diagnostic:
    listed = ", ".join(f"`{one}`" for one in option.spellings[:_MOST_LISTED])
    more = len(option.spellings) - _MOST_LISTED
    rest = f" and {more} more" if more > 0 else ""
    return rules.S304.at(option.word.place, f"{option.word.flag} may mean {listed}{rest}", "write it in full")


def _unknown(option: _Option, table: EngineTable) -> Diagnostic:
    word = option.word
    name = word.name
    replacement = renamed_field(name)
    if replacement is not None:
        return rules.S303.at(word.place, f"{word.flag} is {replacement.what}", replacement.help)
    message = f"vLLM {table.version} has no flag {word.flag}"
    return rules.S302.at(word.place, message, _suggestion(name, table))


def _suggestion(name: str, table: EngineTable) -> str:
    joined = re.fullmatch(r"(-[a-z]+)(\d+)", name)
    if joined and table.flag(joined[1]) is not None:
        return f"write `{joined[1]} {joined[2]}`"
    known = [one for one in _spellings(table) if one.startswith("--")]
    homes = field_homes(name.removeprefix("--").replace("-", "_"), table)
    if len(homes) == 1:
        return f"a spec says it as `{homes[0]}`"
    near = nearest(name, known, limit=1)
    return f"did you mean `{near[0]}`?" if near else "delete it, or check the engine's version"

"""Pairs of one mapping replaced in the text of a file; every other character stays.

A comment stays too: one inside a value that goes moves to a line above the key.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from servespec.diagnostics import SpecError
from servespec.schema.source import SpecSource, read_source
from servespec.schema.source_faults import Span
from servespec.schema.source_nodes import Entry, Map, Node, Scalar

_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n]*")
_COLON = re.compile(r"\s*:\s*")
_COMMA_AFTER = re.compile(r"[ \t]*,[ \t]*")
_COMMA_BEFORE = re.compile(r"[ \t]*,\s*\Z")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = re.compile(r"[ \t]*")
_BLANK_TO_END = re.compile(r"[ \t]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEdits:
    """What becomes of pairs of a section.

    ``renamed`` keep their value as it is written; ``replaced`` get another name and value; ``deleted`` go; ``added``
    are new, above the first of those that stay.  Values are numbers, words and lists of numbers.
    """

    section: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    added: Mapping[str, Any] = field(default_factory=dict)


def edited(source: SpecSource, edits: PairEdits) -> str | None:
    """The text of ``source`` with ``edits``; None where the pairs are not written in the section itself.

    What is returned was read again and says what it should.
    """
    text = _edited_text(source, edits)
    if text is None:
        return None
    try:
        after = read_source(text, source.name)
    except SpecError:
        return None
    return text if after.data == _edited_data(source.data, edits) else None


def _edited_data(data: Mapping[str, Any], edits: PairEdits) -> dict[str, Any]:
    pairs = dict(_edited_pairs(data[edits.section], edits))
    return {**data, edits.section: pairs | {name: _plain(value) for name, value in edits.added.items()}}


def _edited_pairs(pairs: Mapping[str, Any], edits: PairEdits) -> Iterator[tuple[str, Any]]:
    for name, value in pairs.items():
        if name in edits.replaced:
            new_name, new_value = edits.replaced[name]
            yield new_name, _plain(new_value)
        elif name not in edits.deleted:
            yield edits.renamed.get(name, name), value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# Text

_Change = tuple[Span, str]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A pair in the text of its file; ``flow`` where it stands between braces."""

    text: str
    entry: Entry
    flow: bool

    @property
    def key(self) -> str:
        return self.text[slice(*self.entry.key)]

    @property
    def line_start(self) -> int:
        return max(self.text.rfind("\n", 0, self.entry.key[0]), self.text.rfind("\r", 0, self.entry.key[0])) + 1

    @property
    def indent(self) -> str | None:
        """What stands before the key on its line; None where that is more than blanks."""
        before = self.text[self.line_start : self.entry.key[0]]
        return before if _BLANK.fullmatch(before) else None

    @property
    def line_end(self) -> str:
        found = _LINE_END.search(self.text)
        return found[0] if found else "\n"

    def spelled(self, name: str) -> str:
        """A name between the quotes that the pair's own key has."""
        quote = self.key[0] if self.key[0] in "\"'" else ""
        return f"{quote}{name}{quote}"

    def value_span(self) -> Span | None:
        """From the first character of the value to the one after its last; None where it stands elsewhere."""
        colon = _COLON.match(self.text, self.entry.key[1])
        spans = [span for span in _spans(self.entry.node) if span is not None]
        if colon is None or not spans or min(start for start, _ in spans) < colon.end():
            return None
        return colon.end(), max(end for _, end in spans)


def _spans(node: Node) -> Iterator[Span | None]:
    yield node.span
    inner: tuple[Node, ...] = ()
    if isinstance(node, Map):
        inner = tuple(entry.node for entry in node.entries.values())
    elif not isinstance(node, Scalar):
        inner = node.items
    for one in inner:
        yield from _spans(one)


def _edited_text(source: SpecSource, edits: PairEdits) -> str | None:
    changes: list[_Change] = []
    pairs = _pairs(source, edits)
    if pairs is None:
        return None
    for name, pair in pairs.items():
        made = _change(name, pair, edits)
        if made is None:
            return None
        changes += made
    staying = [pair for name, pair in pairs.items() if name not in edits.deleted]
    if edits.added:
        first = min(staying, key=lambda pair: pair.entry.key)
        at = first.entry.key[0]
        changes.append(((at, at), _added_text(first, edits.added)))
    return _applied(source.text, changes)


def _pairs(source: SpecSource, edits: PairEdits) -> dict[str, _Pair] | None:
    section = source.entry_at((edits.section,))
    found = {}
    for name in (*edits.renamed, *edits.replaced, *edits.deleted):
        entry = source.entry_at((edits.section, name))
        if section is None or entry is None or not isinstance(section.node, Map):
            return None
        found[name] = _Pair(source.text, entry, section.node.span is not None)
    return found


def _change(name: str, pair: _Pair, edits: PairEdits) -> list[_Change] | None:
    if name in edits.renamed:
        return [(pair.entry.key, pair.spelled(edits.renamed[name]))]
    value = pair.value_span()
    if value is None:
        return None
    if name in edits.deleted:
        return [_deletion(pair, value)]
    new_name, new_value = edits.replaced[name]
    whole = (pair.entry.key[0], value[1])
    return [(whole, _comments_above(pair, whole) + f"{pair.spelled(new_name)}: {written(new_value)}")]


def written(value: Any) -> str:
    """A number, a word, or a list of numbers on one line."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


def _comments_above(pair: _Pair, span: Span) -> str:
    comments = _COMMENT.findall(pair.text[slice(*span)])
    return "".join(f"{comment}{pair.line_end}{pair.indent or ''}" for comment in comments)


def _deletion(pair: _Pair, value: Span) -> _Change:
    """The pair with the comma or the line that it leaves behind; a comment after it keeps the line."""
    start, end = pair.entry.key[0], value[1]
    comments = _comments_above(pair, (start, end)).rstrip(" \t")
    if pair.flow:
        return _flow_deletion(pair.text, start, end), comments
    rest = _BLANK_TO_END.match(pair.text, end)
    if rest is not None and pair.indent is not None and not comments:
        return (pair.line_start, rest.end()), ""
    blank = _BLANK.match(pair.text, end)
    return (start, blank.end() if blank else end), comments


def _flow_deletion(text: str, start: int, end: int) -> Span:
    after = _COMMA_AFTER.match(text, end)
    if after is not None:
        return start, after.end()
    before = _COMMA_BEFORE.search(text, 0, start)
    return (before.start() if before else start), end


def _added_text(first: _Pair, added: Mapping[str, Any]) -> str:
    """New pairs, each on a line of its own where the pair that they stand above is."""
    separator = " " if first.indent is None else f"{first.line_end}{first.indent}"
    comma = "," if first.flow else ""
    quoted = first.key[0] == '"'
    return "".join(f"{first.spelled(name)}: {_word(value, quoted)}{comma}{separator}" for name, value in added.items())


def _word(value: Any, quoted: bool) -> str:
    return f'"{value}"' if quoted and isinstance(value, str) else written(value)


def _applied(text: str, changes: list[_Change]) -> str:
    for (start, end), new in sorted(changes, key=lambda change: change[0], reverse=True):
        text = text[:start] + new + text[end:]
    return text

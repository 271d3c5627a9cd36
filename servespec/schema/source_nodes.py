"""The nodes of a file, composed from what its reader sees one after another.

A node is held once, however many aliases repeat it: the number of values and the nesting that a node stands
for are sums over what it holds, known before any copy is made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from servespec.schema import source_rules as rules
from servespec.schema.nearest import nearest
from servespec.schema.scalars import MAX_NUMBER_CHARACTERS, NumberTooLongError, plain_scalar
from servespec.schema.source_faults import Faults, Span

# Chosen: the deepest field of a spec is six levels down; connector options may nest a few more.
MAX_DEPTH = 64
# Chosen: a capture list of every size up to 8192 is 8192 values.
MAX_VALUES = 100_000

FORBIDDEN_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")

_ANCHOR_OR_TAG = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s|#[^\r\n]*)+)+")
_LONGEST_SHOWN = 40


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """``plain`` is written without quotes; ``alias`` is where an alias brings in what stands at ``span``."""

    value: Any
    span: Span
    plain: bool = False
    values: int = 1
    levels: int = 0
    alias: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """``span`` is the brackets and what is between them; None for a block."""

    items: tuple["Node", ...]
    span: Span | None
    values: int
    levels: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A node where its parent holds it."""

    key: Span
    node: "Node"

    def below(self, step: str | int) -> "Entry | None":
        """What ``step`` leads to, if it is there."""
        if isinstance(self.node, Map):
            return self.node.entries.get(step) if isinstance(step, str) else None
        if isinstance(self.node, Sequence) and isinstance(step, int) and 0 <= step < len(self.node.items):
            item = self.node.items[step]
            return Entry(first_span(item) or self.key, item)
        return None

    def value_span(self) -> Span:
        return _written(_place_in_text(self.node)) or self.key


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """``span`` is the braces and what is between them; None for a block."""

    entries: Mapping[str, Entry]
    span: Span | None
    values: int
    levels: int


Node = Scalar | Sequence | Map


def data_of(node: Node) -> Any:
    """Plain data, each use of an alias a copy of its own."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [data_of(item) for item in node.items]
    return {key: data_of(entry.node) for key, entry in node.entries.items()}


def _written(span: Span | None) -> Span | None:
    return span if span and span[0] < span[1] else None


def _place_in_text(node: Node) -> Span | None:
    """Of what an alias brings in, the alias: the same value may be right where it was written."""
    return node.alias or node.span if isinstance(node, Scalar) else node.span


def first_span(node: Node) -> Span | None:
    """The node's own text; for a block, which has none, that of its first key or item."""
    while not isinstance(node, Scalar) and node.span is None:
        if isinstance(node, Map):
            return next((entry.key for entry in node.entries.values()), None)
        node = node.items[0]
    return _written(_place_in_text(node))


class _Open:
    """A collection that has begun."""

    __slots__ = ("anchor", "flow", "levels", "start", "values")

    def __init__(self, start: int, flow: bool, anchor: str | None) -> None:
        self.start, self.flow, self.anchor = start, flow, anchor
        self.values, self.levels = 1, 0

    def count(self, node: Node) -> None:
        self.values += node.values
        self.levels = max(self.levels, node.levels)

    def span(self, end: int) -> Span | None:
        return (self.start, end) if self.flow else None


class _OpenSequence(_Open):
    __slots__ = ("items",)

    def __init__(self, start: int, flow: bool, anchor: str | None) -> None:
        super().__init__(start, flow, anchor)
        self.items: list[Node] = []

    def add(self, node: Node, faults: Faults) -> None:  # noqa: ARG002 - the same call as a mapping's
        self.count(node)
        self.items.append(node)

    def closed(self, end: int, faults: Faults) -> Sequence:  # noqa: ARG002
        return Sequence(tuple(self.items), self.span(end), self.values, self.levels + 1)


class _OpenMapping(_Open):
    """``key`` is None between pairs, and for a pair whose key is refused."""

    __slots__ = ("awaits_value", "entries", "key", "merges")

    def __init__(self, start: int, flow: bool, anchor: str | None) -> None:
        super().__init__(start, flow, anchor)
        self.entries: dict[str, Entry] = {}
        self.merges: list[Entry] = []
        self.key: Scalar | None = None
        self.awaits_value = False

    def add(self, node: Node, faults: Faults) -> None:
        if self.awaits_value:
            self._add_value(node, faults)
        else:
            self.key = _name(node, faults)
        self.awaits_value = not self.awaits_value

    def _add_value(self, node: Node, faults: Faults) -> None:
        key, self.key = self.key, None
        if key is None:
            return
        entry = Entry(key.span, node)
        if key.plain and key.value == "<<":
            self._add_merge(entry, faults)
        elif key.value in self.entries:
            _duplicate(str(key.value), entry, self.entries[key.value], faults)
        else:
            self.count(node)
            self.entries[key.value] = entry

    def _add_merge(self, entry: Entry, faults: Faults) -> None:
        if self.merges:
            _duplicate("<<", entry, self.merges[0], faults)
        self.merges.append(entry)

    def closed(self, end: int, faults: Faults) -> Map:
        for merge in self.merges:
            self._merge(merge, faults)
        return Map(self.entries, self.span(end), self.values, self.levels + 1)

    def _merge(self, merge: Entry, faults: Faults) -> None:
        """Adds what the mapping does not say itself; the first of several sources wins."""
        sources = merge.node.items if isinstance(merge.node, Sequence) else (merge.node,)
        for source in sources:
            if isinstance(source, Map):
                self._take_from(source, merge.key, faults)
            else:
                help_text = "write `<<: *name`, where `&name` marks a mapping"
                faults.add(rules.S016, merge.key, f"`<<` merges {_kind(source)}, not a mapping", help_text)

    def _take_from(self, source: Map, key: Span, faults: Faults) -> None:
        for name, entry in source.entries.items():
            # Keys that are passed over count too: looking at each of them takes the time.
            self.values += entry.node.values
            self.levels = max(self.levels, entry.node.levels)
            self.entries.setdefault(name, entry)
        check_values(self.values, key, faults)


def check_values(values: int, span: Span, faults: Faults) -> None:
    if values > MAX_VALUES:
        message = f"the file stands for more than `{MAX_VALUES}` values, counting what aliases repeat"
        faults.stop(rules.S012, span, message, "write fewer values, or fewer aliases of aliases")


def _name(node: Node, faults: Faults) -> Scalar | None:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node
    span = first_span(node) or faults.character(node.span[0] if node.span else 0)
    if isinstance(node, Scalar) and _written(node.span):
        written = faults.text[slice(*node.span)]
        message = f"the key `{_shown(written)}` is {_kind(node)}, not a name"
        faults.add(rules.S014, span, message, f'write `"{_shown(written)}":` if it is meant as a name')
    elif isinstance(node, Scalar):
        faults.add(rules.S014, span, "the key before `:` is missing", "write `name: value`")
    else:
        help_text = "write `name: value`; put text that starts with `[`, `{` or `-` in quotes"
        faults.add(rules.S014, span, f"a key is {_kind(node)}, not a name", help_text)
    return None


def _duplicate(name: str, second: Entry, first: Entry, faults: Faults) -> None:
    related = faults.related(first.key, f"`{_shown(name)}` stands here first")
    help_text = "write one `<<: [*first, *second]`" if name == "<<" else "keep one of the two"
    faults.add(rules.S007, second.key, f"the key `{_shown(name)}` stands twice", help_text, related)


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SHOWN else line[: _LONGEST_SHOWN - 1] + "…"


_KINDS: dict[type, str] = {str: "text", bool: "a boolean", int: "a number", float: "a number"}


def _kind(node: Node) -> str:
    if isinstance(node, Scalar):
        return _KINDS.get(type(node.value), "null")
    return "a list" if isinstance(node, Sequence) else "a mapping"


class Composer:
    """Takes what stands in a file in order, and has its root node in the end."""

    __slots__ = ("_anchors", "_faults", "_open", "_root")

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._open: list[_OpenSequence | _OpenMapping] = []
        # None for an anchor whose value is still open.
        self._anchors: dict[str, Node | None] = {}
        self._root: Node | None = None

    @property
    def root(self) -> Node | None:
        return self._root

    def scalar(self, text: str, span: Span, anchor: str | None, *, plain: bool) -> None:
        self._check_escapes(text, span)
        node = Scalar(self._value(text, span) if plain else text, self._without_anchor(span, anchor), plain)
        self._keep(node, anchor)
        self._add(node, node.span)

    def begin(self, start: int, anchor: str | None, *, mapping: bool, flow: bool) -> None:
        span = self._without_anchor((start, start), anchor)
        self._check_depth(1, self._faults.character(span[0]))
        if anchor:
            self._anchors[anchor] = None
        kind = _OpenMapping if mapping else _OpenSequence
        self._open.append(kind(span[0], flow, anchor))

    def end(self, end: int) -> None:
        opened = self._open.pop()
        node = opened.closed(end, self._faults)
        self._keep(node, opened.anchor)
        self._add(node, first_span(node) or self._faults.character(opened.start))

    def alias(self, name: str, span: Span) -> None:
        node = self._anchors.get(name) or Scalar(None, span)
        if name not in self._anchors:
            self._undefined(name, span)
        elif self._anchors[name] is None:
            help_text = f"remove `*{name}`, or move `&{name}` to a value that does not contain it"
            self._faults.add(rules.S011, span, f"`*{name}` stands inside `&{name}` itself", help_text)
        self._check_depth(node.levels, span)
        parent = self._open[-1] if self._open else None
        is_key = isinstance(parent, _OpenMapping) and not parent.awaits_value
        if isinstance(node, Scalar):
            # A key is its own place, also where an alias spells it.
            node = replace(node, span=span) if is_key else replace(node, alias=span)
        self._add(node, span)

    def _undefined(self, name: str, span: Span) -> None:
        close = nearest(name, self._anchors, limit=1)
        help_text = "put the value in quotes if `*` is text, or mark an earlier value with `&`"
        if close:
            help_text = f"did you mean `*{close[0]}`?"
        self._faults.add(rules.S010, span, f"no anchor `&{name}` stands above `*{name}`", help_text)

    def _keep(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = node

    def _add(self, node: Node, span: Span) -> None:
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        parent.add(node, self._faults)
        check_values(parent.values, span, self._faults)

    def _check_depth(self, levels: int, span: Span) -> None:
        if len(self._open) + levels > MAX_DEPTH:
            message = f"values are nested more than `{MAX_DEPTH}` deep"
            help_text = "close brackets that are open by mistake, or nest less"
            self._faults.stop(rules.S013, span, message, help_text)

    def _value(self, text: str, span: Span) -> Any:
        try:
            return plain_scalar(text)
        except NumberTooLongError:
            message = f"the number `{_shown(text)}` has more than `{MAX_NUMBER_CHARACTERS}` characters"
            self._faults.add(rules.S018, span, message, "put it in quotes if it is text")
            return None

    def _check_escapes(self, text: str, span: Span) -> None:
        found = FORBIDDEN_CHARACTER.search(text)
        if found:
            message = f"an escape stands for the character `U+{ord(found[0]):04X}`, which a spec may not hold"
            self._faults.add(rules.S002, span, message, r"remove the escape; in '...' a `\` is just a `\`")

    def _without_anchor(self, span: Span, anchor: str | None) -> Span:
        """The value alone: an anchor, and a tag that is refused elsewhere, are not part of it."""
        start, end = span
        found = _ANCHOR_OR_TAG.match(self._faults.text, start) if anchor else None
        return (found.end(), max(found.end(), end)) if found else span

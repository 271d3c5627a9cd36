"""Reading a spec file: from text to plain data, with the place of every key and value.

This module alone uses ruamel.yaml, and only its stream of events.  Composing the nodes from events costs one
pass, gives exact places for keys, values, merges and aliases, bounds nesting and what aliases stand for
before either takes memory, and leaves ``text`` as it was for whoever edits it with its comments.

Columns count characters; a byte-order mark is not part of the text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.schema import source_rules as rules
from servespec.schema.joined_keys import joined_line
from servespec.schema.source_faults import Faults, Lines, Span
from servespec.schema.source_nodes import (
    FORBIDDEN_CHARACTER,
    Composer,
    Entry,
    Map,
    Node,
    Scalar,
    check_values,
    data_of,
    first_span,
)
from servespec.schema.source_syntax import Complaint, explain

SpecPath = tuple[str | int, ...]

# Chosen: a long hand-written spec is under 10 KiB, and 256 KiB are read in a few seconds.
MAX_FILE_BYTES = 256 * 1024

_BYTE_ORDER_MARK = "\ufeff"
_YAML_VERSION = (1, 2)
_YAML_DIRECTIVE = re.compile(r"^%YAML[^\r\n]*", re.MULTILINE)
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_TAG = re.compile(r"![^\s,\[\]{}]*")
_LARGE_ESCAPE = re.compile(r"\\U([0-9A-Fa-f]{8})")
_LAST_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class SpecSource:
    """A file that was read; ``data`` is plain, with aliases and merges resolved into copies of their own.

    Made from ``data`` alone, as for a command line, it has no lines: every place is the whole of ``name``.
    """

    name: str
    text: str
    data: Mapping[str, Any]
    _root: Map | None = field(default=None, repr=False, compare=False)
    _lines: Lines | None = field(default=None, repr=False, compare=False)

    @property
    def own(self) -> "SpecSource":
        """The file alone, without those that it is laid over."""
        return self

    @property
    def texts(self) -> Mapping[str, str]:
        """The text of every file that it was read from, by name."""
        return {self.name: self.text}

    def place_of(self, path: SpecPath) -> Place:
        """Where the value at ``path`` is written; its key where the value is empty or a block.

        A plain value that an alias brings in is at the alias; what else an alias or a merge brings in is where it was
        written.  A missing path points at the key of its
        nearest existing parent, and the root at line 1, column 1.
        """
        entry, found = self._nearest_entry(path)
        if entry is None:
            return self._place((0, 0))
        return self._place(entry.value_span() if found else entry.key)

    def place_of_key(self, path: SpecPath) -> Place:
        """Where the key at ``path`` is written; for an item of a list, the item."""
        entry, _ = self._nearest_entry(path)
        return self._place((0, 0) if entry is None else entry.key)

    def entry_at(self, path: SpecPath) -> Entry | None:
        """The key and the node at ``path``, with spans of ``text``; None where the file does not write it."""
        entry, found = self._nearest_entry(path)
        return entry if found else None

    def _nearest_entry(self, path: SpecPath) -> tuple[Entry | None, bool]:
        """The last entry on the way to ``path`` that exists, and whether it is that of ``path``."""
        if self._root is None:
            return None, False
        entry, nearest_entry = Entry((0, 0), self._root), None
        for step in path:
            below = entry.below(step)
            if below is None:
                return nearest_entry, False
            entry = nearest_entry = below
        return nearest_entry, True

    def _place(self, span: Span) -> Place:
        return Place(self.name, None if self._lines is None else self._lines.range_of(span))


def read_source(raw: bytes | str, name: str) -> SpecSource:
    """Reads one YAML 1.2 file called ``name``.

    Raises :class:`SpecError` with every fault found before reading had to stop.
    """
    faults = Faults(name, _decoded(raw, name))
    _check_characters(faults)
    root = _composed(faults)
    faults.raise_any()
    return SpecSource(name, faults.text, data_of(root), root, faults.lines)


def read_documents(raw: bytes | str, name: str) -> tuple[SpecSource, ...]:
    """Reads every document of one file that is a mapping; the others are left out.

    Raises :class:`SpecError` as `read_source` does, but for a second document.
    """
    faults = Faults(name, _decoded(raw, name))
    _check_characters(faults)
    roots = [root for root in _roots(faults, most=None) if isinstance(root, Map)]
    check_values(sum(root.values for root in roots), (0, 0), faults)
    faults.raise_any()
    return tuple(SpecSource(name, faults.text, data_of(root), root, faults.lines) for root in roots)


def excerpt_text(raw: bytes | str) -> str:
    """The text to show beside findings, also where the file cannot be read: no byte is refused."""
    text = raw if isinstance(raw, str) else raw[:MAX_FILE_BYTES].decode("utf-8", errors="replace")
    return text.removeprefix(_BYTE_ORDER_MARK)


# Bytes to text


def _decoded(raw: bytes | str, name: str) -> str:
    size = len(raw) if isinstance(raw, bytes) else len(raw.encode("utf-8", errors="surrogatepass"))
    if size > MAX_FILE_BYTES:
        message = f"the file has `{size}` bytes; a spec has at most `{MAX_FILE_BYTES}`"
        raise SpecError([rules.S003.at(Place(name), message, "check that this is the file you mean")])
    if isinstance(raw, str):
        return raw.removeprefix(_BYTE_ORDER_MARK)
    try:
        return raw.decode("utf-8").removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise SpecError([_not_utf8(raw, error.start, name)]) from None


def _not_utf8(raw: bytes, offset: int, name: str) -> Diagnostic:
    before = raw[:offset].decode("utf-8").removeprefix(_BYTE_ORDER_MARK)
    place = Place(name, Lines(before).range_of((len(before), len(before) + 1)))
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return rules.S001.at(place, "the file is UTF-16 text, not UTF-8", "save it as UTF-8")
    message = f"byte `0x{raw[offset]:02x}` at offset {offset} is not UTF-8 text"
    return rules.S001.at(place, message, "save the file as UTF-8")


def _check_characters(faults: Faults) -> None:
    for found in FORBIDDEN_CHARACTER.finditer(faults.text):
        message = f"the character `U+{ord(found[0]):04X}` may not stand in a spec"
        faults.add(rules.S002, found.span(), message, "delete it; an editor may not show it")
    faults.raise_any()


# Text to nodes


def _composed(faults: Faults) -> Map:
    root = next(iter(_roots(faults, most=1)), None)
    if not isinstance(root, Map):
        _refuse_root(root, faults)
    return root


def _roots(faults: Faults, most: int | None) -> list[Node | None]:
    """The root of each document; one more than ``most`` is a fault."""
    composers: list[Composer] = []
    for event in _events(faults):
        if isinstance(event, DocumentStartEvent):
            _check_document(event, is_surplus=len(composers) == most, faults=faults)
            composers.append(Composer(faults))
        elif isinstance(event, NodeEvent):
            _take_node(event, composers[-1], faults)
        elif isinstance(event, CollectionEndEvent):
            composers[-1].end(event.end_mark.index)
    return [composer.root for composer in composers]


def _take_node(event: NodeEvent, composer: Composer, faults: Faults) -> None:
    span = _written_span(event, faults.text)
    if isinstance(event, AliasEvent):
        composer.alias(event.anchor, span)
    elif isinstance(event, ScalarEvent):
        _check_tag(event.tag, span, faults)
        composer.scalar(event.value, span, event.anchor, plain=event.implicit[0])
    elif isinstance(event, CollectionStartEvent):
        _check_tag(event.tag, span, faults)
        mapping = isinstance(event, MappingStartEvent)
        composer.begin(span[0], event.anchor, mapping=mapping, flow=bool(event.flow_style))


def _check_tag(tag: str | None, span: Span, faults: Faults) -> None:
    if tag is not None:
        faults.add(rules.S015, *_tag_refused(span[0], faults))


def _written_span(event: Event, text: str) -> Span:
    """A text block ends for the reader where the next key begins; for a person, with its last word."""
    start, end = event.start_mark.index, event.end_mark.index
    return (start, start + len(text[start:end].rstrip()))


def _check_document(event: DocumentStartEvent, *, is_surplus: bool, faults: Faults) -> None:
    start, end = event.start_mark.index, event.end_mark.index
    span = (start, end) if start < end else faults.character(start)
    if event.version not in (None, _YAML_VERSION):
        asked = ".".join(map(str, event.version))
        line = _YAML_DIRECTIVE.search(faults.text)
        at = line.span() if line else span
        faults.add(rules.S017, at, f"the file asks for YAML `{asked}`, not `1.2`", "delete the `%YAML` line")
    if is_surplus:
        message = "a second document starts here; one file holds one spec"
        faults.stop(rules.S009, span, message, "move it to a file of its own, or delete it")


def _refuse_root(root: Node | None, faults: Faults) -> NoReturn:
    if root is None or (isinstance(root, Scalar) and root.value is None):
        help_text = "start it with `servespec: 1`, or let `servespec init` write it"
        faults.stop(rules.S004, (0, 0), "the file holds no spec", help_text)
    span = first_span(root) or (0, 0)
    if faults.text.startswith("#!"):
        message = "the file is a script, not a spec"
        faults.stop(rules.S008, span, message, "`servespec import FILE` makes a spec of the command in it")
    if isinstance(root, Scalar):
        joined = joined_line(faults.text, span[0])
        if joined is not None:
            message = f"no space follows the colon of `{joined.name}`"
            faults.stop(rules.S008, faults.character(joined.at), message, joined.help)
        message = "the file is one value, not a mapping of names to values"
        faults.stop(rules.S008, span, message, "write `name: value`, with a space after the colon")
    help_text = "write the spec itself, not a list; each spec is a file of its own"
    faults.stop(rules.S008, span, "the file is a list, not a mapping", help_text)


def _tag_refused(at: int, faults: Faults) -> tuple[Span, str, str]:
    found = _TAG.search(faults.text, at)
    span = found.span() if found else faults.character(at)
    tag = faults.text[slice(*span)]
    return span, f"the tag `{tag}` is not followed", "delete the tag; put a value that is text in quotes"


# Text to events, and what the reader cannot read


def _events(faults: Faults) -> Iterator[Event]:
    try:
        yield from YAML(typ="safe", pure=True).parse(faults.text)
    except MarkedYAMLError as error:
        _stop_at_syntax(error, faults)
    except (ValueError, OverflowError):
        _stop_at_number(faults)


def _stop_at_syntax(error: MarkedYAMLError, faults: Faults) -> NoReturn:
    context_at, problem_at = _index(error.context_mark), _index(error.problem_mark)
    at = problem_at if problem_at is not None else context_at or 0
    problem = str(error.problem or "")
    context = str(error.context or "")
    if context.endswith(" tag") or "undefined tag handle" in problem:
        faults.stop(rules.S015, *_tag_refused(at if context_at is None else context_at, faults))
    _stop_at_special(problem, at, faults)
    _stop_at_joined(problem, at if context_at is None or problem.startswith("mapping") else context_at, faults)
    _stop_after_value(problem, at, faults)
    complaint = Complaint(context, problem, faults.line_before(at), faults.text[at:])
    explanation = explain(complaint)
    if context_at is None or context_at == at:
        faults.stop(rules.S005, faults.character(at), explanation.message, explanation.help)
    if explanation.at_context:
        faults.stop(rules.S005, faults.character(context_at), explanation.message, explanation.help)
    related = faults.related(faults.character(context_at), f"{explanation.context} begins here")
    faults.stop(rules.S005, faults.character(at), explanation.message, explanation.help, related)


def _index(mark: Any) -> int | None:
    return None if mark is None else int(mark.index)


def _stop_at_special(problem: str, at: int, faults: Faults) -> None:
    """Complaints that have rules of their own."""
    if "incompatible YAML" in problem:
        _stop_at_version(faults)
    if faults.text[at : at + 1] == "\t":
        words_before = faults.line_before(at).strip()
        message = "a tab stands between values" if words_before else "the line is indented with a tab"
        help_text = "replace it with spaces; put text that holds a tab in quotes"
        faults.stop(rules.S006, (at, at + 1), message, help_text)


_JOINED_COMPLAINTS = ("mapping values are not allowed", "could not find expected ':'", "expected '<document start>'")


def _stop_at_joined(problem: str, at: int, faults: Faults) -> None:
    """A key whose colon no space follows is no key, so that the reader gives up at the next one."""
    joined = joined_line(faults.text, at) if problem.startswith(_JOINED_COMPLAINTS) else None
    if joined is not None:
        message = f"no space follows the colon of `{joined.name}`"
        faults.stop(rules.S005, faults.character(joined.at), message, joined.help)


def _stop_after_value(problem: str, at: int, faults: Faults) -> None:
    """What follows a first value that is no mapping of a spec: another format."""
    starts_indented = faults.text.lstrip("\r\n")[:1].isspace()
    if problem.startswith("expected '<document start>'") and not (_DIRECTIVE.search(faults.text) or starts_indented):
        message = "the file is not YAML: this line follows a value that has already ended"
        faults.stop(rules.S005, faults.character(at), message, "check that this is the file you mean")


def _stop_at_version(faults: Faults) -> NoReturn:
    line = _YAML_DIRECTIVE.search(faults.text)
    message = "the file asks for a version of YAML that does not exist"
    faults.stop(rules.S017, line.span() if line else (0, 0), message, "delete the `%YAML` line")


def _stop_at_number(faults: Faults) -> NoReturn:
    """Two numbers are handed on unchecked: `\\U` above the last code point, and the version of `%YAML`."""
    large = (m for m in _LARGE_ESCAPE.finditer(faults.text) if int(m[1], 16) > _LAST_CODE_POINT)
    found = next(large, None)
    if found:
        message = f"the escape `{found[0]}` stands for no character"
        faults.stop(rules.S005, found.span(), message, "write the character itself")
    _stop_at_version(faults)

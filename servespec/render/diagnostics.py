"""Findings as text, as one line each, as GitHub annotations and as JSON.

Everything here is made from the JSON form of a finding (:meth:`servespec.diagnostics.Diagnostic.to_json`) and
the texts of the files that it names.  What a file holds reaches the terminal as characters only: those that
could drive it, or that nobody can see, are spelled out.
"""

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Finding = Mapping[str, Any]

_TAB_WIDTH = 4
_NARROWEST = 40
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEVERITIES = ("error", "warning", "note")
_GITHUB_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


@dataclass(frozen=True, slots=True)
class _Paint:
    """Colours, or none."""

    color: bool

    def severity(self, text: str, severity: str) -> str:
        return self._in({"error": "1;31", "warning": "1;33"}.get(severity, "1;36"), text)

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def frame(self, text: str) -> str:
        return self._in("1;34", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text


@dataclass(frozen=True, slots=True)
class _Page:
    """What all findings of one rendering share; ``width`` is in terminal columns."""

    lines: Mapping[str, Sequence[str]]
    paint: _Paint
    width: int


def text(findings: Sequence[Finding], sources: Mapping[str, str], *, color: bool, width: int = 80) -> str:
    """Findings with excerpts of ``sources`` (texts by file name) and a line that counts them.

    Empty where there is no finding; otherwise it ends with a line feed.
    """
    if not findings:
        return ""
    page = _Page({name: _lines(source) for name, source in sources.items()}, _Paint(color), max(width, _NARROWEST))
    blocks = ["\n".join(_block(finding, page)) for finding in findings]
    return "\n\n".join([*blocks, summary(findings)]) + "\n"


def summary(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 warning in spec.yaml`"""
    counts = Counter(str(finding["severity"]) for finding in findings)
    parts = [_counted(counts[severity], severity) for severity in _SEVERITIES if counts[severity]]
    files = sorted({str(finding["file"]) for finding in findings})
    where = printable(files[0]) if len(files) == 1 else _counted(len(files), "file")
    return f"{', '.join(parts)} in {where}"


def concise(findings: Iterable[Finding]) -> str:
    """One line a finding: `spec.yaml:4:3: error[S101] message`."""
    return "".join(f"{address(f)}: {f['severity']}[{f['code']}] {printable(f['message'])}\n" for f in findings)


def github(findings: Iterable[Finding]) -> str:
    """One workflow command a finding, for annotations on a pull request."""
    return "".join(f"{_github_command(finding)}\n" for finding in findings)


def envelope(findings: Sequence[Finding]) -> dict[str, Any]:
    """The answer of `validate --format json`."""
    counts = Counter(str(finding["severity"]) for finding in findings)
    return {
        "format": 1,
        "valid": counts["error"] == 0,
        "error_count": counts["error"],
        "warning_count": counts["warning"],
        "diagnostics": [dict(finding) for finding in findings],
    }


def printable(text: str) -> str:
    """``text`` with every character that is not printable spelled out, as `<U+001B>`."""
    return "".join(map(_shown, text))


# One finding


def _block(finding: Finding, page: _Page) -> Iterator[str]:
    gutter = _gutter_width(finding)
    yield from _headline(finding, page)
    yield f"{' ' * gutter}{page.paint.frame('-->')} {address(finding)}"
    yield from _excerpt(finding, "^", finding["severity"], gutter, page)
    for related in finding["related"]:
        yield f"{' ' * gutter}{page.paint.frame(':::')} {address(related)}: {printable(related['message'])}"
        yield from _excerpt(related, "-", "note", gutter, page)
    if finding["help"]:
        yield from _help(printable(finding["help"]), gutter, page)


def _headline(finding: Finding, page: _Page) -> Iterator[str]:
    label = f"{finding['severity']}[{finding['code']}]"
    first, *rest = _wrapped(f"{label}: {printable(finding['message'])}", page.width, "  ")
    yield page.paint.severity(label, finding["severity"]) + page.paint.bold(first.removeprefix(label))
    yield from map(page.paint.bold, rest)


def _help(help_text: str, gutter: int, page: _Page) -> Iterator[str]:
    lead = f"{' ' * gutter} = help: "
    first, *rest = _wrapped(lead + help_text, page.width, " " * len(lead))
    sign = page.paint.frame(f"{' ' * gutter} =")
    yield f"{sign} {page.paint.bold('help:')} {first.removeprefix(lead)}"
    yield from rest


def _wrapped(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _excerpt(place: Finding, mark: str, severity: str, gutter: int, page: _Page) -> Iterator[str]:
    """The first line of the place, with ``mark`` below it; nothing where its file is not at hand."""
    line = _line_of(place, page)
    if line is None:
        return
    marked = _marked(line, *_columns(place, line), page.width - gutter - len(" | "))
    number = str(place["range"]["start"]["line"]).rjust(gutter)
    margin = f"{' ' * gutter} {page.paint.frame('|')}"
    yield margin
    yield f"{page.paint.frame(f'{number} |')} {marked.shown}".rstrip()
    yield f"{margin} {' ' * marked.indent}{page.paint.severity(mark * marked.length, severity)}"


def _gutter_width(finding: Finding) -> int:
    ranges = [place["range"] for place in (finding, *finding["related"]) if place["range"]]
    return max((len(str(r["start"]["line"])) for r in ranges), default=1)


def _line_of(place: Finding, page: _Page) -> str | None:
    lines = page.lines.get(place["file"])
    if lines is None or place["range"] is None:
        return None
    number = place["range"]["start"]["line"]
    return lines[number - 1] if number <= len(lines) else ""


def _columns(place: Finding, line: str) -> tuple[int, int]:
    """First index of the place on its line and the one after its last; at least one character."""
    start, end = place["range"]["start"], place["range"]["end"]
    first = min(start["column"] - 1, len(line))
    last = end["column"] - 1 if end["line"] == start["line"] else len(line)
    return first, max(first + 1, min(last, len(line)))


# One line of source


@dataclass(frozen=True, slots=True)
class _Marked:
    """A line as shown, and the terminal columns below it that are marked."""

    shown: str
    indent: int
    length: int


def _marked(line: str, first: int, last: int, room: int) -> _Marked:
    """``line`` cut to ``room`` terminal columns around the characters from ``first`` to ``last``."""
    # A line may be as long as a file may be: only what is near the mark is looked at.
    start, stop = max(0, first - 2 * room), first + 2 * room
    cells, first, last = _cells(line[start:stop]), first - start, last - start
    low, high = _window(cells, first, room)
    before = "…" if start + low > 0 else ""
    after = "…" if start + high < len(line) else ""
    indent = len(before) + _width("".join(cells[low:first]))
    length = max(1, _width("".join(cells[first : min(last, high)])))
    return _Marked(before + "".join(cells[low:high]) + after, indent, length)


def _window(cells: Sequence[str], first: int, room: int) -> tuple[int, int]:
    """The cells to show: all that fit, else a third of ``room`` before ``first`` and the rest after it."""
    widths = [_width(cell) for cell in cells]
    if sum(widths) <= room:
        return 0, len(cells)
    room -= len("……")
    low = first - _fitting(reversed(widths[:first]), room // 3)
    high = low + _fitting(widths[low:], room)
    # What the right side does not use, the left side gets.
    low = high - _fitting(reversed(widths[:high]), room) if high == len(cells) else low
    return low, high


def _fitting(widths: Iterable[int], room: int) -> int:
    """How many of ``widths`` fit into ``room``."""
    count = 0
    for width in widths:
        room -= width
        if room < 0:
            break
        count += 1
    return count


def _cells(line: str) -> list[str]:
    """What is shown for each character."""
    return [" " * _TAB_WIDTH if character == "\t" else _shown(character) for character in line]


def _shown(character: str) -> str:
    """Control, direction and zero-width characters and every space but one are not printable."""
    return character if character.isprintable() else f"<U+{ord(character):04X}>"


def _width(shown: str) -> int:
    """Terminal columns: two for East Asian wide characters, none for marks on the character before."""
    if shown.isascii():
        return len(shown)
    return sum(map(_character_width, shown))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


# Words and addresses


def _lines(source: str) -> list[str]:
    """Lines as the reader of specs counts them; a byte-order mark is no column."""
    return _LINE_END.split(source.removeprefix("\ufeff"))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def address(place: Finding) -> str:
    """`spec.yaml:4:3`, the file alone where a place has no range."""
    file = printable(place["file"])
    if place["range"] is None:
        return file
    start = place["range"]["start"]
    return f"{file}:{start['line']}:{start['column']}"


def _github_command(finding: Finding) -> str:
    properties = {
        "file": printable(finding["file"]),
        **_github_range(finding["range"]),
        "title": f"{finding['code']} {finding['name']}",
    }
    listed = ",".join(f"{key}={_github_property(value)}" for key, value in properties.items())
    command = _GITHUB_COMMANDS[finding["severity"]]
    return f"::{command} {listed}::{_github_data(_github_message(finding))}"


def _github_message(finding: Finding) -> str:
    message = printable(finding["message"])
    return f"{message}\nhelp: {printable(finding['help'])}" if finding["help"] else message


def _github_range(place_range: Mapping[str, Any] | None) -> dict[str, str]:
    """Columns only within one line: the annotation of several lines takes none."""
    if place_range is None:
        return {}
    start, end = place_range["start"], place_range["end"]
    lines = {"line": str(start["line"]), "endLine": str(end["line"])}
    if start["line"] != end["line"]:
        return lines
    # The place after the last character in a spec, the last character itself in an annotation.
    last = max(start["column"], end["column"] - 1)
    return {**lines, "col": str(start["column"]), "endColumn": str(last)}


def _github_data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _github_property(value: str) -> str:
    return _github_data(value).replace(":", "%3A").replace(",", "%2C")

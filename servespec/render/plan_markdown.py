"""A plan as Markdown for a pull request, made from its JSON form: a table for each section, long lists folded.

It stays within what GitHub takes as one comment: a part that does not fit beside those before it is left out, and the
last line says which.  Values reach the comment as characters only.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servespec.render.diagnostics import address, printable, summary
from servespec.render.memory_rows import held, measured_by, memory_verdict, reasons, spending
from servespec.render.plan_summary import heading, verdict
from servespec.render.plan_tables import (
    Table,
    beside_stock_table,
    captures,
    gains_table,
    graphs_table,
    launch_lines,
    memory_lines_table,
    memory_table,
    predicted_table,
    resolved_table,
    savings_table,
    sizes_table,
    stages_table,
    steps_table,
)
from servespec.render.tier_rows import predicted_by

Json = Mapping[str, Any]

MOST_CHARACTERS = 65_536
"""Of one comment on GitHub."""
_LEFT_OUT_CHARACTERS = 400
"""Kept for the line that says what was left out."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the comment; ``name`` is what to call it where it is left out."""

    name: str
    text: str


def plan_markdown(plan: Json) -> str:
    """The whole comment; it ends with a line feed and never has more than ``MOST_CHARACTERS``."""
    head = f"## {_escaped(_sentence(verdict(plan)))}\n\n{_escaped(_sentence(heading(plan)))}"
    parts = [part for part in (*_sections(plan), *_folded(plan)) if part.text]
    kept, left_out = [head], []
    room = MOST_CHARACTERS - _LEFT_OUT_CHARACTERS - len(head)
    for part in parts:
        if len(part.text) + 2 > room:
            left_out.append(part.name)
            continue
        kept.append(part.text)
        room -= len(part.text) + 2
    if left_out:
        kept.append(f"Left out, as a comment takes {MOST_CHARACTERS:,} characters: {', '.join(left_out)}.")
    return "\n\n".join(kept) + "\n"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


# Characters

_ACTIVE = re.compile(r"[&<>`*~\[\]|\\$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)


def _escaped(text: str) -> str:
    """Characters alone, on one line: none of them begins markup, a link, a mention or a cell."""
    return _ACTIVE.sub(lambda found: _spelled(found[0]), printable(text))


def _spelled(character: str) -> str:
    """Addresses and mentions are found after entities are read, in one run of text; a comment ends the run."""
    return f"&#{ord(character)};" + ("<!-- -->" if character == "@" else "")


def _code(text: str) -> str:
    """Inline code; as HTML, because a value may hold backticks and bars."""
    return f"<code>{_escaped(text)}</code>" if text else ""


def _with_code(text: str) -> str:
    """Words of a finding, its values in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _escaped(text)
    return "".join(_code(part) if index % 2 else _escaped(part) for index, part in enumerate(parts))


def _table(made: Table) -> str:
    """'' without rows."""
    if not made.rows:
        return ""
    rule = ["---:" if index in made.numbers else "---" for index in range(len(made.headers))]
    rows = [[_cell(made, index, text) for index, text in enumerate(row)] for row in made.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (made.headers, rule, *rows))


def _cell(made: Table, column: int, text: str) -> str:
    return _with_code(text) if column in made.prose else _escaped(text)


def _titled(title: str, *parts: str) -> str:
    """A section, '' where nothing stands in it."""
    shown = [part for part in parts if part]
    return "\n\n".join([f"### {title}", *shown]) if shown else ""


# Sections


def _sections(plan: Json) -> Iterator[_Part]:
    yield _Part("steps", "\n\n".join(part for part in (_table(steps_table(plan)), captures(plan)) if part))
    yield _Part("memory", _memory(plan))
    if "tiers" in plan:
        said = f"{_with_code(predicted_by(plan['tiers']))}."
        yield _Part("tiers", _titled("Tiers", said, _table(predicted_table(plan["tiers"]))))
    if "graph_gains" in plan:
        made = gains_table(plan["graph_gains"])
        yield _Part("where graphs pay", _titled("Where graphs pay", f"{_escaped(made.caption)}.", _table(made)))
    yield _Part("graphs", _titled("Graphs", _table(graphs_table(plan))))
    yield _Part("findings", _titled("Findings", *_findings(plan["diagnostics"])))


def _memory(plan: Json) -> str:
    memory = plan["memory"]
    if memory is None:
        return ""
    stock = plan.get("stock", {}).get("memory")
    said = [_with_code(text) for text in (held(memory), measured_by(memory), *reasons(memory)) if text]
    return _titled(
        "Memory of one device",
        f"GiB: {spending(memory)}; {memory_verdict(memory)}.",
        _table(memory_table(memory, stock)),
        "\n".join(f"- {text}" for text in said),
        _table(stages_table(memory)) if "stages" in memory else "",
        _table(savings_table(plan["remedy_savings"])) if "remedy_savings" in plan else "",
        "" if stock is None else _table(beside_stock_table(memory, stock)),
    )


def _findings(findings: Sequence[Json]) -> Iterator[str]:
    if findings:
        yield f"{_escaped(_sentence(summary(findings)))}."
        yield "\n".join(f"- {_finding(finding)}" for finding in findings)


def _finding(finding: Json) -> str:
    helped = f"<br>{_with_code(finding['help'])}" if finding["help"] else ""
    named = f"**{finding['severity']} {finding['code']}** {_code(address(finding))}"
    return f"{named}<br>{_with_code(finding['message'])}{helped}"


# Folded parts, the most wanted first


def _folded(plan: Json) -> Iterator[_Part]:
    yield _fold("launch line", _launch(plan["launch"]))
    yield _fold("resolved values", _table(resolved_table(plan)))
    yield _fold("captured sizes", _table(sizes_table(plan)))
    if plan["memory"] is not None:
        yield _fold("every line of the memory", _table(memory_lines_table(plan["memory"])))


def _fold(name: str, text: str) -> _Part:
    return _Part(name, f"<details><summary>{_sentence(name)}</summary>\n\n{text}\n\n</details>" if text else "")


def _launch(launch: Json) -> str:
    """In a fence longer than any run of backticks in it."""
    text = " \\\n  ".join(map(printable, launch_lines(launch)))
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{fence}sh\n{text}\n{fence}"

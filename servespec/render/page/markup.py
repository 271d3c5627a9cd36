"""HTML as a tree of words: whatever is not marked as HTML already is escaped where it is put in."""

import html
from collections.abc import Iterable

from servespec.render.diagnostics import printable
from servespec.render.plan_tables import Table


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


_VOID = frozenset({"meta", "br"})


def escaped(text: str) -> Markup:
    """``text`` as characters alone; those that nobody can see are spelled out."""
    return Markup(html.escape(printable(text)))


def joined(parts: Iterable[str]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escaped(part) for part in parts))


def lines_of(between: str, lines: Iterable[str]) -> Markup:
    """Escaped lines with ``between`` as it stands."""
    return Markup(between.join(map(escaped, lines)))


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """One element; `class_` and `aria_label` stand for `class` and `aria-label`."""
    words = "".join(f' {name.strip("_").replace("_", "-")}="{escaped(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{words}>" if tag in _VOID else f"<{tag}{words}>{joined(children)}</{tag}>")


def with_code(text: str) -> Markup:
    """Words of a finding, its values in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escaped(text)
    return joined(element("code", part) if index % 2 else part for index, part in enumerate(parts) if part)


def table(made: Table) -> Markup:
    """In a box of its own, so that a wide table scrolls and not the page."""
    head = element("tr", *(element("th", text, scope="col") for text in made.headers))
    body = (
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", _text(made, i, text)) for i, text in enumerate(row[1:], start=1)),
        )
        for row in made.rows
    )
    figures = {"class_": " ".join(f"number-{column}" for column in sorted(made.numbers))}
    rows = element(
        "table", element("caption", made.caption), element("thead", head), element("tbody", *body), **figures
    )
    return element("div", rows, class_="scroll", role="group", aria_label=made.caption, tabindex="0")


def _text(made: Table, column: int, text: str) -> Markup:
    return with_code(text) if column in made.prose else escaped(text)


def details(summary: str, *children: str) -> Markup:
    """What is shown on request."""
    return element("details", element("summary", summary), *children)

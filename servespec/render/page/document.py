"""The page of a plan: one HTML file that needs no network and no script, with the plan's JSON form in it."""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from servespec.render.page.markup import Markup, element, joined
from servespec.render.page.sections import Section, sections_of
from servespec.render.plan_summary import heading, verdict

Json = Mapping[str, Any]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Nothing runs and nothing is fetched, whatever a plan holds."""


def plan_page(plan: Json) -> str:
    """The whole file; it ends with a line feed."""
    sections = sections_of(plan)
    body = element(
        "body",
        element("a", "Skip to the plan", href="#plan", class_="skip"),
        _patterns(),
        element("header", *_header(plan, sections)),
        element("main", *map(_section, sections), id="plan"),
        element("footer", *_footer(plan)),
        _data(plan),
    )
    return "<!doctype html>\n" + element("html", element("head", *_head(plan)), body, lang="en") + "\n"


def _head(plan: Json) -> Iterator[Markup]:
    yield element("meta", charset="utf-8")
    yield element("meta", http_equiv="Content-Security-Policy", content=_POLICY)
    yield element("meta", name="viewport", content="width=device-width, initial-scale=1")
    yield element("meta", name="color-scheme", content="light dark")
    yield element("title", f"servespec plan: {plan['inputs']['model']['id']}")
    yield element("style", Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8")))


def _header(plan: Json, sections: tuple[Section, ...]) -> Iterator[Markup]:
    said = verdict(plan)
    yield element("h1", said[0].upper() + said[1:])
    yield element("p", heading(plan), class_="about")
    yield element("p", "Model ", element("code", str(plan["inputs"]["model"]["id"])), class_="about")
    links = (element("li", element("a", section.title, href=f"#{section.id}")) for section in sections)
    yield element("nav", element("ul", *links), aria_label="Sections")


def _section(section: Section) -> Markup:
    title = element("h2", section.title, id=f"{section.id}-title")
    return element("section", title, *section.parts, id=section.id, aria_labelledby=f"{section.id}-title")


def _footer(plan: Json) -> Iterator[Markup]:
    yield element("p", f"servespec {plan['servespec']}, plan format {plan['format']}.")
    yield element("p", f"Spec {plan['inputs']['spec_sha256']}, facts {plan['inputs']['facts_sha256']}.")


def _data(plan: Json) -> Markup:
    """The plan itself, for programs; no character of it can end the element or the file."""
    text = json.dumps(plan, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", Markup(text), type="application/json", id="plan-json")


# Textures, so that nothing is told by colour alone

_TEXTURES = {
    "pad": ("var(--pad)", "M0 6L6 0", "var(--full)", "0.6"),
    "eager": ("var(--paper)", "M0 0L6 6M0 6L6 0", "var(--eager)", "0.9"),
    "never": ("var(--raised)", "M0 3H2", "var(--muted)", "1"),
    "memory-0": ("var(--memory-0)", "", "var(--ink)", "0"),
    "memory-1": ("var(--memory-1)", "M0 6L6 0", "var(--ink)", "0.9"),
    "memory-2": ("var(--memory-2)", "M2 3H4", "var(--ink)", "1.5"),
    "memory-3": ("var(--memory-3)", "M0 3H6", "var(--ink)", "0.9"),
    "memory-4": ("var(--memory-4)", "M0 0L6 6M0 6L6 0", "var(--ink)", "0.7"),
    "memory-5": ("var(--memory-5)", "M3 0V6", "var(--ink)", "0.9"),
    "memory-6": ("var(--memory-6)", "", "var(--ink)", "0"),
}


def _patterns() -> Markup:
    made = (
        element(
            "pattern",
            element("rect", width="6", height="6", fill=paper),
            element("path", d=path, stroke=stroke, stroke_width=width),
            id=name,
            width="6",
            height="6",
            patternUnits="userSpaceOnUse",
        )
        for name, (paper, path, stroke, width) in _TEXTURES.items()
    )
    return element("svg", element("defs", joined(made)), class_="defs", aria_hidden="true")

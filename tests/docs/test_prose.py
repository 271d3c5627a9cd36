"""Hand-written pages: one sentence a line, links that lead somewhere, codes and fields that exist."""

import re
from pathlib import Path

import pytest
from doc_blocks import HAND_WRITTEN, ROOT, prose
from doc_pages.spec_page import all_fields

from servespec.render.rules import every_rule

_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"\b[SRPL]\d{3}\b")
_FIELD = re.compile(r"`((?:model|hardware|parallel|scheduler|speculative|compilation|memory|engine|serve)\.[a-z_]+)`")
_TWO_SENTENCES = re.compile(r"[.?!] [A-Z`]")

pages = pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))


@pages
def test_one_sentence_a_line(page: Path) -> None:
    assert [number for number, line in prose(page) if _TWO_SENTENCES.search(_without_code(line))] == []


def _without_code(line: str) -> str:
    return re.sub(r"`[^`]*`", "`x`", re.sub(r"^\d+\. ", "", line))


@pages
def test_links_lead_somewhere(page: Path) -> None:
    targets = [found["target"] for _, line in prose(page) for found in _LINK.finditer(line)]
    local = [target.partition("#")[0] for target in targets if "://" not in target]

    assert [target for target in local if target and not (page.parent / target).exists()] == []


@pages
def test_codes_exist(page: Path) -> None:
    known = {rule.code for rule in every_rule()}

    assert set(_CODE.findall(page.read_text(encoding="utf-8"))) <= known


@pages
def test_fields_exist(page: Path) -> None:
    known = {field.path for field in all_fields()}

    assert set(_FIELD.findall(page.read_text(encoding="utf-8"))) <= known


def test_the_index_links_every_page() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / found["target"]).resolve() for found in _LINK.finditer(index)}
    present = {path for path in ROOT.glob("docs/**/*") if path.suffix in (".md", ".json") and path.name != "index.md"}

    assert {path for path in present if "measurements" not in path.parts or path.name == "README.md"} <= linked

"""Every fault of the corpus is found: at its line and column, the nearest name first, all in one run."""

import json
import re
from collections import Counter

import pytest

from servespec.diagnostics import Diagnostic, Severity, SpecError
from servespec.runtime.spec_file import spec_diagnostics
from servespec.schema.source import read_source
from tests.errors.corpus import GOOD, Broken, Fault, corpus
from tests.plans import REPOSITORY

BROKEN = corpus()


def errors(text: str) -> list[Diagnostic]:
    try:
        found = spec_diagnostics(read_source(text.encode(), "spec.yaml"), allow_code=False)
    except SpecError as error:
        found = error.diagnostics
    return [one for one in found if one.severity is Severity.ERROR]


@pytest.mark.parametrize("name", GOOD)
def test_the_specs_that_were_broken_are_good(name: str) -> None:
    assert errors(GOOD[name]) == []


def test_the_corpus_is_large_and_of_every_kind() -> None:
    kinds = Counter(one.kind for one in BROKEN)

    assert len(BROKEN) >= 300
    assert len({one.text for one in BROKEN}) >= 0.99 * len(BROKEN)
    assert min(kinds.values()) >= 8, kinds


def test_the_documented_figures_are_of_this_corpus() -> None:
    (file,) = sorted((REPOSITORY / "docs/measurements").glob("*-error-corpus.json"))
    told = json.loads(file.read_text(encoding="utf-8"))["servespec"]

    faults = sum(len(one.faults) for one in BROKEN)
    assert (told["files"], told["faults"]) == (len(BROKEN), faults)
    assert (told["refused_files"], told["named_faults"]) == (len(BROKEN), faults)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.name)
def test_every_fault_is_told(broken: Broken) -> None:
    found = errors(broken.text)

    for fault in broken.faults:
        assert any(_tells(one, fault) for one in found), "\n".join(map(_words, found)) + "\n" + broken.text


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.name)
def test_one_slip_is_one_error(broken: Broken) -> None:
    """What follows from a slip is not told beside it, but where a short name is too far from what it stands for."""
    found = errors(broken.text)

    assert len(found) <= len(broken.faults) + (broken.name in TOLD_TWICE), "\n".join(map(_words, found))


TOLD_TWICE = {"eagle3-typos-4", "tiers-typos-4", "legacy-typos-4", "tiers-typos-11"}
"""`i` for `id`, and `gup` for `gpu`, whose fields are also missing."""


def _tells(finding: Diagnostic, fault: Fault) -> bool:
    places = [finding.place, *(related.place for related in finding.related)]
    starts = [one.range.start for one in places if one.range is not None]
    if not any((start.line, start.column) == (fault.line, fault.column) for start in starts):
        return False
    said = f"{finding.message}\n{finding.help}"
    if not all(word in said for word in fault.words):
        return False
    named = re.findall(r"`([^`]+)`", finding.help or "")
    return not fault.first or (bool(named) and named[0].rpartition(".")[2] == fault.first)


def _words(finding: Diagnostic) -> str:
    return f"{finding.code} {finding.place}: {finding.message} | {finding.help}"

"""What a plan says first: the verdict, and which steps run how."""

import json
from pathlib import Path
from typing import Any

import pytest

from servespec.render.plan_summary import joined, steps_of, verdict
from servespec.render.plan_text import plan_text
from tests.golden.cases import every_case

Json = dict[str, Any]

PLANS = [case.folder / "plan.json" for case in every_case() if not case.refused]
_ENDS = {
    "eagle3-h200-lists": "some prefill steps run eagerly; it fits",
    "tiers-h200": "some decode, draft, prefill and mixed steps run eagerly; it fits",
    "memory-marginal": "some prefill steps run eagerly; it fits only within the error bars",
    "cpu": "every step runs eagerly",
    "mode-none": "every step runs eagerly; it fits",
    "eagle3-h200-five-fields": "every step runs from a graph; it fits",
}


def plan_of(path: Path) -> Json:
    return json.loads(path.read_text(encoding="utf-8"))


def modes_of(plan: Json) -> set[str]:
    """Every way in which a step of the plan runs, from the document alone."""
    coverage = plan["coverage"]
    none = {"EAGER" for row in plan["runners"] if row["routine"] == "none"}
    return none | {one["mode"] for kind in ("decode", "prefill", "mixed") for one in coverage[kind]}


def by_case(path: Path) -> str:
    return path.parent.name


@pytest.mark.parametrize("path", [path for path in PLANS if path.parent.name in _ENDS], ids=by_case)
def test_the_verdict(path: Path) -> None:
    assert verdict(plan_of(path)) == _ENDS[path.parent.name]


def test_every_verdict_above_was_looked_at() -> None:
    assert {path.parent.name for path in PLANS} >= set(_ENDS)


@pytest.mark.parametrize("path", PLANS, ids=by_case)
def test_a_verdict_hides_no_eager_step(path: Path) -> None:
    plan = plan_of(path)

    assert ("eagerly" in verdict(plan)) == ("EAGER" in modes_of(plan))


@pytest.mark.parametrize("path", PLANS, ids=by_case)
def test_eager_steps_stand_first(path: Path) -> None:
    text = plan_text(plan_of(path))
    lines = text.partition("\n\n")[2].partition("\n\nmemory")[0].splitlines()
    eager = [index for index, line in enumerate(lines) if "EAGER" in line]

    assert eager == list(range(len(eager)))


@pytest.mark.parametrize("path", PLANS, ids=by_case)
def test_the_text_fits_a_terminal(path: Path) -> None:
    """The table of graphs alone may be wider: its columns are names of the engine's."""
    above = plan_text(plan_of(path)).partition("\n  runner ")[0]

    assert [line for line in above.splitlines() if len(line) > 80] == []


def test_steps_join_where_they_meet() -> None:
    """1 to 16 and 17 to 20 are one extent; 33 stands alone."""
    assert joined([(1, 16), (17, 20), (33, 33)]) == "1-20, 33"


def test_many_extents_are_counted() -> None:
    """1 + 1 + 1 + 1 + 2 sizes in five extents."""
    assert joined([(1, 1), (3, 3), (5, 5), (7, 7), (9, 10)]) == "6 of the sizes from 1 to 10"


def test_each_way_of_running_has_its_steps() -> None:
    plan = plan_of(next(path for path in PLANS if path.parent.name == "ngram"))

    assert [(steps.kind, steps.words) for steps in steps_of(plan)] == [
        ("decode", "1-100 requests on FULL graphs"),
        ("decode", "101-102 requests on PIECEWISE graphs"),
        ("decode", "103-1024 requests EAGER"),
        ("draft", "EAGER: the `ngram` drafter runs eagerly and owns no graphs"),
        ("prefill", "1-512 tokens on PIECEWISE graphs"),
        ("prefill", "513-8192 tokens EAGER"),
    ]

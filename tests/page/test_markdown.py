"""A plan as a comment: what GitHub's own parser makes of it is the plan, and nothing else."""

import json
import re

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given, settings
from typer.testing import CliRunner

from servespec.cli import app
from servespec.render.diagnostics import printable
from servespec.render.plan_markdown import MOST_CHARACTERS, plan_markdown
from servespec.render.plan_summary import heading, verdict
from servespec.render.plan_tables import graphs_table, launch_lines, resolved_table, sizes_table, steps_table
from tests.page.pages import PLANS, Node, cells, golden_plan, hostile_plan, hostile_text, read
from tests.plans import REPOSITORY


def rendered(text: str) -> Node:
    """As GitHub renders it; raw HTML is kept, so that whatever breaks out is seen."""
    return read(cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE))


def first_letter(text: str) -> str:
    return text[0].upper() + text[1:]


def unmarked(text: str) -> str:
    return re.sub("`", "", text)


@pytest.mark.parametrize("name", PLANS)
def test_the_comment_is_the_plan(name: str) -> None:
    plan = golden_plan(name)
    text = plan_markdown(plan)
    page = rendered(text)
    tables = [cells(table) for table in page.all("table")]

    assert len(text) <= MOST_CHARACTERS
    assert page.all("h2")[0].text == first_letter(verdict(plan))
    assert page.all("p")[0].text == first_letter(heading(plan))
    for made in (steps_table(plan), graphs_table(plan), resolved_table(plan), sizes_table(plan)):
        prose = [
            [re.sub("`", "", cell) if i in made.prose else cell for i, cell in enumerate(row)] for row in made.rows
        ]
        assert not prose or prose in tables
    assert [block.text for block in page.all("pre")] == [" \\\n  ".join(launch_lines(plan["launch"])) + "\n"]


def test_findings_are_in_the_comment() -> None:
    plan = golden_plan("tiers-h200")
    shown = rendered(plan_markdown(plan)).text

    assert all(finding["message"].replace("`", "") in shown for finding in plan["diagnostics"])
    assert all(finding["help"].replace("`", "") in shown for finding in plan["diagnostics"])


def test_remedies_are_in_the_comment() -> None:
    plan = golden_plan("remedies-minimax-m3-gb200")

    assert plan["remedies"]
    assert f"Remedies: {', '.join(plan['remedies'])}." in rendered(plan_markdown(plan)).text


def test_what_does_not_fit_a_comment_is_named() -> None:
    """A launch line of 80,000 characters is left out; what comes after it is not."""
    plan = golden_plan("cpu")
    plan["launch"]["argv"].append("x" * 80_000)

    text = plan_markdown(plan)

    assert len(text) <= MOST_CHARACTERS
    assert text.endswith("Left out, as a comment takes 65,536 characters: launch line.\n")
    assert "scheduler.max_num_seqs" in text


def test_findings_too_many_for_a_comment_are_named() -> None:
    plan = golden_plan("tiers-h200")
    plan["diagnostics"] *= 200

    text = plan_markdown(plan)

    assert len(text) <= MOST_CHARACTERS
    assert text.endswith(": findings.\n")


@settings(max_examples=300)
@given(hostile_text)
def test_no_value_breaks_out(value: str) -> None:
    """The elements are those of a harmless value, and the texts are the value's characters."""
    plan = hostile_plan(value)
    page = rendered(plan_markdown(plan))
    harmless = rendered(plan_markdown(hostile_plan("x")))

    assert page.tags() == harmless.tags()
    assert page.all("pre")[0].text == " \\\n  ".join(map(printable, launch_lines(plan["launch"]))) + "\n"
    [row] = [row for table in page.all("table") for row in cells(table) if row[0] == "serve.chat_template"]
    assert [" ".join(cell.split()) for cell in row] == [
        "serve.chat_template",
        " ".join(printable(value).split()),
        "spec",
        " ".join(printable(value).split()),
    ]


@settings(max_examples=100)
@given(hostile_text)
def test_no_launch_leaves_its_fence(value: str) -> None:
    plan = hostile_plan(value + "\n```\n````` x")

    assert len(rendered(plan_markdown(plan)).all("pre")) == 1


def test_the_command_prints_it() -> None:
    spec = str(REPOSITORY / "examples/legacy-list.yaml")

    done = CliRunner().invoke(app, ["plan", spec, "--format", "markdown"])
    document = json.loads(CliRunner().invoke(app, ["plan", spec, "--format", "json"]).stdout)

    assert (done.exit_code, done.stdout) == (0, plan_markdown(document))
    assert done.stdout.startswith("## Some decode, draft and prefill steps run eagerly; it fits\n")

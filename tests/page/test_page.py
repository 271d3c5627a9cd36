"""The page of a plan: what it shows is the plan, it stands alone, and no value breaks out of it."""

import json
import re
import sys
from functools import cache

import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from servespec.cli import app
from servespec.render.diagnostics import printable
from servespec.render.page.document import plan_page
from servespec.render.page.drawing import is_installed
from servespec.render.page.spans import groups_of, tiers_of
from servespec.render.plan_markdown import plan_markdown
from servespec.render.plan_tables import launch_lines
from tests.page.pages import PLANS, Node, cells, golden_plan, hostile_plan, hostile_text, read
from tests.plans import REPOSITORY, model_folder, planned, spec_of

pytestmark = pytest.mark.skipif(not is_installed(), reason="the page's charts need `pip install 'servespec[page]'`")

LOOKED_AT = (
    "adaptive-verification-with-gaps",
    "both-disabled",
    "cpu",
    "dspark-deepseek-v4-gb200",
    "eagle3-h200-five-fields",
    "lora",
    "mode-none",
    "ngram",
    "step-budget-too-small",
    "tiers-h200",
    "tiers-interleaved-stock",
    "tiers-that-draft-nothing",
)
MOST_BYTES = 600_000


@cache
def page_of(name: str) -> str:
    return plan_page(golden_plan(name))


@cache
def harmless_tags() -> list[str]:
    return without_code(read(plan_page(hostile_plan("x"))))


@pytest.mark.parametrize("name", LOOKED_AT)
def test_the_plan_is_in_the_page(name: str) -> None:
    plan = golden_plan(name)

    assert json.loads(read(page_of(name)).by_id("plan-json").text) == plan


@pytest.mark.parametrize("name", LOOKED_AT)
def test_the_page_stands_alone(name: str) -> None:
    """No script runs, nothing is fetched, and every link and texture leads to something in the page."""
    text = page_of(name)
    page = read(text)
    ids = re.findall(r' id="([^"]+)"', text)

    assert len(set(ids)) == len(ids)
    assert {node.attributes["type"] for node in page.all("script")} == {"application/json"}
    assert not {"link", "img", "iframe", "object", "image", "use", "foreignobject"} & set(page.tags())
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    assert {node.attributes["href"] for node in page.all("a")} <= {f"#{one}" for one in ids}
    assert len(text.encode()) < MOST_BYTES


@pytest.mark.parametrize("name", LOOKED_AT)
def test_coverage_tables_are_the_coverage(name: str) -> None:
    """Every range of the plan and of the stock engine stands in a row, with its padding by hand: graph - n * q."""
    plan = golden_plan(name)
    section = read(page_of(name)).by_id("coverage")
    shown = sorted(row for table in section.all("table") for row in cells(table))

    expected = []
    for graphs in (plan, *([plan["stock"]] if "stock" in plan else [])):
        for one in graphs["coverage"]["decode"]:
            tokens = one["from_requests"] * one["query_len"]
            ends = (one["from_requests"], one["to_requests"], one["num_speculative_tokens"], one["query_len"])
            expected.append(coverage_cells(one, *ends, tokens, one["padded_to_requests"]))
        expected += [
            coverage_cells(one, one["from_tokens"], one["to_tokens"], "", 1, one["from_tokens"], None)
            for one in graphs["coverage"]["prefill"]
        ]

    assert shown == sorted(expected)


def coverage_cells(one: dict, first: int, last: int, k: object, q: int, tokens: int, requests: int | None) -> list[str]:
    extent = str(first) if first == last else f"{first} to {last}"
    graph = one["padded_to_tokens"]
    padding = "" if graph is None else str(max(graph - tokens, 0))
    return [extent, str(k), str(q), one["mode"], text_of(requests), text_of(graph), padding]


def text_of(value: object) -> str:
    return "" if value is None else str(value)


@pytest.mark.parametrize("name", LOOKED_AT)
def test_sizes_and_values_are_the_plans(name: str) -> None:
    plan = golden_plan(name)
    page = read(page_of(name))
    sources = [("stock", plan["stock"]), ("plan", plan)]
    rows = [(source, row) for source, graphs in sources for row in graphs["runners"] if row["sizes"]]
    tables = {table.all("caption")[0].text: table for table in page.all("table")}

    sizes = cells(tables["All captured sizes"]) if rows else []
    values = {row[0]: row[1] for row in cells(tables["Every blank of the spec, with who filled it and why"])}

    assert [[row[0], json.loads(f"[{row[-1]}]")] for row in sizes] == [[name, row["sizes"]] for name, row in rows]
    assert values == {
        path: one["value"] if isinstance(one["value"], str) else json.dumps(one["value"])
        for path, one in plan["resolved"].items()
    }


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_has_a_page(name: str) -> None:
    page = read(page_of(name))

    assert [node.tag for node in page.all("h1")] == ["h1"]
    assert all(node.attributes["aria-label"] for node in page.all("div") if node.attributes.get("role") == "img")
    assert [table for table in page.all("table") if not cells(table)] == []


def test_each_chart_has_a_table_in_its_section() -> None:
    page = read(page_of("tiers-h200"))
    with_charts = [section for section in page.all("section") if section.all("figure")]

    assert [section.attributes["id"] for section in with_charts] == ["coverage", "memory", "graphs", "tiers"]
    assert all(section.all("table") for section in with_charts)


def test_pipeline_stages_are_the_plans() -> None:
    """A bar for each stage of the plan and of the stock engine, and a table of the plan's."""
    memory = golden_plan("pipeline-stages")["memory"]
    page = read(page_of("pipeline-stages"))
    (section,) = (one for one in page.all("section") if one.attributes["id"] == "memory")
    drawn = [one.attributes["aria-label"] or "" for one in section.all("div") if one.attributes.get("role") == "img"]
    tables = {table.all("caption")[0].text: table for table in section.all("table")}

    for bar in ("This plan stage 0", "This plan stage 1", "Stock engine stage 0", "Stock engine stage 1"):
        assert drawn
        assert all(bar in words for words in drawn)
    assert [(row[0], row[1], row[5]) for row in cells(tables["Memory of the pipeline stages, GiB"])] == [
        ("0", "0 to 24", f"{memory['stages'][0]['totals']['kv_cache_tokens']:,}"),
        ("1", "25 to 47", f"{memory['stages'][1]['totals']['kv_cache_tokens']:,}"),
    ]


def test_tiers_are_the_specs() -> None:
    """K = 7 up to 16 requests, 3 up to 256, 1 up to 512, as the spec of the case says."""
    plan = golden_plan("tiers-h200")
    [group] = [group for group in groups_of(plan) if group.is_target_decode]

    assert [
        (tier.first, tier.last, tier.num_speculative_tokens, tier.most_tokens) for tier in tiers_of(group.spans(plan))
    ] == [
        (1, 16, 7, 128),
        (17, 256, 3, 1024),
        (257, 512, 1, 1024),
    ]


def test_the_same_plan_makes_the_same_page() -> None:
    assert plan_page(golden_plan("cpu")) == plan_page(golden_plan("cpu"))


# Values that would break out


def without_code(node: Node) -> list[str]:
    return [tag for tag in node.tags() if tag != "code"]


@settings(max_examples=30)
@given(hostile_text)
def test_no_value_breaks_out(value: str) -> None:
    """The elements are those of a harmless value, and the texts are the value's characters."""
    plan = hostile_plan(value)
    page = read(plan_page(plan))

    assert without_code(page) == harmless_tags()
    assert json.loads(page.by_id("plan-json").text) == plan
    assert page.all("title")[0].text == f"servespec plan: {printable(value)}"
    assert page.by_id("launch").all("pre")[0].text == " \\\n  ".join(map(printable, launch_lines(plan["launch"])))
    assert [one.text for one in page.by_id("findings").all("p")[2:]] == [
        printable(value),
        f"Help: {printable(value)}",
        f"{printable(value)}: {printable(value)}",
    ]
    assert ["serve.chat_template", printable(value), "spec", printable(value)] in cells(
        page.by_id("resolved").all("table")[0]
    )


# The command


def test_the_command_writes_the_page(tmp_path) -> None:
    """Beside the stock engine without being asked, and of the plan that `--format json` prints."""
    spec, page = str(REPOSITORY / "examples/qwen3-30b-a3b-h200.yaml"), tmp_path / "plan.html"

    done = CliRunner().invoke(app, ["plan", spec, "--format", "html", "-o", str(page)])
    printed = CliRunner().invoke(app, ["plan", spec, "--format", "json", "--against", "stock"])

    assert (done.exit_code, done.stdout) == (0, "")
    assert json.loads(read(page.read_text(encoding="utf-8")).by_id("plan-json").text) == json.loads(printed.stdout)


def test_without_charts_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)

    done = CliRunner().invoke(app, ["plan", str(REPOSITORY / "examples/smollm2-cpu.yaml"), "--format", "html"])

    assert done.exit_code == 2
    assert "pip install 'servespec[page]'" in " ".join(done.stderr.split())


def test_a_large_plan_stays_readable() -> None:
    """1,024 requests, four tiers, thirteen rows of graphs, 176 ranges of decode batches."""
    tiers = [{"up_to": 16, "num_speculative_tokens": 7}, {"up_to": 128, "num_speculative_tokens": 4}]
    tiers += [{"up_to": 512, "num_speculative_tokens": 2}, {"num_speculative_tokens": 1}]
    drafts = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7, "dynamic": tiers}
    caps = {"max_prefill_cudagraph_capture_tokens": 16384, "max_decode_cudagraph_capture_requests": 1024}
    plan = planned(
        spec_of(
            "qwen3-8b",
            "h200",
            scheduler={"max_num_seqs": 1024, "max_num_batched_tokens": 16384},
            speculative=drafts,
            compilation=caps,
            engine={"version": "0.33.0", "lowering": "extension"},
        )
    )
    page = plan_page(plan)

    assert (len(plan["runners"]), len(plan["coverage"]["decode"])) == (13, 176)
    assert len(page.encode()) < MOST_BYTES
    assert len(read(page).all("figure")) == 2 * 4 + 1 + 2 + 1
    assert "Left out" not in plan_markdown(plan)

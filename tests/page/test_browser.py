"""The page in a real browser: layout, console, keyboard, screen readers' rules, dark and paper.

Skipped where no Chromium is installed; Debian's is `chromium`.
"""

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from servespec.render.page.document import plan_page
from servespec.render.page.drawing import is_installed
from tests.page.pages import golden_plan, hostile_plan

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed here", allow_module_level=True)
if not is_installed():
    pytest.skip("the page's charts need `pip install 'servespec[page]'`", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is a development tool")

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
WIDTHS_PIXELS = (390, 768, 1280)
NAMES = ("tiers-h200", "dspark-deepseek-v4-gb200", "cpu", "tiers-by-curve", "where-graphs-pay", "pipeline-stages")
"""Six rows of graphs with tiers; 1,024 requests on four GPUs whose memory is not known; no graphs and no ledger; tables
of what a curve predicts and of where graphs pay; a bar for each of two pipeline stages beside stock's."""
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">|`*_"


@cache
def text_of(name: str) -> str:
    return plan_page(hostile_plan(HOSTILE) if name == "hostile" else golden_plan(name))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page with everything the browser complained of or asked for."""

    def __init__(self, chromium: Any, file: Path, **context: Any) -> None:
        self.context = chromium.new_context(**context)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    all_opened: list[Opened] = []

    def opening(name: str, width: int = 1280, **context: Any) -> Opened:
        file = tmp_path / "plan.html"
        file.write_text(text_of(name), encoding="utf-8")
        all_opened.append(Opened(chromium, file, viewport={"width": width, "height": 900}, **context))
        return all_opened[-1]

    yield opening
    for one in all_opened:
        one.context.close()


def shown(page: Any, selector: str) -> set[bool]:
    return {one.is_visible() for one in page.locator(selector).all()}


@pytest.mark.parametrize("width", WIDTHS_PIXELS)
@pytest.mark.parametrize("name", NAMES)
def test_the_layout_holds(name: str, width: int, opened: Any) -> None:
    """The page never scrolls sideways, each chart is shown once at its width, and the browser has no complaint."""
    one = opened(name, width)
    wide, narrow = shown(one.page, ".wide"), shown(one.page, ".narrow")

    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    assert (wide, narrow) == (({False}, {True}) if width < 640 else ({True}, {False}))
    assert (one.complaints, len(one.requests)) == ([], 1)


@pytest.mark.parametrize("width", WIDTHS_PIXELS)
def test_charts_and_tables_stay_in_the_page(width: int, opened: Any) -> None:
    """Also the letters of the axes, which the browser measures in its own font."""
    one = opened("tiers-h200", width)
    boxes = one.page.evaluate(
        "[...document.querySelectorAll('figure svg text, h1, h2, p, pre, li')].filter(e => e.checkVisibility())"
        ".map(e => e.getBoundingClientRect()).map(r => [r.left, r.right])"
    )

    assert len(boxes) > 100
    assert [box for box in boxes if box[0] < 0 or box[1] > width] == []


@pytest.mark.parametrize("width", WIDTHS_PIXELS)
@pytest.mark.parametrize("name", ["tiers-h200", "adaptive-verification-gb200", "load-aware-by-curve"])
def test_no_letter_is_cut_off_at_the_side_of_its_chart(name: str, width: int, opened: Any) -> None:
    one = opened(name, width)
    cut = one.page.evaluate(
        "[...document.querySelectorAll('figure svg text')].filter(e => e.checkVisibility())"
        ".map(e => [e.textContent, e.getBoundingClientRect(), e.ownerSVGElement.getBoundingClientRect()])"
        ".filter(([_, own, chart]) => own.left < chart.left - 1 || own.right > chart.right + 1).map(([text]) => text)"
    )

    assert cut == []


@pytest.mark.parametrize("name", NAMES)
def test_the_data_is_the_plan(name: str, opened: Any) -> None:
    read = opened(name).page.evaluate("JSON.parse(document.getElementById('plan-json').textContent)")

    assert read == golden_plan(name)


def test_the_charts_are_the_coverage(opened: Any) -> None:
    """Where the eager band of the target's decode starts, in the browser's own pixels: at 256 of 512 requests."""
    page = opened("tiers-h200").page
    box = page.evaluate(
        """() => {
          const svg = [...document.querySelectorAll('#coverage .wide svg')][1];
          const band = svg.querySelector("[fill='url(#eager)']").getBoundingClientRect();
          const ticks = [...svg.querySelectorAll('text')].filter(t => ['100', '500'].includes(t.textContent))
            .map(t => t.getBoundingClientRect()).map(r => (r.left + r.right) / 2);
          return [band.left, band.right, ticks[0], ticks[1]];
        }"""
    )
    left, right, at_100, at_500 = box
    requests_per_pixel = 400 / (at_500 - at_100)

    assert 100 + (left - at_100) * requests_per_pixel == pytest.approx(256, abs=4)
    assert 100 + (right - at_100) * requests_per_pixel == pytest.approx(512, abs=4)


@pytest.mark.parametrize(
    ("name", "scheme"), [("tiers-h200", "light"), ("tiers-h200", "dark"), ("cpu", "dark"), ("hostile", "light")]
)
def test_no_rule_of_accessibility_is_broken(name: str, scheme: str, opened: Any) -> None:
    """axe-core's rules, contrast among them, with every list opened."""
    from axe_playwright_python.sync_playwright import Axe

    page = opened(name, color_scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    found = Axe().run(page).response

    assert [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found["violations"]] == []
    assert "color-contrast" in {rule["id"] for rule in found["passes"]}


def test_dark_and_light_differ(opened: Any) -> None:
    paper = [
        opened("cpu", color_scheme=scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]

    assert paper == ["rgb(255, 255, 255)", "rgb(15, 19, 24)"]


def test_the_keyboard_reaches_everything(opened: Any) -> None:
    """First the way past the contents, then the contents, then every list and every table that may scroll."""
    page = opened("tiers-h200").page
    reached = []
    for _ in range(200):
        page.keyboard.press("Tab")
        at = page.evaluate(
            "(e => e === document.body ? '' : e.tagName + ' ' + (e.getAttribute('aria-label') || e.textContent))"
            "(document.activeElement)"
        )
        if not at:
            break
        reached.append(at)

    assert reached[:3] == ["A Skip to the plan", "A How every step runs", "A Coverage"]
    assert {"SUMMARY All sizes", "SUMMARY All values", "PRE Launch line"} <= set(reached)
    assert len(reached) == page.locator("a, summary, [tabindex='0']").evaluate_all(
        "all => all.filter(one => one.checkVisibility()).length"
    )


def test_a_key_opens_a_list(opened: Any) -> None:
    page = opened("tiers-h200").page
    page.locator("summary", has_text="All sizes").focus()
    page.keyboard.press("Enter")

    assert page.get_by_role("table", name="All captured sizes").is_visible()


def test_screen_readers_get_regions_headings_and_charts(opened: Any) -> None:
    page = opened("tiers-h200").page

    assert [page.get_by_role(role).count() for role in ("banner", "main", "contentinfo", "navigation")] == [1, 1, 1, 1]
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("img", name="This plan: 1 to 256 requests FULL, 257 to 512 requests EAGER").count() > 0
    assert page.get_by_role("img").count() == page.locator("figure").count()


def test_it_reads_without_script(opened: Any) -> None:
    page = opened("tiers-h200", java_script_enabled=False).page

    assert "257-512 requests" in page.locator("#steps").inner_text()
    assert page.locator(".wide svg").first.is_visible()


def test_nothing_moves_where_that_is_asked(opened: Any) -> None:
    page = opened("cpu", reduced_motion="reduce").page

    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_paper_shows_the_plan_alone(opened: Any) -> None:
    """On white even from a dark screen, without what can only be clicked, and the whole launch line."""
    page = opened("tiers-h200", color_scheme="dark").page
    page.emulate_media(media="print")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert shown(page, "nav") | shown(page, "details") == {False}
    assert page.evaluate("(e => e.scrollHeight <= e.clientHeight + 1)(document.querySelector('.launch'))")
    assert page.pdf(format="A4", print_background=True).startswith(b"%PDF")


def test_values_stay_characters(opened: Any) -> None:
    one = opened("hostile")

    assert one.page.title() == f"servespec plan: {HOSTILE}"
    assert HOSTILE in one.page.locator("#launch pre").text_content().replace("'\"'\"'", "'")
    assert one.page.locator("img, script:not([type='application/json'])").count() == 0
    assert (one.complaints, len(one.requests)) == ([], 1)
    assert json.loads(one.page.locator("#plan-json").text_content())["device"]["name"] == HOSTILE

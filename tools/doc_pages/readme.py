"""What the README shows from elsewhere, between markers: a plan, and figures of measurements."""

import json
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import Any

from measured_launches import OWN_FILES
from memory_table import graph_memory, rows

from doc_pages.compiling import plan_of_file
from doc_pages.markdown import sentences, table
from doc_pages.tiers_bench import pairs_of
from doc_pages.twins import arm_source, section_of
from servespec.render.bench_figures import mean_ratio
from servespec.render.plan_text import plan_text
from servespec.runtime.bench.ratios import geometric_mean

EXAMPLE = "examples/qwen3-30b-a3b-h200.yaml"
MEASURED = {
    "K = 7": "docs/measurements/2026-11-30-h200-bench-30b-a3b-fp8-k7.json",
    "K = 3": "docs/measurements/2026-12-01-h200-bench-30b-a3b-fp8-k3.json",
    "K = 3, long": "docs/measurements/2026-12-01-h200-bench-30b-a3b-fp8-k3-1k-2.json",
}
WITHOUT_SPECULATION = "2026-12-01-h200-bench-tiers-8b-fp8-3.json"


def readme(root: Path) -> str:
    """The README with its plan and its figures made anew; the rest of it is written by hand."""
    text = (root / "README.md").read_text(encoding="utf-8")
    shown = {"plan": _shown_plan(root), "measured": _shown_figures(root), "graph memory": _shown_graph_memory()}
    for name, block in shown.items():
        text = _between(text, name, block)
    return text


def _between(text: str, name: str, shown: str) -> str:
    begin, end = f"<!-- {name} (written by tools/gen_docs.py) -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    assert found, f"README.md has lost `{begin}`"
    assert ended, f"README.md has lost `{end}`"
    return f"{before}{begin}\n\n{shown}\n\n{end}{after}"


def _shown_plan(root: Path) -> str:
    document = plan_of_file(root / EXAMPLE).to_json()
    return f"```console\n$ servespec plan {EXAMPLE} --against stock\n{plan_text(document)}```"


def _shown_figures(root: Path) -> str:
    """A column of each arm of each bench, and a row of each load that one of them had."""
    columns = {
        f"{drafts}: {arm} / stock": ratios
        for drafts, file in MEASURED.items()
        for arm, ratios in _over_stock(json.loads((root / file).read_text(encoding="utf-8"))).items()
    }
    loads = sorted({load for ratios in columns.values() for load in ratios})
    rows = [(str(load), *(ratios.get(load, "") for ratios in columns.values())) for load in loads]
    return "\n\n".join((table(("requests at a time", *columns), rows), _without_speculation(root)))


def _without_speculation(root: Path) -> str:
    """Of a bench whose arms without drafts are lowered in two ways."""
    found = json.loads((root / "docs/measurements" / WITHOUT_SPECULATION).read_text(encoding="utf-8"))
    plain = {one["lowering"]: arm for arm, one in found["arms"].items() if _never_drafts(one)}
    shown = [
        f"{geometric_mean(pairs_of(found, plain['extension'], plain['none'], load)):.2f}"
        for load in found["design"]["concurrencies"]
    ]
    loads = ", ".join(map(str, found["design"]["concurrencies"]))
    return sentences(
        f"Without speculation a dense 8B model in FP8 served {', '.join(shown)} times the stock engine's tokens at "
        f"{loads} requests ([arms](docs/reference/measured.md#{Path(WITHOUT_SPECULATION).stem})): stock has no graph "
        "for prefill steps above 512 tokens."
    )


def _never_drafts(arm: dict[str, Any]) -> bool:
    return section_of(arm_source(arm["texts"])) is None


def _over_stock(found: dict[str, Any]) -> dict[str, dict[int, str]]:
    """Output tokens per second of each arm over the stock engine's, by load."""
    ratios: dict[str, dict[int, str]] = {}
    for one in found["ratios"]:
        if one["metric"] == "output_tokens_per_second" and one["over"] == "stock":
            ratios.setdefault(one["arm"], {})[one["concurrency"]] = _figure(one)
    return ratios


def _shown_graph_memory() -> str:
    """Of servespec's own launches, whose workers reported what every capture took."""
    own = [one for one in graph_memory(rows()) if fnmatch(one.captured.file, OWN_FILES)]
    errors = [one.captured.error for one in own if one.captured.error is not None]
    estimates = [one.estimate_error for one in own]
    return sentences(
        f"The memory of the graphs of {len(own)} launches on H200 was foretold with a median error of "
        f"{_median(errors)}, {_range(errors)} at the ends; the engine's own estimate, made while it started, had "
        f"{_median(estimates)}, {_range(estimates)} "
        "([row by row](docs/reference/memory.md#our-own-launches))."
    )


def _median(errors: list[float]) -> str:
    return f"{median(map(abs, errors)):.0%}".replace("%", " %")


def _range(errors: list[float]) -> str:
    return f"{min(errors):+.0%} to {max(errors):+.0%}".replace("%", " %")


def _figure(one: dict[str, Any]) -> str:
    return f"{mean_ratio(one):.2f} ({one['low_95']:.2f} to {one['high_95']:.2f})"

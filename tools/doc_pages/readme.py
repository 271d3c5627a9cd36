"""What the README shows from elsewhere, between markers: a plan, and figures of one measurement."""

import json
from pathlib import Path
from typing import Any

from doc_pages.compiling import plan_of_file
from doc_pages.markdown import table
from servespec.render.plan_text import plan_text

EXAMPLE = "examples/qwen3-30b-a3b-h200.yaml"
MEASURED = "docs/measurements/2026-11-30-h200-bench-30b-a3b-fp8-k7.json"


def readme(root: Path) -> str:
    """The README with its plan and its figures made anew; the rest of it is written by hand."""
    text = (root / "README.md").read_text(encoding="utf-8")
    return _between(_between(text, "plan", _shown_plan(root)), "measured", _shown_figures(root))


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
    found: dict[str, Any] = json.loads((root / MEASURED).read_text(encoding="utf-8"))
    ratios = {
        (one["arm"], one["concurrency"]): one
        for one in found["ratios"]
        if one["metric"] == "output_tokens_per_second" and one["over"] == "stock"
    }
    arms = [arm for arm in found["arms"] if arm != "stock"]
    rows = [("requests at a time", *(f"{arm} / stock" for arm in arms))]
    rows += [(str(load), *(_figure(ratios[arm, load]) for arm in arms)) for load in found["design"]["concurrencies"]]
    return table(rows[0], rows[1:])


def _figure(one: dict[str, Any]) -> str:
    return f"{one['median']:.2f} ({one['low_95']:.2f} to {one['high_95']:.2f})"

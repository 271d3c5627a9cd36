"""Write the generated pages of the documentation, or check that they are up to date.

    python tools/gen_docs.py [--check]

``--check`` writes nothing, names the stale pages and exits 1.  No network, no engine and no machine is looked at.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from doc_pages.commands_page import commands_page
from doc_pages.curves_page import curves_page
from doc_pages.devices_page import devices_page
from doc_pages.diagnostics_page import diagnostics_page
from doc_pages.facts_page import facts_page
from doc_pages.measured_page import measured_page
from doc_pages.memory_page import memory_page
from doc_pages.presets_page import PRESET_FILES, presets_page
from doc_pages.readme import readme
from doc_pages.runners_page import runners_page
from doc_pages.spec_page import spec_page

from servespec.compiler.comparison_schema import COMPARISON_SCHEMA
from servespec.compiler.plan import PLAN_SCHEMA
from servespec.compiler.record_schema import RECORD_SCHEMA
from servespec.compiler.spec_schema import spec_schema
from servespec.runtime.bench.results import BENCH_SCHEMA
from servespec.runtime.step_times_document import STEP_TIMES_SCHEMA
from servespec.runtime.verification_document import VERIFICATION_SCHEMA

ROOT = Path(__file__).resolve().parents[1]

PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/spec.md": spec_page,
    "docs/reference/diagnostics.md": diagnostics_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/devices.md": devices_page,
    "docs/reference/engine-facts.md": facts_page,
    "docs/reference/runners.md": runners_page,
    "docs/reference/measured.md": lambda: measured_page(ROOT),
    "docs/reference/memory.md": memory_page,
    "docs/reference/curves.md": lambda: curves_page(ROOT),
    "docs/schema/spec-1.json": lambda: _json(spec_schema()),
    "docs/schema/plan-1.json": lambda: _json(PLAN_SCHEMA),
    "docs/schema/record-1.json": lambda: _json(RECORD_SCHEMA),
    "docs/schema/verification-1.json": lambda: _json(VERIFICATION_SCHEMA),
    "docs/schema/bench-1.json": lambda: _json(BENCH_SCHEMA),
    "docs/schema/steps-1.json": lambda: _json(STEP_TIMES_SCHEMA),
    "docs/schema/comparison-1.json": lambda: _json(COMPARISON_SCHEMA),
    "README.md": lambda: readme(ROOT),
    "docs/reference/presets.md": presets_page,
    **PRESET_FILES,
}


def main(arguments: Iterable[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the generated pages of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is stale")
    check = parser.parse_args(list(arguments)).check
    stale = stale_pages()
    if check:
        return _report(stale)
    for name, text in stale.items():
        _write(ROOT / name, text)
        print(f"wrote {name}")
    return 0


def stale_pages() -> dict[str, str]:
    """The pages that differ from what they are made from, as they should be."""
    made = {name: make() for name, make in PAGES.items()}
    return {name: text for name, text in made.items() if _present(ROOT / name) != text}


def _present(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _report(stale: Mapping[str, str]) -> int:
    for name in stale:
        print(f"stale: {name}")
    if stale:
        print("run: python tools/gen_docs.py")
    return 1 if stale else 0


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

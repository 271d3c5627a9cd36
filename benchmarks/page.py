"""How large the page and the comment of a plan are, and how long the page takes to make.

usage: python benchmarks/page.py --out FILE [--runs N] [SPEC ...]

Each page is made in one process, beside the stock engine; the first of a process also starts the drawing engine and
stands apart.  Bytes are those of the file, and of the file as gzip sends it.
"""

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servespec import __version__
from servespec.compiler.pipeline import compile_spec
from servespec.render.page.document import plan_page
from servespec.render.plan_markdown import plan_markdown
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.machine_paths import shown_command
from servespec.runtime.spec_file import read_spec

SPECS = tuple(sorted(map(str, Path("examples").glob("*.yaml"))))


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def figures_of(spec: str, runs: int) -> dict[str, Any]:
    document = compile_spec(compile_request(read_spec(spec, ()), Options(with_stock=True))).to_json()
    page = plan_page(document)
    return {
        "graphs": sum(row["graphs"] for row in document["runners"]),
        "page_bytes": len(page.encode()),
        "page_gzip_bytes": len(gzip.compress(page.encode(), mtime=0)),
        "plan_json_bytes": len(json.dumps(document, separators=(",", ":")).encode()),
        "comment_characters": len(plan_markdown(document)),
        "page_seconds": round(statistics.median(seconds(lambda: plan_page(document)) for _ in range(runs)), 3),
    }


def main() -> None:
    arguments = _arguments()
    first = compile_spec(compile_request(read_spec(arguments.specs[0], ()), Options(with_stock=True))).to_json()
    first_page_seconds = round(seconds(lambda: plan_page(first)), 3)
    figures = {spec: figures_of(spec, arguments.runs) for spec in arguments.specs}
    document = {
        "what": "size of the page and of the comment of a plan, and seconds to make the page, medians",
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "servespec": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "command": shown_command(["python", *sys.argv]),
        "first_page_seconds": first_page_seconds,
        "figures": figures,
    }
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("specs", nargs="*", default=SPECS, metavar="SPEC")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()

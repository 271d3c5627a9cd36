"""Serves specs on this machine and writes what was planned beside what the engine captured.

usage: python benchmarks/launches.py --out FILE [--parallel N] [--timeout SECONDS] SPEC...

Every launch goes through `servespec serve`, which asks one question once it is ready and stops.  The file names
device, driver, versions, date and command; a launch that failed is kept with its exit code and last words.  What
the engine says of memory is kept only where launches do not share the GPU.  Under the extension each worker leaves a
report of its graphs, which `serve` holds against the plan graph by graph; it is counted here, beside the bars.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servespec.compiler.pipeline import compile_spec
from servespec.runtime.capture_log import Bar, captured_counts, planned_counts
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.machine import gpu_lines, versions
from servespec.runtime.machine_paths import shown_command, without_machine_paths
from servespec.runtime.probe import driver_version
from servespec.runtime.record import RECORD_NAME, read_record
from servespec.runtime.spec_file import read_spec

_SAID = re.compile(
    r"(GPU KV cache size: .*|Available KV cache memory: .*|Graph capturing finished .*|CUDA graph pool memory: .*"
    r"|Free memory on device .*|Saved startup plan .*|Applying persisted startup plan .*"
    r"|Model loading took .*|Using V2 Model Runner.*|Using \w+ attention backend.*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch; ``planned`` and ``captured`` count graphs by manager and mode, ``measured`` is of its record."""

    spec: str
    text: str
    exit_code: int
    seconds: float
    lowering: str
    planned: Mapping[str, int]
    captured: Mapping[str, int]
    equal: bool
    reports: tuple[Mapping[str, Any], ...]
    measured: Mapping[str, Any]
    engine_said: tuple[str, ...]
    last_words: str


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.parallel) as pool:
        jobs = [pool.submit(launch, spec, Path(folder), arguments.timeout) for spec in arguments.specs]
        launches = [job.result() for job in jobs]
    if arguments.parallel > 1:
        launches = [without_memory(one) for one in launches]
    arguments.out.write_text(json.dumps(_document(launches), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for one in launches:
        verdict = "as planned" if one.equal else "DIFFERS"
        print(f"{one.spec}: exit {one.exit_code}, {sum(one.captured.values())} graphs, {verdict}, {one.seconds:.0f} s")
        print(json.dumps(one.measured))
    return 0 if all(one.equal and one.exit_code == 0 for one in launches) else 1


def without_memory(one: Launch) -> Launch:
    """A launch that shared the GPU: free memory moved with the others'."""
    reports = tuple({key: value for key, value in report.items() if key != "graph_bytes"} for report in one.reports)
    return replace(one, engine_said=(), reports=reports)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    return parser.parse_args()


def launch(spec: str, folder: Path, timeout_seconds: float) -> Launch:
    """Serves one spec, asks, stops, and reads what lies beside its log."""
    record = folder / Path(spec).stem
    words = [sys.executable, "-m", "servespec", "serve", spec, "--record", str(record), "--ask", "Hello"]
    began = time.monotonic()
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_seconds, check=False)
        exit_code, said = done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        exit_code, said = 124, str(error.stderr or "")
    plan, log = _read(record / "plan.json"), _read(record / "engine.log")
    document = json.loads(plan) if plan else {}
    planned = _named(planned_counts_of(spec)) if document else {}
    captured = _named(captured_counts(log))
    reports = tuple(counted(json.loads(_read(path))) for path in sorted(record.glob("captured-*.json")))
    has_all = sum(planned.values()) == sum(captured.values()) if reports else planned == captured
    return Launch(
        spec=Path(spec).name,
        text=Path(spec).read_text(encoding="utf-8"),
        exit_code=exit_code,
        seconds=round(time.monotonic() - began, 1),
        lowering=document.get("engine", {}).get("lowering", ""),
        planned=planned,
        captured=captured,
        equal=bool(document) and has_all and exit_code == 0,
        reports=reports,
        measured=measured(record / RECORD_NAME),
        engine_said=tuple(dict.fromkeys(_SAID.findall(log))),
        last_words="" if exit_code == 0 else without_machine_paths(said[-1500:], record),
    )


def measured(path: Path) -> dict[str, Any]:
    """What the record of a launch says besides memory; nothing where it was not started."""
    said = read_record(path)["measured"] if path.is_file() else {}
    return {
        key: said[key] for key in ("verdict", "evidence", "graphs_at_exit", "statistics", "dispatch") if key in said
    }


def counted(report: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's report with counts in place of its graphs."""
    managers = [{**one, "full": len(one["full"])} for one in report["managers"]]
    pieces = [{**one, "sizes": len(one["sizes"])} for one in report["compiled_pieces"]]
    return {**report, "managers": managers, "compiled_pieces": pieces}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def planned_counts_of(spec: str) -> Mapping[Bar, int]:
    """What `serve` planned, made again here from the same spec."""
    return planned_counts(compile_spec(compile_request(read_spec(spec), Options())))


def _named(counts: Mapping[Bar, int]) -> dict[str, int]:
    """The engine's names of its managers in the plan's words."""
    known = {"": "target", "prefill": "prefill", "decode": "decode"}
    return dict(sorted((f"{known.get(title, 'block')} {mode}", count) for (title, mode), count in counts.items()))


def _document(launches: list[Launch]) -> dict[str, Any]:
    return {
        "what": "graphs planned by servespec and captured by the engine, by manager and mode",
        "device": gpu_lines(),
        "driver": driver_version(),
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": shown_command(["python", *sys.argv]),
        "launches": [asdict(one) for one in launches],
    }


if __name__ == "__main__":
    raise SystemExit(main())

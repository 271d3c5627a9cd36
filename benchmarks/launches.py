"""Serves specs on this machine and writes what was planned beside what the engine captured and what it took.

usage: python benchmarks/launches.py --out FILE [--gpus 0,1] [--timeout SECONDS] SPEC...

Every launch goes through `servespec serve`, which asks one question once it is ready and stops.  Launches with a GPU
each run beside one another, one at a time on each; a spec for several GPUs takes `--gpus` as one word: `0+1`.  The
file names device, driver, versions, date and command, and is written again after each launch; a launch that failed is
kept with its exit code and last words.  Under the extension each worker leaves a report of its graphs, which `serve`
holds against the plan graph by graph; it is counted here, beside the bars.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from servespec.compiler.pipeline import compile_spec
from servespec.runtime.capture_log import Bar, captured_counts, planned_counts
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.machine import made_on
from servespec.runtime.machine_paths import without_machine_paths
from servespec.runtime.record import RECORD_NAME, read_record
from servespec.runtime.spec_file import read_spec
from servespec.schema.parse import parse_spec
from servespec.schema.source import read_source

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
    predicted_memory: Mapping[str, Any]
    row_costs: tuple[Mapping[str, Any], ...]
    engine_said: tuple[str, ...]
    last_words: str


def main() -> int:
    arguments = _arguments()
    gpus: SimpleQueue[str] = SimpleQueue()
    for one in arguments.gpus.split(","):
        gpus.put(one.replace("+", ","))
    launches: list[Launch] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(gpus.qsize()) as pool:
        jobs = [
            pool.submit(launch, spec, Path(folder) / str(number), gpus, arguments.timeout)
            for number, spec in enumerate(arguments.specs)
        ]
        for job in as_completed(jobs):
            launches.append(job.result())
            text = json.dumps(_document(launches), indent=1, ensure_ascii=False) + "\n"
            arguments.out.write_text(text, encoding="utf-8")
            print(_line(launches[-1]), flush=True)
    return 0 if all(one.equal and one.exit_code == 0 for one in launches) else 1


def _line(one: Launch) -> str:
    verdict = "as planned" if one.equal else "DIFFERS"
    return f"{one.spec}: exit {one.exit_code}, {sum(one.captured.values())} graphs, {verdict}, {one.seconds:.0f} s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    return parser.parse_args()


def launch(spec: str, record: Path, gpus: SimpleQueue[str], timeout_seconds: float) -> Launch:
    """Serves one spec on the next GPU that is free, asks, stops, and reads what lies beside its log."""
    words = [sys.executable, "-m", "servespec", "serve", spec, "--record", str(record), "--ask", "Hello"]
    gpu = gpus.get()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    began = time.monotonic()
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=timeout_seconds, check=False, env=environment
        )
        exit_code, said = done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        exit_code, said = 124, (error.stderr or b"").decode("utf-8", "replace")
    gpus.put(gpu)
    plan, log = _read(record / "plan.json"), _read(record / "engine.log")
    document = json.loads(plan) if plan else {}
    planned = named(planned_counts_of(spec)) if document else {}
    captured = named(captured_counts(log))
    reports = tuple(counted(json.loads(_read(path))) for path in sorted(record.glob("captured-*.json")))
    return Launch(
        spec=Path(spec).name,
        text=Path(spec).read_text(encoding="utf-8"),
        exit_code=exit_code,
        seconds=round(time.monotonic() - began, 1),
        lowering=document.get("engine", {}).get("lowering", ""),
        planned=planned,
        captured=captured,
        equal=bool(document) and has_all(planned, captured, reports) and exit_code == 0,
        reports=reports,
        measured=measured(record / RECORD_NAME),
        predicted_memory=document.get("memory") or {},
        row_costs=row_costs(record / RECORD_NAME),
        engine_said=tuple(dict.fromkeys(_SAID.findall(log))),
        last_words="" if exit_code == 0 else without_machine_paths(said[-1500:], record),
    )


_KEPT = ("verdict", "evidence", "graphs_at_exit", "statistics", "dispatch", "ranks", "engine_said")


def measured(path: Path) -> dict[str, Any]:
    """What the record of a launch says; nothing where it was not started."""
    said = read_record(path)["measured"] if path.is_file() else {}
    return {key: said[key] for key in _KEPT if key in said}


def row_costs(path: Path) -> tuple[dict[str, Any], ...]:
    """What the captures of each runner's row took on each rank."""
    rows = read_record(path)["runners"] if path.is_file() else []
    names = ("runner", "routine", "mode", "query_len", "graphs", "max_tokens")
    return tuple({**{name: row[name] for name in names}, "costs": row["captured"]["costs"]} for row in rows)


def counted(report: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's report with counts in place of its graphs, and of their costs the widest graph's and the others'."""
    managers = [{**one, "full": len(one["full"])} for one in report["managers"]]
    pieces = [{**one, "sizes": len(one["sizes"])} for one in report["compiled_pieces"]]
    captures = [
        {
            **{key: value for key, value in one.items() if key != "graphs"},
            "graphs": len(one["graphs"]),
            "first": one["graphs"][0],
            "others": {key: sum(graph[key] for graph in one["graphs"][1:]) for key in ("pool_bytes", "device_bytes")},
        }
        for one in report["captures"]
    ]
    return {**report, "managers": managers, "compiled_pieces": pieces, "captures": captures}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def has_all(planned: Mapping[str, int], captured: Mapping[str, int], reports: Sequence[Any]) -> bool:
    """Whether the bars count what was planned; the sum is enough beside workers' reports, which tell graphs apart."""
    return sum(planned.values()) == sum(captured.values()) if reports else planned == captured


def planned_counts_of(spec: str) -> Mapping[Bar, int]:
    """What `serve` planned, made again here from the same spec."""
    return planned_counts(compile_spec(compile_request(read_spec(spec), Options())))


def named(counts: Mapping[Bar, int]) -> dict[str, int]:
    """The engine's names of its managers in the plan's words."""
    known = {"": "target", "prefill": "prefill", "decode": "decode"}
    return dict(sorted((f"{known.get(title, 'block')} {mode}", count) for (title, mode), count in counts.items()))


def models_of(text: str, folder: Path) -> Iterator[tuple[str, Any]]:
    """The configs of a spec's models that are folders, by the name that the spec gives them."""
    spec = parse_spec(read_source(text, "spec.yaml")).spec
    assert spec is not None
    for name in (spec.model.id, spec.speculative.model if spec.speculative else None):
        path = folder / name / "config.json" if name else None
        if path is not None and path.is_file():
            yield str(name), json.loads(path.read_text(encoding="utf-8"))


def _document(launches: list[Launch]) -> dict[str, Any]:
    return {
        "what": "graphs planned by servespec and captured by the engine, by manager and mode",
        **made_on(["python", *sys.argv]),
        "models": dict(model for one in launches for model in models_of(one.text, Path.cwd())),
        "launches": [asdict(one) for one in launches],
    }


if __name__ == "__main__":
    raise SystemExit(main())

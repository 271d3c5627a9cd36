"""Serves a spec with the allocator's history on and writes what its profile run and first captures took and gave back.

usage: python benchmarks/memory_trace.py --out FILE [--timeout SECONDS] SPEC

For a machine with a GPU of its own.  The launch is that of `benchmarks/launches.py`; the history is kept by
`benchmarks/allocator_history/`, which each of its processes imports.  Of each run of the profile the file has the
highest that was taken at once, what that was and what was left; of each manager's widest PIECEWISE graph every tensor
in the order in which it was taken and given back in the pool of graphs.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HOOK = Path(__file__).with_name("allocator_history")
Json = dict[str, Any]
Event = Sequence[Any]
"""Action, bytes, address, stream, and the number of the place in the code."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("spec")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        launched, kept = Path(folder) / "launch.json", Path(folder) / "history"
        program = str(Path(__file__).with_name("launches.py"))
        command = [sys.executable, program, "--out", str(launched), "--timeout", str(asked.timeout), asked.spec]
        path = os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "SERVESPEC_ALLOCATOR_HISTORY": str(kept)}
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode:
            return done.returncode
        document = traced(json.loads(launched.read_bytes()), kept, ["python", *sys.argv])
    asked.out.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return 0


def traced(launch: Json, kept: Path, command: Sequence[str]) -> Json:
    """The document of one launch and the histories that it left in a folder."""
    one = launch["launches"][0]
    histories = {path.name.removesuffix(".json.gz"): _read(path) for path in sorted(kept.glob("*.json.gz"))}
    return {
        "what": "tensors that a worker's profile run and its first captures took and gave back, by the allocator",
        **{name: launch[name] for name in ("device", "driver", "versions", "date")},
        "command": " ".join(command),
        "spec": one["spec"],
        "text": one["text"],
        "profile": [_profile(history) for name, history in histories.items() if name.startswith("profile")],
        "captures": {name: _capture(history) for name, history in histories.items() if name.endswith("-PIECEWISE")},
    }


def _read(path: Path) -> Json:
    with gzip.open(path, "rt") as file:
        found: Json = json.load(file)
    return found


def _profile(history: Json) -> Json:
    alive: dict[int, Event] = {}
    taken_bytes, peak_bytes, at_peak = 0, 0, list[Event]()
    for event in history["events"]:
        action, size, address = event[:3]
        if action == "alloc":
            alive[address] = event
            taken_bytes += size
        elif action == "free_completed" and address in alive:
            taken_bytes -= alive.pop(address)[1]
        if taken_bytes > peak_bytes:
            peak_bytes, at_peak = taken_bytes, list(alive.values())
    places = history["frames"]
    return {
        "peak_bytes": peak_bytes,
        "at_peak": [{"bytes": one[1], "where": places[one[4]]} for one in at_peak if one[1] >= 1 << 20],
        "left": [{"bytes": one[1], "where": places[one[4]]} for one in alive.values() if one[1] >= 1 << 20],
        "of_timed_kernels": _of_timed_kernels(history),
    }


def _of_timed_kernels(history: Json) -> list[Json]:
    """What Inductor's own timer takes beside a kernel's tensors, by the function and by size."""
    places = history["frames"]
    found = Counter[int]()
    for action, size, _, _, place in history["events"]:
        if action == "alloc" and size >= 1 << 20 and any("benchmark_gpu" in frame for frame in places[place][:1]):
            found[size] += 1
    return [{"by": "benchmark_gpu", "bytes": size, "times": count} for size, count in found.most_common()]


def _capture(history: Json) -> Json:
    """Each tensor by a number of its own: with its bytes where it is taken, below zero where it is given back."""
    numbers, found = dict[int, int](), list[list[int]]()
    for action, size, address in _of_capture(history["events"]):
        if action == "alloc":
            numbers[address] = len(found) + 1
            found.append([numbers[address], size])
        elif address in numbers:
            found.append([-numbers.pop(address)])
    pools = Counter(tuple(one["pool"]) for one in history["segments"])
    graphs = next((pool for pool in pools if any(pool)), None)
    segments = [one["bytes"] for one in history["segments"] if graphs and tuple(one["pool"]) == graphs]
    return {"events": found, "segments_bytes": sorted(segments)}


def _of_capture(events: Sequence[Event]) -> Iterator[tuple[str, int, int]]:
    """From where the capture empties the cache, which gives back the segments of the eager run before it."""
    emptied = next((at for at, event in enumerate(events) if event[0] == "segment_free"), 0)
    return (
        (action, size, address)
        for action, size, address, *_ in events[emptied:]
        if action in ("alloc", "free_requested")
    )


if __name__ == "__main__":
    sys.exit(main())

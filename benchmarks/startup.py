"""How long the command line takes, as ratios to importing its libraries, and how fast plans are made in one process.

usage: python benchmarks/startup.py --out FILE [--runs N] [--spec SPEC] [--only NAME]

Each command is a cold process, run in turn with the base so that a machine whose speed drifts does not tilt the
ratio; ratios are taken pair by pair, of CPU seconds (user and system) and of wall seconds.  Where vLLM is installed,
the engine's own resolution of a configuration is timed the same way.
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from servespec import __version__
from servespec.runtime.machine_paths import shown_command

BASE = ("-c", "import pydantic, typer, ruamel.yaml")
BASE_IN_USE = ("-c", "import typer, ruamel.yaml; from pydantic import BaseModel")
_RESOLVE = """
import sys
from vllm.engine.arg_utils import EngineArgs
EngineArgs(model=sys.argv[1], enforce_eager=True, max_model_len=2048).create_engine_config()
"""
ENGINE = ("-c", _RESOLVE)


@dataclass(frozen=True, slots=True)
class Timing:
    """One process, in seconds."""

    cpu: float
    wall: float


def timed(words: tuple[str, ...]) -> Timing:
    """Runs one process of this Python and waits for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run((sys.executable, *words), capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, (words, done.stderr[-2000:])
    return Timing(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def against(base: tuple[str, ...], words: tuple[str, ...], runs: int) -> dict[str, float]:
    """Medians of a command and of its ratios to the base, run in turn after one warm-up of each."""
    timed(base)
    timed(words)
    pairs = [(timed(base), timed(words)) for _ in range(runs)]
    return {
        "cpu_seconds": _median([own.cpu for _, own in pairs]),
        "wall_seconds": _median([own.wall for _, own in pairs]),
        "base_cpu_seconds": _median([other.cpu for other, _ in pairs]),
        "cpu_ratio": _median([own.cpu / other.cpu for other, own in pairs]),
        "wall_ratio": _median([own.wall / other.wall for other, own in pairs]),
    }


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 4)


def plans_in_one_process(spec: str, count: int) -> dict[str, float]:
    """``count`` plans of one spec with ``max_num_seqs`` of 1 to ``count``, each read, resolved and rendered anew."""
    from servespec.compiler.pipeline import compile_spec
    from servespec.runtime.gather import Options, compile_request
    from servespec.runtime.spec_file import read_spec

    began = time.perf_counter()
    graphs = 0
    for seqs in range(1, count + 1):
        source = read_spec(spec, (f"scheduler.max_num_seqs={seqs}",))
        graphs += len(compile_spec(compile_request(source, Options())).to_json()["union_tokens"])
    return {"plans": count, "seconds": round(time.perf_counter() - began, 3), "token_counts": graphs}


def many_files(count: int) -> tuple[str, ...]:
    """``count`` specs and plans in turn, of the golden cases that are accepted as they are."""
    every = sorted(Path("tests/golden/cases").glob("*/plan.json"))
    plans = [one for one in every if "# options:" not in one.with_name("spec.yaml").read_text(encoding="utf-8")]
    pairs = [str(path) for plan in plans for path in (plan.with_name("spec.yaml"), plan)]
    assert pairs, "run from the repository's root"
    return tuple(islice(cycle(pairs), count))


def main() -> None:
    arguments = _arguments()
    spec, runs = arguments.spec, arguments.runs
    commands: dict[str, Callable[[], dict[str, float]]] = {
        "help": lambda: against(BASE, ("-m", "servespec", "--help"), runs),
        "validate": lambda: against(BASE, ("-m", "servespec", "validate", spec), runs),
        "plan": lambda: against(BASE, ("-m", "servespec", "plan", spec), runs),
        "validate, to pydantic in use": lambda: against(BASE_IN_USE, ("-m", "servespec", "validate", spec), runs),
        "plan, to pydantic in use": lambda: against(BASE_IN_USE, ("-m", "servespec", "plan", spec), runs),
        "validate, 200 files": lambda: against(BASE, ("-m", "servespec", "validate", *many_files(200)), runs),
        "1000 plans": lambda: plans_in_one_process(spec, 1000),
    }
    if importlib.util.find_spec("vllm") and arguments.model is not None:
        commands["the engine's own config"] = lambda: against(BASE, (*ENGINE, str(arguments.model)), 3)
    figures = {}
    for name, run in commands.items():
        if arguments.only not in (None, name):
            continue
        figures[name] = run()
        print(f"{name}: {figures[name]}")
    arguments.out.write_text(json.dumps(_document(figures), indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--spec", default="examples/qwen3-30b-a3b-h200.yaml")
    parser.add_argument("--only", metavar="NAME", help="one figure alone, such as 'validate, 200 files'")
    parser.add_argument("--model", type=Path, help="a model folder for the engine's own resolution")
    return parser.parse_args()


def _document(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        "what": "start-up of the command line beside importing its libraries; medians, ratios pair by pair",
        "base": " ".join(BASE),
        "pydantic in use": " ".join(BASE_IN_USE),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "servespec": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "command": shown_command(["python", *sys.argv]),
        "figures": figures,
    }


if __name__ == "__main__":
    main()

"""How long it takes a new user to a first answer: the README's two commands, a clone and `bin/demo`, from nothing.

usage: python benchmarks/first_server.py --out FILE

Both run in a folder of their own, with no environment, model or engine in it; what pip holds in its cache it may use.
The file has the seconds of each step as `bin/demo` names it, and the answer.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from servespec.runtime.machine import made_on

REPOSITORY = Path(__file__).resolve().parents[1]
_STEP = "== "
"""How `bin/demo` begins a line that names what comes next."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "servespec"
        began = time.monotonic()
        subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
        cloned_seconds = time.monotonic() - began
        steps, last_line, exit_code = demo(clone)
    document = {
        "what": "a first answer from nothing: a clone, then bin/demo",
        **made_on(["python", *sys.argv]),
        "cores": os.cpu_count(),
        "commands": ["git clone", "bin/demo"],
        "exit_code": exit_code,
        "seconds": round(cloned_seconds + sum(step["seconds"] for step in steps), 1),
        "steps": steps,
        "answer": last_line,
    }
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    return exit_code


def demo(clone: Path) -> tuple[list[dict[str, Any]], str, int]:
    """Each step with its seconds, what the server answered, and the exit code."""
    process = subprocess.Popen(
        [str(clone / "bin" / "demo")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=clone
    )
    assert process.stdout is not None
    starts: list[tuple[str, float]] = []
    answer, asked = "", False
    for line in process.stdout:
        if line.startswith(_STEP):
            starts.append((line.removeprefix(_STEP).strip(), time.monotonic()))
        elif asked:
            answer, asked = line.strip(), False
        asked = asked or line.startswith("asking: ")
    exit_code, ended = process.wait(), time.monotonic()
    ends = [*(start for _, start in starts[1:]), ended]
    steps = [{"step": name, "seconds": round(end - start, 1)} for (name, start), end in zip(starts, ends, strict=True)]
    return steps, answer, exit_code


if __name__ == "__main__":
    raise SystemExit(main())

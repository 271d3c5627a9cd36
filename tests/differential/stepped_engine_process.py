"""Runs ``stepped_engine.py`` on the CPU, with the source of the version that the extension is made for."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.differential.engine_oracle import engine_root
from tests.differential.engine_process import PYTHON, installed_root
from tests.plans import REPOSITORY


def answers_to(scenarios: Sequence[str], folder: Path) -> dict[str, Any]:
    """Each scenario's result, from one engine; skips the test where this machine has none."""
    source, installed = engine_root("0.33.0"), installed_root()
    compiled = sorted(installed.glob("vllm/*_C*.so")) if installed is not None else []
    if source is None or PYTHON is None or not any("AVX" in path.name or "_C.abi3" in path.name for path in compiled):
        pytest.skip("needs vLLM's CPU build and the source of 0.33.0")
    overlay = overlaid(source / "vllm", compiled, folder / "engine")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTHON"))} | {
        "PYTHONPATH": f"{overlay}{os.pathsep}{REPOSITORY}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    command = [PYTHON, str(Path(__file__).with_name("stepped_engine.py")), str(folder)]
    done = subprocess.run(command, input=json.dumps(scenarios), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def overlaid(source: Path, compiled: list[Path], folder: Path) -> Path:
    """A package folder of links: the Python source of one version, the compiled modules of another."""
    for path in (path for path in source.resolve().rglob("*") if path.is_file() and path.suffix != ".so"):
        link = folder / "vllm" / path.relative_to(source.resolve())
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    for path in compiled:
        (folder / "vllm" / path.name).symlink_to(path)
    return folder

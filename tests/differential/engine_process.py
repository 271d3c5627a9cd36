"""The engine imported by a process of its own, for ``real_engine`` and ``real_config``.

The interpreter is ``$SERVESPEC_ENGINE_PYTHON``, else the one that runs the tests if it has torch.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.differential.stand_ins import Machine

PYTHON = os.environ.get("SERVESPEC_ENGINE_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else None)


def run(program: str, root: Path | None, requests: str) -> Any:
    """The answer of ``program`` to ``requests``, with the engine of ``root`` or else the installed one."""
    assert PYTHON is not None
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTHON"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    if root is not None:
        environment["PYTHONPATH"] = str(root)
    command = [PYTHON, str(Path(__file__).with_name(program))]
    done = subprocess.run(command, input=requests, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@functools.cache
def installed_root() -> Path | None:
    """The folder of the engine that the interpreter itself has installed."""
    if PYTHON is None:
        return None
    probe = "import importlib.util as u; s = u.find_spec('vllm'); print(s.origin if s else '')"
    found = subprocess.run([PYTHON, "-c", probe], capture_output=True, text=True, check=True).stdout.strip()
    return Path(found).parent.parent if found else None


def resolve_real(
    root: Path, machine: Machine, cases: Sequence[Mapping[str, Any]], usage: str = "OPENAI_API_SERVER"
) -> Any:
    """``EngineArgs.create_engine_config`` of the engine at ``root`` for each case, on a pretended machine.

    A case is ``{"model": CONFIG, "draft": CONFIG or None, "args": {...}}`` (see ``real_config``); all cases
    share one process of about ten seconds.
    """
    request = {
        "capability": machine.capability,
        "name": machine.name,
        "memory_bytes": machine.memory_bytes,
        "usage": usage,
        "cases": list(cases),
    }
    return run("real_config.py", root, json.dumps(request))

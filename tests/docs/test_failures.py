"""The pages about failed launches, and about an engine that disagrees, show what `serve` says.

Each block has an engine that fails in its way.

Line breaks don't count: they depend on how long the folder's path is.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, all_blocks
from test_examples import commands
from typer.testing import CliRunner

from servespec.cli import app
from servespec.runtime import health_watch, serving, supervise
from servespec.runtime.health import free_port

pytestmark = [pytest.mark.usefixtures("quiet_shell"), pytest.mark.timeout(60)]

BLOCKS = tuple(block for block in all_blocks("console") if block.remark("engine"))

LOG = "({process} pid=9) ERROR 11-30 02:37:27 [{file}:1] {text}"
CORE_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
)


def logged(process: str, text: str, file: str = "core.py") -> str:
    return LOG.format(process=process, file=file, text=text)


def crash(stage: str, *lines: str, code: int = 1) -> list[str]:
    return ["--crash-at", stage, "--exit-code", str(code), *(word for line in lines for word in ("--say", line))]


def logs(*lines: str) -> list[str]:
    return [word for line in lines for word in ("--log", line)]


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.81 GiB "
    "of which 312.00 MiB is free. Including non-PyTorch memory, this process has 139.49 GiB memory in use."
)
TOO_LITTLE_FREE = (
    "ValueError: Free memory on device cuda:0 (118.2/139.81 GiB) on startup is less than desired GPU memory "
    "utilization (0.92, 128.62 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
CORE_DIED = (
    "(APIServer pid=7) WARNING 11-30 02:37:27 [core_client.py:839] [shutdown] MPClient: engine core exited "
    "unexpectedly; starting cleanup"
)
SCENARIOS = {
    "out of memory in capture": crash(
        "capturing",
        "Capturing prefill CUDA graphs (FULL):  81%|########1 | 30/37 [00:07<00:02,  4.1it/s]",
        logged("EngineCore", "EngineCore failed to start."),
        logged("EngineCore", OUT_OF_MEMORY),
        CORE_FAILED,
    ),
    "device in use": crash("loading", logged("EngineCore", TOO_LITTLE_FREE), CORE_FAILED),
    "one rank fails": crash(
        "loading",
        logged("Worker_TP1", "WorkerProc failed to start.", "multiproc_executor.py"),
        logged("Worker_TP1", "ValueError: weight `lm_head` has shape [0]", "multiproc_executor.py"),
        logged("Worker_TP0", "torch.distributed.DistBackendError: NCCL error: remote process exited", "x.py"),
        logged(
            "EngineCore", "Exception: WorkerProc initialization failed due to an exception in a background process."
        ),
        CORE_FAILED,
    ),
    "worker killed": crash(
        "loading",
        logged(
            "EngineCore",
            "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.",
            "multiproc_executor.py",
        ),
        CORE_FAILED,
    ),
    "hangs": ["--hang-at", "capturing"],
    "captures less": logs(
        "Capturing CUDA graphs (PIECEWISE): 100%|##########| 10/10 [00:01<00:00,  9.9it/s]",
        "Capturing CUDA graphs (FULL): 100%|##########| 6/6 [00:01<00:00,  9.9it/s]",
        "Capturing prefill CUDA graphs (PIECEWISE): 100%|##########| 10/10 [00:01<00:00,  9.9it/s]",
        "Capturing prefill CUDA graphs (FULL): 100%|##########| 7/7 [00:01<00:00,  9.9it/s]",
        "Capturing decode CUDA graphs (FULL): 100%|##########| 9/9 [00:01<00:00,  9.9it/s]",
    ),
    "port taken": crash("opening", "OSError: [Errno 98] Address already in use"),
    "dies after ready": [
        "--ready-seconds",
        "1.5",
        *crash(
            "ready",
            logged("EngineCore", "EngineCore encountered a fatal error."),
            logged("EngineCore", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
            logged("APIServer", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."),
            code=0,
        ),
    ],
    "server outlives its engine": [
        "--sick-seconds",
        "1.5",
        "--say",
        CORE_DIED,
    ],
}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_serve_says_what_is_shown(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    port, scenario = free_port(), SCENARIOS[block.remark("engine") or ""]
    fake = (sys.executable, "-I", "-S", str(ROOT / "tests/runtime/fake_engine.py"), "--port", str(port), *scenario)
    monkeypatch.setattr(serving, "program_path", lambda _: fake)
    monkeypatch.setattr(serving, "_problems", lambda *_: ())
    monkeypatch.setattr(serving, "device_use", lambda _: None)
    monkeypatch.setattr(health_watch, "_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(supervise, "_STALL_SECONDS", 0.5)
    ((command, shown),) = commands(block)

    result = CliRunner().invoke(app, [*shlex.split(command)[1:], "--set", f"serve.port={port}"])

    assert result.exit_code == int(block.remark("exit code") or 0), result.stderr
    said = words(result.stderr.replace(f"{tmp_path}/", ""))
    assert re.fullmatch(re.escape(words(shown)).replace(r"\.\.\.", ".*?"), said), said


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_scenario_is_shown() -> None:
    assert sorted(block.remark("engine") or "" for block in BLOCKS) == sorted(SCENARIOS)

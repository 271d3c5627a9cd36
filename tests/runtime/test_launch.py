"""The environment of an engine, its addresses, whose socket answers, and the table of rules."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from servespec.diagnostics import SpecError
from servespec.runtime import run_rules
from servespec.runtime.ask import ask
from servespec.runtime.health import base_url, free_port, is_foreign, listening_inodes, table_form
from servespec.runtime.keeper import descendants
from servespec.runtime.launch import LaunchCommand, engine_environment, secrets_of


def command(**fields: Any) -> LaunchCommand:
    given = {"argv": ("vllm",), "env": {}, "host": "127.0.0.1", "port": 8000, "log_path": Path("log")}
    return LaunchCommand(**{**given, **fields})


def test_environment_keeps_the_shell_but_not_the_engines_settings() -> None:
    shell = {
        "PATH": "/bin",
        "HF_HOME": "/hf",
        "VLLM_API_KEY": "key",
        "VLLM_CACHE_ROOT": "/cache",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_PLUGINS": "x",
        "PYTHONINSPECT": "1",
        "TORCH_COMPILE_DISABLE": "1",
    }
    made = engine_environment(
        command(env={"VLLM_USE_V2_MODEL_RUNNER": "1"}, withheld=frozenset({"TORCH_COMPILE_DISABLE"})), shell
    )
    assert made == {
        "PATH": "/bin",
        "HF_HOME": "/hf",
        "VLLM_API_KEY": "key",
        "VLLM_CACHE_ROOT": "/cache",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "PYTHONUNBUFFERED": "1",
    }


def test_environment_reaches_the_engine(fake: Any) -> None:
    from servespec.runtime.supervise import serve

    crash = fake.command("--print-env", "VLLM_USE_V2_MODEL_RUNNER", "--crash-at", "loading")
    outcome = serve(crash, ready_timeout_seconds=5, on_event=lambda _: None, environ={"VLLM_USE_V2_MODEL_RUNNER": "0"})
    assert "VLLM_USE_V2_MODEL_RUNNER=None\n" in outcome.log_path.read_text()


def test_secrets_are_known_by_their_names() -> None:
    environment = {"HF_TOKEN": "token-1", "MAX_TOKENS": "123456", "VLLM_API_KEY": "short", "PATH": "/usr/bin"}
    argv = ["--api-key", "secret-2", "--ssl-keyfile", "key.pem", "--api-key=secret-3", "--tokenizer", "model"]
    assert secrets_of(environment, argv) == {"token-1", "secret-2", "secret-3"}


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:8000"),
        ("0.0.0.0", False, "http://127.0.0.1:8000"),  # noqa: S104 - nothing is bound
        ("::", False, "http://[::1]:8000"),
        ("example.org", True, "https://example.org:8000"),
    ],
)
def test_base_url(host: str, tls: bool, url: str) -> None:
    assert base_url(command(host=host, tls=tls)) == url


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0
   1: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 0
   2: 0A00000A:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0
   3: 0100007F:1F40 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 444 1 0
   4: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 555 1 0
"""


def test_listening_sockets_of_a_table() -> None:
    assert set(listening_inodes({"0100007F", "00000000"}, 8000, [TABLE])) == {"111", "222"}


@pytest.mark.skipif(sys.byteorder != "little", reason="the expected words are little-endian")
def test_addresses_as_the_table_writes_them() -> None:
    assert table_form(socket.inet_pton(socket.AF_INET, "127.0.0.1")) == "0100007F"
    assert table_form(socket.inet_pton(socket.AF_INET6, "::1")) == "00000000000000000000000001000000"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])  # noqa: S104 - for a moment
def test_own_socket_is_foreign_to_a_keeper_without_children(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        port = server.getsockname()[1]
        assert is_foreign(command(host=host, port=port), keeper_pid=0x3FFFFFFF)
        # The parent of this process has it, and so its socket, below itself.
        assert not is_foreign(command(host=host, port=port), keeper_pid=os.getppid())
    assert not is_foreign(command(host=host, port=port), keeper_pid=0x3FFFFFFF)


def _parent() -> int:

    return os.getppid()


def test_descendants_include_this_process() -> None:

    assert os.getpid() in descendants(os.getppid())
    assert descendants(0x3FFFFFFF) == set()


def test_unreachable_server_does_not_answer() -> None:
    with pytest.raises(SpecError) as raised:
        ask(f"http://127.0.0.1:{free_port()}", "hello", timeout_seconds=2)
    assert [d.code for d in raised.value.diagnostics] == ["L013"]


def test_rules_are_numbered_without_gaps_and_listed_once() -> None:
    codes = [rule.code for rule in run_rules.RULES]
    assert codes == [f"L{n:03}" for n in range(1, len(codes) + 1)]
    assert len({rule.name for rule in run_rules.RULES}) == len(codes)
    found = {v for v in vars(run_rules).values() if isinstance(v, type(run_rules.PORT_TAKEN))}
    assert found == set(run_rules.RULES)


def test_exit_codes_are_the_contracts() -> None:
    codes = {rule.name: run_rules.exit_code_of(rule) for rule in run_rules.RULES}
    assert codes["engine-absent"] == codes["embedded-model-absent"] == 4
    assert codes["died-after-ready"] == 7
    assert codes["engine-exited"] == codes["port-taken"] == codes["ready-timeout"] == 5

"""A server of ours that answers HTTPS under a public name, spoken to from its own machine."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.diagnostics import SpecError
from servespec.runtime import health
from servespec.runtime.ask import ask
from servespec.runtime.bench.steps import counted_steps
from servespec.runtime.health import Health, base_url, health_of
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.supervise import Outcome
from tests.plans import REPOSITORY

ANSWERS = {
    "/health": b"",
    "/v1/models": b'{"data": [{"id": "m"}]}',
    "/v1/chat/completions": b'{"choices": [{"message": {"content": "yes"}}]}',
    "/metrics": b'servespec:target_steps_total{mode="FULL"} 3.0\n',
}
# What each question came with.
KEYS: list[str | None] = []
# Of `public.example`, with its key, signed by itself for a hundred years; it guards nothing.
CERTIFICATE = Path(__file__).with_name("self-signed.pem")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ANSWERS[self.path])

    def do_POST(self) -> None:
        KEYS.append(self.headers["Authorization"])
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def command() -> Iterator[LaunchCommand]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        yield LaunchCommand(argv=("x",), env={}, host="127.0.0.1", port=port, log_path=Path("log"), tls=True)
        server.shutdown()


def test_its_certificate_is_not_held_against_it(command: LaunchCommand) -> None:
    url = base_url(command)

    assert url.startswith("https://")
    assert health_of(command) is Health.OK
    assert ask(url, "?") == "yes"
    assert counted_steps(url) == {("FULL", "steps"): 3}


def test_one_that_is_cut_off_reads_as_ended(command: LaunchCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads at that moment is told of no fault of ours."""
    monkeypatch.setattr(health, "_PROBE_SECONDS", 0.05)

    with closing(health._connection(command)) as connection:
        connection.connect()
        with health._cut_off(connection) as is_cut_off:
            while not is_cut_off():
                sleep(0.01)
            assert isinstance(connection.sock, ssl.SSLSocket)
            assert connection.sock.read(1) == b""


def test_one_that_opens_late_is_cut_off_too(command: LaunchCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the first address of a host gives no answer."""
    monkeypatch.setattr(health, "_PROBE_SECONDS", 0.05)
    ours, servers = socket.socketpair()

    with ours, servers, closing(health._connection(command)) as connection, health._cut_off(connection) as is_cut_off:
        while not is_cut_off():
            sleep(0.01)
        ours.settimeout(5)
        connection.sock = ours
        assert ours.recv(1) == b""


@pytest.mark.usefixtures("quiet_shell")
def test_a_question_is_asked_with_the_key_of_the_shell(command: LaunchCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine takes it over from the shell, and asks for it."""

    def run(_plan: Any, _serving: Any, _on_event: Any, task: Any, **_: Any) -> Outcome:
        task(base_url(command))
        return Outcome(0, (), Path("log"))

    monkeypatch.setattr("servespec.runtime.serving.run", run)
    monkeypatch.setenv("VLLM_API_KEY", "of-the-shell")
    KEYS.clear()
    spec = REPOSITORY / "tests" / "golden" / "cases" / "cpu" / "spec.yaml"

    done = CliRunner().invoke(app, ["serve", str(spec), "--ask", "?"])

    assert done.stdout.startswith("yes"), done.output
    assert KEYS == ["Bearer of-the-shell"]


@pytest.mark.parametrize("key", ["of-the-shell\n", "of-the-sh\u20acll"])
def test_a_key_that_cannot_be_sent_is_told_and_not_shown(command: LaunchCommand, key: str) -> None:
    with pytest.raises(SpecError, match="the API key holds a line break, or a character") as raised:
        ask(base_url(command), "?", api_key=key)

    assert "of-the-sh" not in str(raised.value)

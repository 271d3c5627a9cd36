"""The life of an engine, seen from outside: events, exit codes, findings, and that nothing is left."""

import contextlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from servespec.diagnostics import Diagnostic, Place
from servespec.runtime import health, health_watch, supervise
from servespec.runtime.ask import ask
from servespec.runtime.engine_log import Phase
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.run_rules import ARGUMENTS_REFUSED, STOPPED_BY_FORCE
from servespec.runtime.supervise import Event, Outcome, PhaseReached, Ready, Stalled, Started, Stopping, serve
from tests.plans import REPOSITORY

# A hang is a failure to report soon, not after the suite's own limit.
pytestmark = pytest.mark.timeout(60)

CRASH = ("--crash-at", "loading")


def run(command: LaunchCommand, **options: Any) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    seen = options.pop("on_event", events.append)
    outcome = serve(command, **{"ready_timeout_seconds": 10.0, "on_event": seen, **options})
    return outcome, events


def codes(outcome: Outcome) -> list[str]:
    return [d.code for d in outcome.diagnostics]


def nothing(url: str) -> None:
    pass


# A ready server


def test_task_runs_on_the_ready_server_and_then_everything_stops(fake: Any) -> None:
    answers: list[str] = []
    outcome, events = run(fake.command("--family"), task=lambda url: answers.append(ask(url, "hello")))
    assert answers == ["fake-model heard: hello"]
    assert (outcome.exit_code, outcome.diagnostics, fake.alive()) == (0, (), [])
    assert [type(e) for e in events if not isinstance(e, PhaseReached)] == [Started, Ready, Stopping]
    assert len(fake.pids()) == 3


def test_a_running_engine_is_asked_before_it_stops(fake: Any) -> None:
    asked: list[int] = []

    outcome, _ = run(fake.command("--family"), task=nothing, before_stop=lambda: asked.append(len(fake.alive())))

    assert asked == [3]
    assert (outcome.exit_code, fake.alive()) == (0, [])


def test_what_the_engine_starts_is_in_the_session_of_its_first_process(fake: Any) -> None:
    """By which one that was left over is known as the engine's; of the family, one has left the session."""
    sessions: list[int] = []

    outcome, _ = run(
        fake.command("--family"), task=nothing, before_stop=lambda: sessions.extend(map(os.getsid, fake.alive()))
    )

    assert sessions.count(outcome.engine_pid or 0) == 2


def test_an_engine_that_never_was_ready_is_not_asked(fake: Any) -> None:
    asked: list[bool] = []
    run(fake.command(*CRASH), task=nothing, before_stop=lambda: asked.append(True))
    assert asked == []


def test_phases_are_told_in_order(fake: Any) -> None:
    _, events = run(fake.command("--stage-seconds", "0.4"), task=nothing)
    told = [e.phase for e in events if isinstance(e, PhaseReached)]
    assert told == [p for p in Phase if p in told]
    assert {Phase.LOADING, Phase.CAPTURING, Phase.WARMING_UP} <= set(told)


def test_the_log_is_the_owners_alone_and_starts_anew(fake: Any) -> None:
    command = fake.command()
    command.log_path.write_text("of an older run\n")
    command.log_path.chmod(0o644)
    run(command, task=nothing)
    assert stat.S_IMODE(command.log_path.stat().st_mode) == 0o600
    assert "older" not in command.log_path.read_text()


def test_failed_question_is_a_finding(fake: Any) -> None:
    outcome, _ = run(fake.command(), task=lambda url: print(ask(url, "fail")))
    assert (outcome.exit_code, codes(outcome)) == (7, ["L013"])
    assert "HTTP 500" in outcome.diagnostics[0].message
    assert fake.alive() == []


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("cut short", "IncompleteRead(1 bytes read, 99 more expected)"),
        ("garble", "no answer of a web server"),
        ("nest", "the answer has not the form of a chat completion"),
        ("be silent", "the answer holds no text"),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_finding(fake: Any, question: str, said: str) -> None:
    outcome, _ = run(fake.command(), task=lambda url: print(ask(url, question)))
    assert (outcome.exit_code, codes(outcome), fake.alive()) == (7, ["L013"], [])
    assert outcome.diagnostics[0].message.endswith(f"did not answer the question: {said}")


def test_verification_comes_before_ready_and_can_refuse(fake: Any) -> None:
    finding = ARGUMENTS_REFUSED.at(Place("plan"), "captured differs")
    outcome, events = run(fake.command(), verify=lambda: (finding,), task=nothing)
    assert (outcome.exit_code, outcome.diagnostics) == (6, (finding,))
    # Of `verify` and `steps` too, whose workers left no result: nothing is said of graphs.
    assert [e.because for e in events if isinstance(e, Stopping)] == ["a check before it is ready has failed"]
    assert not any(isinstance(e, Ready) for e in events)
    assert fake.alive() == []


def test_verification_without_errors_is_told_with_ready(fake: Any) -> None:
    finding = STOPPED_BY_FORCE.at(Place("plan"), "only a warning")
    outcome, events = run(fake.command(), verify=lambda: (finding,), task=nothing)
    assert outcome.exit_code == 0
    assert [e.findings for e in events if isinstance(e, Ready)] == [(finding,)]


def test_a_fault_of_ours_leaves_nothing_behind(fake: Any) -> None:
    def broken() -> tuple[Diagnostic, ...]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(fake.command("--family"), verify=broken, task=nothing)
    assert (len(fake.pids()), fake.alive()) == (3, [])


def test_a_flood_of_output_neither_blocks_nor_hides_the_end(fake: Any) -> None:
    outcome, _ = run(fake.command("--flood-bytes", str(100_000_000)), task=nothing)
    assert outcome.exit_code == 0
    assert outcome.log_path.stat().st_size > 99_000_000


# Failures before ready


def test_port_taken_starts_nothing(fake: Any) -> None:
    with HTTPServer(("127.0.0.1", fake.port), BaseHTTPRequestHandler):
        outcome, events = run(fake.command())
    assert (outcome.exit_code, codes(outcome), events) == (5, ["L001"], [])
    assert f"`{fake.port}`" in outcome.diagnostics[0].message
    assert not outcome.log_path.exists()


def test_address_of_another_machine_is_refused(fake: Any) -> None:
    outcome, _ = run(fake.command(host="192.0.2.1"))
    assert (outcome.exit_code, codes(outcome)) == (5, ["L015"])


def test_foreign_server_on_the_port_is_not_ready(fake: Any) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    servers: list[HTTPServer] = []

    def take_port(event: Event) -> None:
        if isinstance(event, Started):
            servers.append(HTTPServer(("127.0.0.1", fake.port), Stranger))
            threading.Thread(target=servers[0].serve_forever, kwargs={"poll_interval": 0.02}).start()

    outcome, _ = run(fake.command("--hang-at", "loading"), on_event=take_port)
    servers[0].shutdown()
    servers[0].server_close()
    assert (outcome.exit_code, codes(outcome), fake.alive()) == (5, ["L002"], [])


@pytest.mark.parametrize(
    ("line", "code", "exit_code"),
    [
        ("ValueError: something odd", "L004", 5),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "L005", 5),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'model'", "L006", 5),
        ("api_server.py: error: unrecognized arguments: --nonsense", "L007", 5),
        ("OSError: [Errno 98] Address already in use", "L001", 5),
        ("ModuleNotFoundError: No module named 'vllm'", "L003", 4),
    ],
)
def test_crash_before_ready_says_what_the_log_says(fake: Any, line: str, code: str, exit_code: int) -> None:
    outcome, _ = run(fake.command(*CRASH, "--exit-code", "3", "--say", line))
    assert (outcome.exit_code, codes(outcome)) == (exit_code, [code])
    message = outcome.diagnostics[0].message
    assert message == f"the engine exited with code `3` before it was ready: {line} (log: `{outcome.log_path}`)"
    assert fake.alive() == []


def test_silent_sigkill_is_taken_for_host_memory(fake: Any) -> None:
    outcome, _ = run(fake.command(*CRASH, "--by-signal", "9"))
    assert (outcome.exit_code, codes(outcome)) == (5, ["L005"])
    assert "`SIGKILL`" in outcome.diagnostics[0].message


def test_a_signal_without_a_name_is_told_by_its_number(fake: Any) -> None:
    outcome, _ = run(fake.command(*CRASH, "--by-signal", "35"))
    assert (outcome.exit_code, codes(outcome)) == (5, ["L004"])
    assert "the engine was ended by `signal 35` before it was ready" in outcome.diagnostics[0].message


def test_crash_takes_the_family_with_it(fake: Any) -> None:
    outcome, _ = run(fake.command(*CRASH, "--family"))
    assert (outcome.exit_code, len(fake.pids()), fake.alive()) == (5, 3, [])


def test_timeout_names_the_last_phase_and_the_last_error(fake: Any) -> None:
    command = fake.command("--hang-at", "capturing", "--say", "ERROR 01-01 00:00:00 [x.py:1] ValueError: stuck")
    outcome, _ = run(command, ready_timeout_seconds=2.0)
    assert (outcome.exit_code, codes(outcome), fake.alive()) == (5, ["L008"], [])
    message = outcome.diagnostics[0].message
    assert "`2` seconds; it had come to `capturing graphs`, GET /health is refused, and its log last grew" in message
    assert "seconds ago: ValueError: stuck (log: " in message
    (last,) = outcome.diagnostics[0].related
    assert last.message == "the log's last line: ERROR 01-01 00:00:00 [x.py:1] ValueError: stuck"


def test_a_silence_is_told_once_and_stops_nothing(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_STALL_SECONDS", 1.0)
    outcome, events = run(fake.command("--hang-at", "capturing"), ready_timeout_seconds=3.0)
    (stalled,) = [e for e in events if isinstance(e, Stalled)]
    assert (stalled.phase, stalled.last_line) == (Phase.CAPTURING, "Capturing CUDA graphs (FULL):  50%")
    assert stalled.quiet_seconds >= 1.0
    assert codes(outcome) == ["L008"]


def test_a_log_that_grows_is_no_silence(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_STALL_SECONDS", 2.0)
    _, events = run(fake.command("--stage-seconds", "0.4"), task=nothing)
    assert not any(isinstance(e, Stalled) for e in events)


@pytest.mark.parametrize(("status", "said"), [(503, "answers with a server error"), (429, "answers, but not with 200")])
def test_health_that_never_comes_is_a_timeout(fake: Any, status: int, said: str) -> None:
    outcome, _ = run(fake.command("--health", str(status)), ready_timeout_seconds=2.0)
    assert (outcome.exit_code, codes(outcome)) == (5, ["L008"])
    assert f"GET /health {said}" in outcome.diagnostics[0].message


def test_a_port_that_is_bound_and_never_answers_is_a_timeout(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PROBE_SECONDS", 0.2)
    outcome, _ = run(fake.command("--deaf"), ready_timeout_seconds=2.0)
    assert (outcome.exit_code, codes(outcome), fake.alive()) == (5, ["L008"], [])
    assert "GET /health gets no answer in time" in outcome.diagnostics[0].message


def test_a_port_where_something_else_than_http_answers_is_not_refused(fake: Any) -> None:
    def greet() -> None:
        connection, _ = server.accept()
        with connection:
            # What is read first is not reset by the close.
            connection.recv(4096)
            connection.sendall(b"SSH-2.0-Server\r\n")

    with socket.create_server(("127.0.0.1", fake.port)) as server:
        greeter = threading.Thread(target=greet)
        greeter.start()
        assert health.health_of(fake.command()) is health.Health.GARBLED
        greeter.join()


@pytest.mark.parametrize("at_once", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(
    fake: Any, at_once: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes well within the time that a read has."""
    monkeypatch.setattr(health, "_PROBE_SECONDS", 0.5)

    def drip() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(4096)
            connection.sendall(at_once)
            for _ in range(40):
                connection.sendall(b"H")
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", fake.port)) as server:
        dripper = threading.Thread(target=drip)
        dripper.start()
        began = time.monotonic()
        assert health.health_of(fake.command()) is health.Health.SILENT
        assert time.monotonic() - began < 2
        dripper.join()


def test_a_port_that_is_taken_after_our_check_is_told(fake: Any) -> None:
    """By a process that answers nothing: the engine's own bind fails."""
    thief = socket.socket()

    def take_port(event: Event) -> None:
        if isinstance(event, Started):
            thief.bind(("127.0.0.1", fake.port))
            thief.listen()

    with thief:
        outcome, _ = run(fake.command("--stage-seconds", "0.1"), on_event=take_port)
    assert (outcome.exit_code, codes(outcome), fake.alive()) == (5, ["L001"], [])
    assert "OSError: [Errno 98] Address already in use" in outcome.diagnostics[0].message


def test_an_error_in_the_log_stops_nothing(fake: Any) -> None:
    command = fake.command("--log", "(EngineCore pid=9) ERROR 01-01 00:00:00 [x.py:1] ImportError: optional")
    outcome, events = run(command, task=nothing)
    assert (outcome.exit_code, outcome.diagnostics) == (0, ())
    assert "ImportError: optional" in outcome.log_path.read_text()
    assert any(isinstance(e, Ready) for e in events)


def test_absent_engine(fake: Any) -> None:
    outcome, events = run(fake.command(argv=("/nonexistent/vllm", "serve")))
    assert (outcome.exit_code, codes(outcome), events) == (4, ["L003"], [])
    assert outcome.diagnostics[0].message == "`/nonexistent/vllm` cannot be run: no such file or directory"


def test_unwritable_log(fake: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome, _ = run(fake.command(log_path=tmp_path / "file" / "engine.log"))
    assert (outcome.exit_code, codes(outcome), fake.pids()) == (5, ["L010"], [])


def test_log_is_not_written_through_a_link(fake: Any, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "engine.log").symlink_to(tmp_path / "precious")
    outcome, _ = run(fake.command())
    assert codes(outcome) == ["L010"]
    assert (tmp_path / "precious").read_text() == "kept"


def test_secrets_of_the_command_are_in_no_message(fake: Any) -> None:
    line = "ValueError: bad key sk-very-secret and hidden-token"
    command = fake.command(*CRASH, "--say", line, env={"VLLM_API_KEY": "sk-very-secret", "HF_TOKEN": "hidden-token"})
    outcome, _ = run(command)
    assert "ValueError: bad key *** and ***" in outcome.diagnostics[0].message


def test_secrets_of_the_shell_are_in_no_message(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they have to stand, as a spec must hold none."""
    monkeypatch.setenv("HF_TOKEN", "hidden-token")
    monkeypatch.setenv("VLLM_API_KEY", "sk-very-secret")
    outcome, _ = run(fake.command(*CRASH, "--say", "ValueError: bad key sk-very-secret and hidden-token"))
    assert "ValueError: bad key *** and ***" in outcome.diagnostics[0].message


def test_nor_are_they_in_what_is_told_of_a_silence(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_STALL_SECONDS", 1.0)
    command = fake.command("--hang-at", "loading", "--say", "token hidden-token", env={"HF_TOKEN": "hidden-token"})
    outcome, events = run(command, ready_timeout_seconds=3.0)
    assert [e.last_line for e in events if isinstance(e, Stalled)] == ["token ***"]
    assert [one.message for one in outcome.diagnostics[0].related] == ["the log's last line: token ***"]


# Failures after ready


def test_death_after_ready(fake: Any) -> None:
    outcome, events = run(fake.command("--crash-at", "ready", "--exit-code", "3", "--family", "--ready-seconds", "0.5"))
    assert (outcome.exit_code, codes(outcome), fake.alive()) == (7, ["L009"], [])
    assert isinstance(events[-1], Ready)
    message = outcome.diagnostics[0].message
    assert re.search(r"exited with code `3` after it had served for \d seconds \(log", message), message


def test_a_kill_after_ready_is_told_with_its_signal(fake: Any) -> None:
    outcome, _ = run(fake.command("--crash-at", "ready", "--by-signal", "9", "--ready-seconds", "0.6"))
    assert (outcome.exit_code, codes(outcome)) == (7, ["L009"])
    assert "was ended by `SIGKILL` after it had served for" in outcome.diagnostics[0].message
    assert "dmesg" in outcome.diagnostics[0].help


def test_a_server_that_outlives_its_engine_is_stopped(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watch, "_EVERY_SECONDS", 0.1)
    line = "(APIServer pid=7) WARNING 01-01 00:00:00 [c.py:1] MPClient: engine core exited unexpectedly; cleanup"
    outcome, events = run(fake.command("--sick-seconds", "0.8", "--family", "--say", line))
    assert (outcome.exit_code, codes(outcome), fake.alive()) == (7, ["L018"], [])
    assert "answers with a server error for" in outcome.diagnostics[0].message
    assert ": engine core exited unexpectedly; cleanup (log" in outcome.diagnostics[0].message
    assert [type(e) for e in events[-2:]] == [Ready, Stopping]


def test_a_server_that_outlives_its_engine_is_stopped_under_a_task(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watch, "_EVERY_SECONDS", 0.1)
    outcome, _ = run(fake.command("--sick-seconds", "0.8"), task=lambda url: print(ask(url, "hang")))
    assert (outcome.exit_code, codes(outcome)) == (7, ["L018"])


def test_a_well_server_is_left_alone(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watch, "_EVERY_SECONDS", 0.05)
    outcome, _ = run(fake.command(), task=lambda _: time.sleep(1.5))
    assert (outcome.exit_code, outcome.diagnostics) == (0, ())


def test_clean_end_that_nobody_asked_for_is_a_death(fake: Any) -> None:
    outcome, _ = run(fake.command("--crash-at", "ready", "--exit-code", "0", "--ready-seconds", "0.5"))
    assert (outcome.exit_code, codes(outcome)) == (7, ["L009"])


def test_engine_that_dies_under_a_task(fake: Any) -> None:
    command = fake.command("--crash-at", "ready", "--ready-seconds", "0.5")
    outcome, _ = run(command, task=lambda url: print(ask(url, "hang")))
    assert outcome.exit_code == 7
    assert codes(outcome) in (["L009"], ["L013"])


def test_headless_node_is_served_without_a_port(fake: Any) -> None:
    command = fake.command("--crash-at", "opening", listens=False, headless=True)
    with HTTPServer(("127.0.0.1", fake.port), BaseHTTPRequestHandler):
        outcome, events = run(command)
    assert (outcome.exit_code, codes(outcome), [type(e) for e in events]) == (7, ["L009"], [Started])


# Signals, to a supervisor in a process of its own


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_everything_cleanly(fake: Any, supervised: Any, signum: signal.Signals) -> None:
    run = supervised(fake.command("--family"))
    run.until("Ready")
    assert len(fake.alive()) == 3
    run.send(signum)
    assert run.until("Stopping")["because"] == f"{signum.name} received"
    assert run.until("Outcome")["codes"] == []
    assert (run.code(), fake.alive()) == (128 + signum, [])


def test_a_front_end_is_left_to_stop_its_engine_core(fake: Any, supervised: Any, tmp_path: Path) -> None:
    """A core that is signalled by us and by its front end would be cut short."""
    run = supervised(fake.command("--tidy", str(tmp_path / "tidy")))
    run.until("Ready")
    assert len(fake.alive()) == 2
    run.send(signal.SIGTERM)
    assert run.until("Outcome")["codes"] == []
    assert (run.code(), fake.alive(), (tmp_path / "tidy").is_file()) == (143, [], True)


def test_signal_during_the_start(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command("--hang-at", "loading", "--family"))
    run.until("PhaseReached")
    run.send(signal.SIGTERM)
    run.until("Outcome")
    assert (run.code(), fake.alive(), "Ready" in run.kinds()) == (143, [], False)


def test_signal_during_a_task(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command(), ask="hang")
    run.until("Ready")
    run.send(signal.SIGINT)
    assert (run.code(), fake.alive()) == (130, [])


def test_what_ignores_the_stop_is_killed_after_the_grace_period(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command("--ignore-sigterm", "--stubborn-family", grace_seconds=0.5))
    run.until("Ready")
    run.send(signal.SIGTERM)
    assert run.until("Outcome")["codes"] == ["L014"]
    assert (run.code(), fake.alive()) == (143, [])


def test_second_signal_ends_the_grace_period(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command("--ignore-sigterm", "--stubborn-family", grace_seconds=600.0))
    run.until("Ready")
    run.send(signal.SIGINT)
    run.until("Stopping")
    run.send(signal.SIGINT)
    outcome = run.until("Outcome")
    assert outcome["codes"] == ["L014"]
    # Not the grace period, which was cut short.
    assert re.search(r"had not stopped `\d` seconds after it was asked to and was killed$", outcome["messages"][0])
    assert (run.code(), fake.alive()) == (130, [])


def test_killed_supervisor_leaves_nothing(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command("--ignore-sigterm", "--stubborn-family", grace_seconds=0.3))
    run.until("Ready")
    run.send(signal.SIGKILL)
    run.code()
    assert len(fake.pids()) == 3
    assert fake.alive_after(5.0) == []


def test_killed_keeper_ends_the_run(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command())
    run.until("Ready")
    parent = parent_of(fake.pids()[0])
    os.kill(parent, signal.SIGKILL)
    assert run.until("Outcome")["codes"] == ["L009"]
    assert (run.code(), fake.alive_after(5.0)) == (7, [])


def test_killed_keeper_leaves_nothing_of_what_the_first_process_started(fake: Any, supervised: Any) -> None:
    """One is in the session of the first process, one in its own; both ignore SIGTERM."""
    run = supervised(fake.command("--stubborn-family"))
    run.until("Ready")
    os.kill(parent_of(fake.pids()[0]), signal.SIGKILL)
    outcome = run.until("Outcome")
    assert (outcome["codes"], len(fake.pids()), fake.alive()) == (["L009"], 3, [])


def test_what_is_not_of_the_engine_outlives_a_killed_keeper(fake: Any) -> None:
    """One process of before it, and one that came beside it."""
    with sleeper() as before, contextlib.ExitStack() as stack:
        beside: list[subprocess.Popen[bytes]] = []

        def kill_keeper(event: Event) -> None:
            if isinstance(event, Ready):
                beside.append(stack.enter_context(sleeper()))
                os.kill(parent_of(fake.pids()[0]), signal.SIGKILL)

        outcome, _ = run(fake.command("--family"), on_event=kill_keeper)
        still_run = [one.poll() is None for one in (before, *beside)]
    assert (codes(outcome), fake.alive(), still_run) == (["L009"], [], [True, True])


@contextlib.contextmanager
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as one:
        yield one
        one.kill()


def test_a_child_that_starts_after_its_parent_has_ended_ends_too() -> None:
    """The kernel tells a child of the end of its parent only once the child has asked for it."""
    done = subprocess.run(
        [sys.executable, "-c", STARTS_LATE],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=30,
    )
    assert done.stdout == b"asks"


STARTS_LATE = """
import os, time
from servespec.runtime.keeper import ended_with_us
if os.fork() == 0:
    bind = ended_with_us()
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.01)
    os.write(1, b"asks")
    bind()
    os.write(1, b" and lives on")
    os._exit(0)
os.wait()
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_service_manager_that_signals_every_process_gets_a_clean_stop(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command("--family"))
    run.until("Ready")
    parent = parent_of(fake.pids()[0])
    for pid in (*fake.pids(), parent, run.process.pid):
        os.kill(pid, signal.SIGTERM)
    assert run.until("Outcome")["codes"] == []
    assert (run.code(), fake.alive()) == (143, [])


def test_hangup_that_was_ignored_stays_ignored(fake: Any, supervised: Any) -> None:
    run = supervised(fake.command(), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None)
    run.until("Ready")
    run.send(signal.SIGHUP)
    run.send(signal.SIGTERM)
    assert run.until("Stopping")["because"] == "SIGTERM received"
    assert run.code() == 143

"""An arm's server for the time of its cells: `servespec serve` under a keeper, so that nothing of it is left behind."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.bench.arms import Arm
from servespec.runtime.bench.bench_rules import ARM_FAILED
from servespec.runtime.bench.stopping import StopSignals
from servespec.runtime.health import base_url, free_port
from servespec.runtime.launch import EngineProcess, LaunchCommand, start
from servespec.runtime.record import RECORD_NAME, read_record

_POLL_SECONDS = 0.5
# `serve` itself waits for its engine to stop; this is for `serve`.
_GRACE_SECONDS = 60.0
# Its keeper kills after that time; what lives longer hangs in the kernel.
_KILL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A started server, its arm, and the folder that will hold its record."""

    arm: Arm
    command: LaunchCommand
    process: EngineProcess
    folder: Path
    began: float

    @property
    def base_url(self) -> str:
        return base_url(self.command)

    def wait_until_ready(self) -> float:
        """Seconds from its start until its record says that it is ready, with what it captured checked.

        Raises SpecError where it ends before.
        """
        while self.measured().get("ready_at") is None:
            self.process.wait(_POLL_SECONDS)
            self.check_alive()
        return time.monotonic() - self.began

    def check_alive(self) -> None:
        """Raises SpecError where it has ended: what was measured last is then of no server."""
        ended = self.process.poll()
        if ended is not None:
            raise SpecError([_failed(self.arm, self.command, ended.returncode)])

    def measured(self) -> Mapping[str, Any]:
        """What its record says so far; nothing before it is written."""
        path = self.folder / RECORD_NAME
        measured: Mapping[str, Any] = read_record(path)["measured"] if path.is_file() else {}
        return measured


@contextmanager
def arm_up(arm: Arm, folder: Path, stops: StopSignals, pass_on: tuple[str, ...]) -> Iterator[Server]:
    """Starts to serve ``arm``, until the block ends; ``pass_on`` are further words for `servespec serve`.

    A signal cuts neither the start nor the end short, which would leave a server behind.
    """
    command = _command(arm, folder, pass_on)
    (folder / RECORD_NAME).unlink(missing_ok=True)
    with ExitStack() as stack:
        with stops.deferred():
            process = start(command, os.environ)
            if isinstance(process, Diagnostic):
                raise SpecError([process])
            stack.callback(_end, process, stops)
        yield Server(arm=arm, command=command, process=process, folder=folder, began=time.monotonic())


def _end(process: EngineProcess, stops: StopSignals) -> None:
    """Waits until nothing of the server is left; a signal after the one that ends the bench kills it at once."""
    with stops.deferred():
        process.request_stop()
        deadline = time.monotonic() + _GRACE_SECONDS + _KILL_SECONDS
        while process.wait(_POLL_SECONDS) is None and time.monotonic() < deadline:
            if stops.is_urgent:
                process.request_stop()
        process.close()


def _command(arm: Arm, folder: Path, pass_on: tuple[str, ...]) -> LaunchCommand:
    port = free_port()
    settings = [word for setting in (*arm.settings, f"serve.port={port}") for word in ("--set", setting)]
    argv = (sys.executable, "-P", "-m", "servespec", "serve", arm.spec, "--record", str(folder), *settings, *pass_on)
    return LaunchCommand(
        argv=argv,
        env={},
        host=arm.plan.resolution.request.spec.serve.host,
        port=port,
        tls=arm.plan.lowered.is_tls,
        log_path=folder / "serve.log",
        grace_seconds=_GRACE_SECONDS,
    )


def _failed(arm: Arm, command: LaunchCommand, returncode: int | None) -> Diagnostic:
    last = _last_words(command.log_path)
    message = f"arm `{arm.label}` is not served: `servespec serve` ended with code {returncode}{last}"
    return ARM_FAILED.at(Place(str(command.log_path)), message, "serve this arm alone, or leave it out of `--arms`")


def _last_words(log: Path) -> str:
    """The finding that `serve` ended with, in one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line for line in lines if line.startswith("error[")]
    return f": {errors[-1]}" if errors else ""

"""The foreground life of one engine: start, wait until ready, check, stay, stop.

:func:`serve` must run in the main thread, where Python delivers signals.  It returns when no process of
the engine is left.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from servespec.diagnostics import Diagnostic, Place, SpecError, has_errors
from servespec.runtime.engine_log import LogTail, Phase
from servespec.runtime.failure import diagnose_exit, diagnose_timeout, diagnose_unhealthy
from servespec.runtime.health import Health, base_url, health_of, is_foreign, port_problem
from servespec.runtime.health_watch import HealthWatch
from servespec.runtime.launch import EngineProcess, Exit, LaunchCommand, secrets_of_launch, start
from servespec.runtime.orphans import adopting_orphans, end_orphans
from servespec.runtime.run_rules import (
    EXIT_DONE,
    EXIT_DRIFT,
    FOREIGN_SERVER,
    STOPPED_BY_FORCE,
    exit_code_of,
)

_POLL_SECONDS = 0.25
_SIGNAL_LAG_SECONDS = 0.2
_STALL_SECONDS = 120.0
# The keeper kills after the grace period; what lives longer hangs in the kernel.
# The keeper then waits for it alone.
_KILL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Started:
    """The engine's first process runs."""

    pid: int
    log_path: Path


@dataclass(frozen=True, slots=True)
class PhaseReached:
    """The start has come to another phase, ``after_seconds`` from its beginning."""

    phase: Phase
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Progressed:
    """A phase has done so much of what the engine counts in it."""

    phase: Phase
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """The log has not grown for ``quiet_seconds`` while the engine starts; told once for each silence."""

    phase: Phase
    last_line: str
    quiet_seconds: float
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The server answers and what it captured was checked."""

    base_url: str
    after_seconds: float
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Stopping:
    """The engine is being stopped; ``because`` is for a person."""

    because: str


Event = Started | PhaseReached | Progressed | Stalled | Ready | Stopping
OnEvent = Callable[[Event], None]
# Compares what was captured with the plan; an error among its findings means that the server must not serve.
Verify = Callable[[], tuple[Diagnostic, ...]]
# What to do while the engine still runs, before it is asked to stop.
BeforeStop = Callable[[], None]
# What to do with a ready server at this base URL before stopping it; raises SpecError when it fails.
Task = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended; ``ready_seconds`` is None when the server never was ready, ``engine_pid`` when nothing started."""

    exit_code: int
    diagnostics: tuple[Diagnostic, ...]
    log_path: Path
    ready_seconds: float | None = None
    engine_pid: int | None = None


def serve(
    command: LaunchCommand,
    *,
    ready_timeout_seconds: float,
    on_event: OnEvent,
    verify: Verify | None = None,
    task: Task | None = None,
    before_stop: BeforeStop | None = None,
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs the engine until it ends, a signal arrives or ``task`` is done; failures are in the outcome.

    ``before_stop`` is called of an engine that is ready and runs, before it is asked to stop.
    """
    if not command.headless and (problem := port_problem(command)):
        return _refused(command, problem)
    with _signals() as signals, adopting_orphans():
        engine = start(command, os.environ if environ is None else environ)
        if isinstance(engine, Diagnostic):
            return _refused(command, engine)
        try:
            return _Run(command, engine, signals, on_event, before_stop).live(ready_timeout_seconds, verify, task)
        finally:
            # Whatever a callback did, the engine does not outlive it.
            engine.request_stop()
            engine.wait(command.grace_seconds + _KILL_SECONDS)
            engine.close()
            if engine.has_lost_keeper:
                end_orphans(engine, _KILL_SECONDS)


@dataclass(slots=True)
class _Signals:
    """The stop signals received so far, and a descriptor that becomes readable with each."""

    wakeups: int
    received: list[int] = field(default_factory=list)

    def forget_wakeups(self) -> None:
        # Without this a signal that ends nothing would make every later wait a busy one.
        with suppress(BlockingIOError):
            os.read(self.wakeups, 512)


@dataclass(frozen=True, slots=True)
class _End:
    """Why a run is over."""

    exit_code: int
    because: str
    diagnostics: tuple[Diagnostic, ...] = ()
    signals: int = 0


@dataclass(slots=True)
class _Run:
    """One engine from its start to its end."""

    command: LaunchCommand
    engine: EngineProcess
    signals: _Signals
    on_event: OnEvent
    before_stop: BeforeStop | None = None
    began: float = field(default_factory=time.monotonic)
    ready_seconds: float | None = None
    stalled_since: float | None = None

    def live(self, ready_timeout_seconds: float, verify: Verify | None, task: Task | None) -> Outcome:
        self.on_event(Started(self.engine.pid, self.command.log_path))
        end = self._until_ready(ready_timeout_seconds, verify) or self._until_over(task)
        slow = self._stop(end)
        found = (*end.diagnostics, *slow)
        return Outcome(end.exit_code, found, self.command.log_path, self.ready_seconds, self.engine.pid)

    def _until_ready(self, timeout_seconds: float, verify: Verify | None) -> _End | None:
        if self.command.headless:
            return None
        return self._until_healthy(timeout_seconds) or self._verified(verify)

    def _until_healthy(self, timeout_seconds: float) -> _End | None:
        tail = LogTail(self.command.log_path, secrets_of_launch(self.command))
        while (health := health_of(self.command)) is not Health.OK:
            if end := self._pause():
                return end
            self._tell_progress(tail)
            if self._elapsed() > timeout_seconds:
                return _failed(diagnose_timeout(self.command, tail, health, timeout_seconds))
        self._tell_progress(tail)
        return _failed(_foreign(self.command)) if is_foreign(self.command, self.engine.keeper.pid) else None

    def _verified(self, verify: Verify | None) -> _End | None:
        findings = verify() if verify else ()
        if has_errors(findings):
            return _End(EXIT_DRIFT, "a check before it is ready has failed", findings)
        self.ready_seconds = self._elapsed()
        self.on_event(Ready(base_url(self.command), self.ready_seconds, findings))
        return None

    def _until_over(self, task: Task | None) -> _End:
        """Stays until the engine ends, a signal comes or the task is done."""
        # In a thread of its own, so that a signal or the engine's end is seen while the task works.
        executor = ThreadPoolExecutor(1)
        work = executor.submit(task, base_url(self.command)) if task else None
        # The thread is not waited for: the end of the engine ends its request.
        executor.shutdown(wait=False)
        with HealthWatch(self.command) as watch:
            while work is None or not work.done():
                if end := self._pause() or self._unhealthy(watch):
                    return end
        return _task_end(work)

    def _unhealthy(self, watch: HealthWatch) -> _End | None:
        failing = None if self.command.headless else watch.failing()
        if failing is None:
            return None
        return _failed(diagnose_unhealthy(self.command, failing.health, failing.for_seconds))

    def _pause(self) -> _End | None:
        """Sleeps a little; the end of the run when a signal has come or the engine is gone."""
        self._listen(_POLL_SECONDS, self.engine.status_fd)
        ended = self.engine.poll()
        if ended:
            # A service manager signals every process, and the engine may be the first to act on it.
            self._listen(_SIGNAL_LAG_SECONDS)
        if self.signals.received:
            signum = self.signals.received[0]
            return _End(128 + signum, f"{signal.Signals(signum).name} received", signals=1)
        return _failed(self._diagnose(ended)) if ended else None

    def _listen(self, seconds: float, *fds: int) -> None:
        """Until a signal has come, something is to be read, or ``seconds`` are over."""
        if not self.signals.received:
            select.select([self.signals.wakeups, *fds], [], [], seconds)
            self.signals.forget_wakeups()

    def _diagnose(self, ended: Exit) -> Diagnostic:
        ready_seconds = 0.0 if self.command.headless else self.ready_seconds
        return diagnose_exit(self.command, ended, None if ready_seconds is None else self._elapsed() - ready_seconds)

    def _tell_progress(self, tail: LogTail) -> None:
        before, counted = tail.phase, tail.progress
        if tail.advance() is not before:
            self.on_event(PhaseReached(tail.phase, self._elapsed()))
        if tail.progress is not None and tail.progress != counted:
            self.on_event(Progressed(tail.phase, tail.progress.done, tail.progress.total))
        if tail.quiet_seconds() >= _STALL_SECONDS and self.stalled_since != tail.grew_at:
            self.stalled_since = tail.grew_at
            self.on_event(Stalled(tail.phase, tail.last_line, tail.quiet_seconds(), self._elapsed()))

    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    def _stop(self, end: _End) -> tuple[Diagnostic, ...]:
        """Waits until nothing of the engine is left; one more signal than ``end`` took stops it at once."""
        if self.engine.poll():
            return ()
        self.on_event(Stopping(end.because))
        if self.before_stop is not None and self.ready_seconds is not None:
            self.before_stop()
        self.engine.request_stop()
        asked = time.monotonic()
        deadline = asked + self.command.grace_seconds + _KILL_SECONDS
        while self.engine.wait(_POLL_SECONDS) is None and time.monotonic() < deadline:
            if len(self.signals.received) > end.signals:
                self.engine.request_stop()
        ended = self.engine.exit
        if ended is None or ended.forced:
            return (_forced(self.command, time.monotonic() - asked, is_left=ended is None),)
        return ()


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Takes Ctrl-C, SIGTERM and SIGHUP for the time of a run; one that was ignored stays ignored (nohup)."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signals = _Signals(read_end)
    wanted = [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    before = {s: signal.signal(s, lambda signum, _: signals.received.append(signum)) for s in wanted}
    try:
        yield signals
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(read_end)
        os.close(write_end)


def _refused(command: LaunchCommand, problem: Diagnostic) -> Outcome:
    return Outcome(exit_code_of(problem.rule), (problem,), command.log_path)


def _failed(problem: Diagnostic) -> _End:
    return _End(exit_code_of(problem.rule), problem.message, (problem,))


def _task_end(work: "Future[None]") -> _End:
    try:
        work.result()
    except SpecError as error:
        return _End(exit_code_of(error.diagnostics[0].rule), str(error), error.diagnostics)
    return _End(EXIT_DONE, "done")


def _foreign(command: LaunchCommand) -> Diagnostic:
    return FOREIGN_SERVER.at(
        Place(str(command.log_path)),
        f"port `{command.port}` of `{command.host}` is answered by a process that is not the launched engine",
        "stop the other server, or set `serve.port` to a free port",
    )


def _forced(command: LaunchCommand, waited_seconds: float, *, is_left: bool) -> Diagnostic:
    """A second signal ends the grace period, so that the time is what was really waited."""
    still = "; a process of it still lives" if is_left else ""
    return STOPPED_BY_FORCE.at(
        Place(str(command.log_path)),
        f"the engine had not stopped `{waited_seconds:.0f}` seconds after it was asked to and was killed{still}",
        "see the end of the log for what held it up",
    )

"""Starts an engine's process with its output in a file, and says how it ended.

Nothing here knows what the command means.  A small process, :mod:`servespec.runtime.keeper`, stands between,
so that no process of the engine survives this one, however this one ends.
"""

import contextlib
import errno
import itertools
import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servespec.compiler.environment import STOP_SECONDS, is_kept
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.run_rules import ENGINE_ABSENT, ENGINE_EXITED, INSTALL_ENGINE, LOG_UNWRITABLE

_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SHORTEST_SECRET = 6
_MARK_VARIABLE = "SERVESPEC_LAUNCH"
_NOT_STARTED = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """What to start and where it will answer.

    ``env`` is added to the environment of this process, less its plan-relevant variables and ``withheld``.
    ``folder`` is where relative paths of the command start, None for the current one.
    ``headless`` is a node without an API server: it never answers and is served until it ends.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    host: str
    port: int
    log_path: Path
    folder: Path | None = None
    tls: bool = False
    headless: bool = False
    withheld: frozenset[str] = frozenset()
    grace_seconds: float = STOP_SECONDS


@dataclass(frozen=True, slots=True)
class Exit:
    """How the engine's first process ended: a return code, negative for a signal; None where unknown."""

    returncode: int | None
    forced: bool


@dataclass(slots=True)
class EngineProcess:
    """A started engine.  Its ``exit`` is set once no process of it is left.

    ``status_fd`` is readable when it has ended; ``lifeline_fd`` held open keeps it alive.  ``mark`` is what stands in
    the environment of its processes, ``NAME=value``, and of no others.
    """

    pid: int
    keeper: "subprocess.Popen[bytes]"
    status_fd: int
    lifeline_fd: int
    mark: str
    exit: Exit | None = None
    _unread: bytes = field(default=b"", repr=False)

    @property
    def has_lost_keeper(self) -> bool:
        """Whether nobody is left who would end what the engine's first process leaves."""
        return self.exit is not None and self.exit.returncode is None

    def poll(self) -> Exit | None:
        """The end of the engine, if all of it has ended; never waits."""
        while self.exit is None and _is_readable(self.status_fd):
            self._take(os.read(self.status_fd, 4096))
        return self.exit

    def request_stop(self) -> None:
        """Asks for a clean stop; asked again, for a stop at once."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.lifeline_fd, b"s")

    def wait(self, timeout_seconds: float) -> Exit | None:
        """The end of the engine, or None after ``timeout_seconds``."""
        deadline = time.monotonic() + timeout_seconds
        while self.poll() is None and (left_seconds := deadline - time.monotonic()) > 0:
            select.select([self.status_fd], [], [], left_seconds)
        return self.exit

    def close(self) -> None:
        """Lets go of the keeper, which stops whatever still runs."""
        os.close(self.lifeline_fd)
        os.close(self.status_fd)
        if self.exit is not None:
            self.keeper.wait()

    def _take(self, data: bytes) -> None:
        self._unread += data
        line, ended, _ = self._unread.partition(b"\n")
        if ended:
            said = json.loads(line)
            self.exit = Exit(said["returncode"], said["forced"])
        elif not data:
            # The keeper itself was killed; the kernel has killed the engine's first process with it.
            self.exit = Exit(None, False)


def start(command: LaunchCommand, environ: Mapping[str, str]) -> EngineProcess | Diagnostic:
    """Starts the engine in its own session, or says why it cannot be.

    ``environ`` is the environment to build on, ``os.environ`` in earnest.
    """
    log = _open_log(command.log_path)
    if isinstance(log, Diagnostic):
        return log
    engine = _start_keeper(command, engine_environment(command, environ), log)
    said = _first_line(engine.status_fd)
    if "pid" in said:
        engine.pid = said["pid"]
        return engine
    engine.exit = Exit(None, False)
    engine.close()
    return _not_started(command, said.get("errno"))


def _start_keeper(command: LaunchCommand, environment: Mapping[str, str], log: int) -> EngineProcess:
    mark = secrets.token_hex(8)
    keeper_reads, lifeline = os.pipe()
    status, keeper_writes = os.pipe()
    keeper = subprocess.Popen(  # noqa: S603 - the command is what the user asked to launch
        _keeper_argv(command),
        stdin=keeper_reads,
        stdout=keeper_writes,
        stderr=log,
        env={**environment, _MARK_VARIABLE: mark},
        cwd=command.folder,
        start_new_session=True,
    )
    for fd in (keeper_reads, keeper_writes, log):
        os.close(fd)
    return EngineProcess(0, keeper, status, lifeline, f"{_MARK_VARIABLE}={mark}")


def _first_line(fd: int) -> dict[str, Any]:
    """What the keeper says first; nothing when it ends without a word."""
    said = b""
    while not said.endswith(b"\n") and (more := os.read(fd, 1)):
        said += more
    first: dict[str, Any] = json.loads(said) if said else {}
    return first


def engine_environment(command: LaunchCommand, environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without what could change the plan or the launch, with the command's own variables."""
    kept = {k: v for k, v in environ.items() if k not in command.withheld and is_kept(k)}
    # A log that is read while it grows must not wait in a buffer.
    return {**kept, "PYTHONUNBUFFERED": "1", **command.env}


def secrets_of(environment: Mapping[str, str], argv: Iterable[str] = ()) -> frozenset[str]:
    """The values that must appear in no message: those of variables and of flags named like a secret."""
    pairs = [*environment.items(), *_flag_values(list(argv))]
    return frozenset(v for k, v in pairs if _is_secret(k) and len(v) >= _SHORTEST_SECRET)


def secrets_of_launch(command: LaunchCommand) -> frozenset[str]:
    """Of its flags and of every variable that its engine may have: a spec must hold none, so they are the shell's."""
    return secrets_of({**os.environ, **command.env}, command.argv)


def _flag_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each long flag with what follows it, in either spelling."""
    for word, following in itertools.pairwise([*words, ""]):
        flag, is_joined, value = word.partition("=")
        if flag.startswith("--"):
            yield flag, value if is_joined else following


def _is_secret(name: str) -> bool:
    words = name.upper().replace("-", "_").split("_")
    return any(word in words for word in _SECRET_WORDS)


def _keeper_argv(command: LaunchCommand) -> list[str]:
    keeper = Path(__file__).with_name("keeper.py")
    return [sys.executable, "-I", "-S", str(keeper), str(command.grace_seconds), *command.argv]


def _not_started(command: LaunchCommand, errno_: int | None) -> Diagnostic:
    place = Place(str(command.log_path))
    if errno_ in _NOT_STARTED:
        return ENGINE_ABSENT.at(
            place,
            f"`{command.argv[0]}` cannot be run: {os.strerror(errno_).lower()}",
            INSTALL_ENGINE,
        )
    why = os.strerror(errno_).lower() if errno_ else "its keeper ended at once"
    return ENGINE_EXITED.at(place, f"`{command.argv[0]}` could not be started: {why}", "see the log")


def _open_log(path: Path) -> int | Diagnostic:
    """A descriptor of an empty file that only its owner can read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.fchmod(fd, 0o600)
    except OSError as error:
        why = (error.strerror or "").lower()
        return LOG_UNWRITABLE.at(
            Place(str(path)),
            f"the log `{path}` cannot be written: {why}",
            "name a folder that you can write to",
        )
    return fd


def _is_readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])

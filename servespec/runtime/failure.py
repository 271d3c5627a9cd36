"""From how an engine ended, and what its log says, to one finding."""

import signal
from collections.abc import Iterable

from servespec.diagnostics import Diagnostic, Place, Related, Rule
from servespec.runtime.engine_log import Cause, LogTail, Telling, read_failure
from servespec.runtime.health import Health
from servespec.runtime.launch import Exit, LaunchCommand, secrets_of_launch
from servespec.runtime.run_rules import (
    ARGUMENTS_REFUSED,
    DIED_AFTER_READY,
    ENGINE_ABSENT,
    ENGINE_EXITED,
    INSTALL_ENGINE,
    MODEL_MISSING,
    OUT_OF_MEMORY,
    PORT_TAKEN,
    READY_TIMEOUT,
    UNHEALTHY_AFTER_READY,
)

_SEE_LOG = "see the end of the log"

_RULES: dict[Cause | None, tuple[Rule, str]] = {
    None: (ENGINE_EXITED, _SEE_LOG),
    Cause.PORT: (PORT_TAKEN, "set `serve.port` to a free port, or stop the process that has it"),
    Cause.ENGINE: (ENGINE_ABSENT, INSTALL_ENGINE),
    Cause.MEMORY: (
        OUT_OF_MEMORY,
        "lower `memory.gpu_memory_utilization`, or stop what else uses the device",
    ),
    Cause.HOST_MEMORY: (
        OUT_OF_MEMORY,
        "look for the kernel's out-of-memory message (`dmesg`), and give the machine more memory",
    ),
    Cause.SILENT_DEATH: (
        ENGINE_EXITED,
        "see the log and `dmesg`: a process that ends without a word was most often killed, for host memory",
    ),
    Cause.ARGUMENTS: (
        ARGUMENTS_REFUSED,
        "correct `engine.args`, or install the engine that `engine.version` names",
    ),
    Cause.MODEL: (MODEL_MISSING, "correct `model.id`, or make the files reachable from this machine"),
}


def diagnose_exit(command: LaunchCommand, ended: Exit, served_seconds: float | None) -> Diagnostic:
    """Why the engine ended by itself; ``served_seconds`` is None where it was never ready."""
    telling = _read(command)
    rule, help_ = _RULES[telling.cause or _cause_of(ended, telling)]
    if served_seconds is None:
        return _finding(command, rule, f"the engine {_how(ended)} before it was ready", help_, telling)
    message = f"the engine {_how(ended)} after it had served for {served_seconds:.0f} seconds"
    return _finding(command, DIED_AFTER_READY, message, help_, telling)


def diagnose_timeout(command: LaunchCommand, tail: LogTail, health: Health, timeout_seconds: float) -> Diagnostic:
    """Why an engine that still lives is given up; ``tail`` has followed its log, ``health`` is its last answer."""
    message = (
        f"the engine was not ready after `{timeout_seconds:g}` seconds; it had come to `{tail.phase}`, "
        f"GET /health {health}, and its log last grew {tail.quiet_seconds():.0f} seconds ago"
    )
    help_ = "set `serve.ready_timeout_seconds` higher, or see the log for what it waits for"
    last = [Related(f"the log's last line: {tail.last_line}", Place(str(command.log_path)))] if tail.last_line else []
    return _finding(command, READY_TIMEOUT, message, help_, _read(command), last)


def diagnose_unhealthy(command: LaunchCommand, health: Health, failing_seconds: float) -> Diagnostic:
    """Why a server is stopped whose processes live and whose health check fails."""
    telling = _read(command)
    message = f"the engine's processes live, but GET /health {health} for {failing_seconds:.0f} seconds now"
    _, help_ = _RULES[telling.cause]
    return _finding(command, UNHEALTHY_AFTER_READY, message, help_, telling)


def _cause_of(ended: Exit, telling: Telling) -> Cause | None:
    """What killed a process that says nothing was most often the kernel, for memory."""
    return Cause.HOST_MEMORY if ended.returncode == -signal.SIGKILL and not telling.lines else None


def _how(ended: Exit) -> str:
    if ended.returncode is None:
        return "was killed together with its keeper"
    if ended.returncode >= 0:
        return f"exited with code `{ended.returncode}`"
    return f"was ended by `{_signal_name(-ended.returncode)}`"


def _signal_name(number: int) -> str:
    """Real-time signals have none but the first and the last."""
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, f"signal {number}")


def _finding(
    command: LaunchCommand, rule: Rule, message: str, help_: str, telling: Telling, related: Iterable[Related] = ()
) -> Diagnostic:
    place = Place(str(command.log_path))
    said = f"{message}: {telling.lines[0]}" if telling.lines else message
    more = [Related(line, place) for line in telling.lines[1:]]
    return rule.at(place, f"{said} (log: `{command.log_path}`)", help_, [*more, *related])


def _read(command: LaunchCommand) -> Telling:
    return read_failure(command.log_path, secrets_of_launch(command))

"""From how an engine ended, and what its log says, to one finding."""

import signal

from servespec.diagnostics import Diagnostic, Place, Related, Rule
from servespec.runtime.engine_log import Cause, Phase, Telling, read_failure
from servespec.runtime.launch import Exit, LaunchCommand, secrets_of
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
)

_RULES: dict[Cause, tuple[Rule, str]] = {
    Cause.PORT: (PORT_TAKEN, "set `serve.port` to a free port, or stop the process that has it"),
    Cause.ENGINE: (ENGINE_ABSENT, INSTALL_ENGINE),
    Cause.MEMORY: (
        OUT_OF_MEMORY,
        "lower `memory.gpu_memory_utilization`, or stop what else uses the device",
    ),
    Cause.ARGUMENTS: (
        ARGUMENTS_REFUSED,
        "correct `engine.args`, or install the engine that `engine.version` names",
    ),
    Cause.MODEL: (MODEL_MISSING, "correct `model.id`, or make the files reachable from this machine"),
}


def diagnose_exit(command: LaunchCommand, ended: Exit, *, was_ready: bool) -> Diagnostic:
    """Why the engine ended by itself, before or after it was ready."""
    telling = _read(command)
    how = _how(ended)
    if was_ready:
        return _finding(command, DIED_AFTER_READY, f"the engine {how} after it was ready", _SEE_LOG, telling)
    rule, help_ = _RULES[telling.cause] if telling.cause else _unexplained(ended)
    return _finding(command, rule, f"the engine {how} before it was ready", help_, telling)


def diagnose_timeout(command: LaunchCommand, phase: Phase, timeout_seconds: float) -> Diagnostic:
    """Why an engine that still lives is given up; ``phase`` is the last that its log showed."""
    message = f"the engine was not ready after `{timeout_seconds:g}` seconds; it had come to `{phase}`"
    return _finding(
        command,
        READY_TIMEOUT,
        message,
        "allow more time, or see the log for what it waits for",
        _read(command),
    )


_SEE_LOG = "see the end of the log"


def _unexplained(ended: Exit) -> tuple[Rule, str]:
    """The rule for an end that the log does not explain."""
    if ended.returncode == -signal.SIGKILL:
        return (
            OUT_OF_MEMORY,
            "look for the kernel's out-of-memory message (`dmesg`), and give the machine more memory",
        )
    return ENGINE_EXITED, _SEE_LOG


def _how(ended: Exit) -> str:
    if ended.returncode is None:
        return "was killed together with its keeper"
    if ended.returncode >= 0:
        return f"exited with code `{ended.returncode}`"
    return f"was ended by `{signal.Signals(-ended.returncode).name}`"


def _finding(command: LaunchCommand, rule: Rule, message: str, help_: str, telling: Telling) -> Diagnostic:
    place = Place(str(command.log_path))
    said = f"{message}: {telling.lines[0]}" if telling.lines else message
    related = [Related(line, place) for line in telling.lines[1:]]
    return rule.at(place, f"{said} (log: `{command.log_path}`)", help_, related)


def _read(command: LaunchCommand) -> Telling:
    return read_failure(command.log_path, secrets_of(command.env, command.argv))

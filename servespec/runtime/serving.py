"""Serving a plan: is this its machine, can this lowering be launched, then the engine's life until it ends."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from servespec.compiler.engine import Engine
from servespec.compiler.json_text import json_text
from servespec.compiler.lower import Lowering
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Severity, SpecError
from servespec.runtime.capture_log import log_findings
from servespec.runtime.capture_report import remove_reports, report_findings
from servespec.runtime.config_rules import R010
from servespec.runtime.extension.report import FOLDER_VARIABLE
from servespec.runtime.installed_engine import InstalledEngine, find_installed_engine
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.probe import hardware_problem
from servespec.runtime.spec_file import base_folder
from servespec.runtime.supervise import OnEvent, Outcome, Task, Verify, serve

_STATE_FOLDER = Path("servespec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One launch: the command with its log, and the folder that keeps its records."""

    command: LaunchCommand
    folder: Path
    ready_timeout_seconds: float


def serving_of(plan: Plan, folder: Path | None) -> Serving:
    """What will be started for ``plan``.

    Raises SpecError where this machine or this lowering cannot serve it.
    """
    problems = tuple(_problems(plan))
    if problems:
        raise SpecError(problems)
    spec = plan.resolution.request.spec
    where = folder or _new_folder(spec.model.id)
    command = LaunchCommand(
        argv=program_path(plan.lowered.argv),
        env={**plan.lowered.env, **_record_variable(plan, where)},
        host=spec.serve.host,
        port=spec.serve.port,
        log_path=(where / "engine.log").absolute(),
        folder=base_folder(plan.resolution.request.source),
    )
    return Serving(command=command, folder=where, ready_timeout_seconds=float(spec.serve.ready_timeout_seconds))


def _record_variable(plan: Plan, folder: Path) -> dict[str, str]:
    return {FOLDER_VARIABLE: str(folder.absolute())} if plan.lowered.lowering is Lowering.EXTENSION else {}


def _problems(plan: Plan) -> Sequence[Diagnostic]:
    request = plan.resolution.request
    hardware = hardware_problem(
        plan.resolution.device, plan.resolution.device_count, request.source.place_of(("hardware", "gpu"))
    )
    if hardware is not None:
        return (hardware,)
    return tuple(_engine_problems(plan))


def _engine_problems(plan: Plan) -> Iterator[Diagnostic]:
    """An installed engine that is not the planned one; that none is installed, its start says."""
    engine, installed = plan.resolution.engine, find_installed_engine()
    if installed is None:
        return
    difference = _difference(engine, installed)
    if difference is not None:
        place = plan.resolution.request.source.place_of(("engine", "version"))
        said = f"the installed {installed.distribution} {installed.version}"
        message = f"{said} is not the {engine.distribution} {engine.version} that was planned for: {difference}"
        help_text = "install that engine, or leave `engine.version` out to plan for the installed one"
        yield R010.at(place, message, help_text)


def _difference(engine: Engine, installed: InstalledEngine) -> str | None:
    """Why ``installed`` is not the planned engine; an unverified plan was asked for all the same."""
    if installed.distribution != engine.distribution:
        return "it is another build"
    differing = installed.digests_that_differ(engine.facts_version) if engine.verified else ()
    return f"{len(differing)} of the functions that the plan relies on differ" if differing else None


def run(
    plan: Plan,
    serving: Serving,
    on_event: OnEvent,
    task: Task | None = None,
    *,
    fail_on_drift: bool = True,
    also_check: Verify = tuple,
) -> Outcome:
    """Starts the engine, holds what it captured against the plan, and stays until it ends.

    The plan lies beside the engine's log. With ``fail_on_drift`` a server that captured something else is stopped.
    What ``also_check`` finds is added.
    """

    def verify() -> tuple[Diagnostic, ...]:
        found = (*_capture_findings(plan, serving), *also_check())
        return found if fail_on_drift else tuple(_as_warning(finding) for finding in found)

    serving.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_reports(serving.folder)
    _write_private(serving.folder / "plan.json", json_text(plan.to_json()))
    return serve(
        serving.command,
        ready_timeout_seconds=serving.ready_timeout_seconds,
        on_event=on_event,
        verify=verify,
        task=task,
    )


def _capture_findings(plan: Plan, serving: Serving) -> tuple[Diagnostic, ...]:
    """From the workers' own reports under the extension; else from the engine's log, which only counts."""
    if plan.lowered.lowering is Lowering.EXTENSION:
        return report_findings(plan, serving.folder)
    return log_findings(plan, serving.command.log_path)


def _as_warning(finding: Diagnostic) -> Diagnostic:
    """The same finding of a rule that does not stop the server."""
    return replace(finding, rule=replace(finding.rule, severity=Severity.WARNING))


def program_path(argv: Sequence[str]) -> tuple[str, ...]:
    """`vllm` and `python` as programs of this environment, so that no other installation is picked up.

    -P keeps the current folder off the import path: a spec may lie in a folder that somebody else filled.
    """
    if argv[0] == "python":
        return (sys.executable, "-P", *argv[1:])
    return (sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", *argv[1:])


def _new_folder(model: str) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = "".join(one if one.isalnum() or one in "-._" else "-" for one in Path(model).name) or "model"
    return state / _STATE_FOLDER / f"{time.strftime('%Y%m%dT%H%M%S')}-{name}-{os.getpid()}"


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)

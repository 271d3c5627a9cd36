"""Serving a plan: is this its machine, can this lowering be launched, then the engine's life until it ends."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from servespec.compiler.engine import Engine
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.facts.relied_on import Use
from servespec.compiler.json_text import json_text
from servespec.compiler.lower import Lowered, Lowering, Statistics
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place, Severity, SpecError, has_errors
from servespec.runtime.capture import Capture
from servespec.runtime.capture_log import log_capture
from servespec.runtime.capture_report import (
    graphs_at_exit,
    rank_names,
    remove_pipes,
    remove_reports,
    report_capture,
    verification_steps,
)
from servespec.runtime.config_rules import R010
from servespec.runtime.device_memory import device_use, not_returned
from servespec.runtime.dispatch_counts import read_counts, remove_counts
from servespec.runtime.dispatch_logger import KEEP_VARIABLE
from servespec.runtime.engine_log import said_numbers, whole_log
from servespec.runtime.extension.report import FOLDER_VARIABLE, report_name
from servespec.runtime.installed_engine import InstalledEngine, find_installed_engine
from servespec.runtime.last_reports import ask_for_last_reports
from servespec.runtime.launch import LaunchCommand
from servespec.runtime.launch_folder import launch_folder, written_in
from servespec.runtime.memory_advice import advised
from servespec.runtime.private_file import write_private
from servespec.runtime.probe import hardware_problem
from servespec.runtime.record import Measured, write_record
from servespec.runtime.spec_file import base_folder
from servespec.runtime.supervise import Event, Outcome, Task, Verify, serve

_STATE_FOLDER = Path("servespec")
_PLUGIN_FOLDER = Path(__file__).with_name("engine_plugin")


@dataclass(frozen=True, slots=True)
class Checked:
    """The server answers, and what it captured was held against the plan."""

    capture: Capture


LaunchEvent = Event | Checked
OnLaunchEvent = Callable[[LaunchEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One launch: the command with its log, and the folder that keeps its records."""

    command: LaunchCommand
    folder: Path
    ready_timeout_seconds: float


def serving_of(plan: Plan, folder: Path | None, uses: frozenset[Use] = frozenset()) -> Serving:
    """What will be started for ``plan``; ``uses`` rely on more of the engine than its serving does.

    Raises SpecError where this machine or this lowering cannot serve it.
    """
    problems = tuple(_problems(plan, uses | _uses_of(plan)))
    if problems:
        raise SpecError(problems)
    spec = plan.resolution.request.spec
    where = folder or _new_folder(spec.model.id)
    command = LaunchCommand(
        argv=program_path(plan.lowered.argv),
        env={**plan.lowered.env, FOLDER_VARIABLE: str(where.absolute()), **_plugin_variables(plan.lowered)},
        host=spec.serve.host,
        port=spec.serve.port,
        tls=plan.lowered.is_tls,
        log_path=(where / "engine.log").absolute(),
        folder=base_folder(plan.resolution.request.source),
    )
    return Serving(command=command, folder=where, ready_timeout_seconds=float(spec.serve.ready_timeout_seconds))


def _plugin_variables(lowered: Lowered) -> dict[str, str]:
    """What makes the engine find the plug-in that counts its steps; nothing where it has no statistics to count."""
    if lowered.statistics is Statistics.OFF:
        return {}
    given = lowered.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    # An empty entry would be the current folder.
    search_path = [str(_PLUGIN_FOLDER), *filter(None, [given])]
    keeps = {KEEP_VARIABLE: "1"} if lowered.statistics is Statistics.SPEC else {}
    return {"PYTHONPATH": os.pathsep.join(search_path), **keeps}


def _uses_of(plan: Plan) -> frozenset[Use]:
    uses = {Use.REMEDIES} if plan.lowered.remedies else set()
    return frozenset(uses | ({Use.LOAD_AWARE} if plan.resolution.frame.follows_load else set()))


def _problems(plan: Plan, uses: frozenset[Use]) -> Sequence[Diagnostic]:
    request = plan.resolution.request
    hardware = hardware_problem(
        plan.resolution.device, plan.resolution.device_count, request.source.place_of(("hardware", "gpu"))
    )
    if hardware is not None:
        return (hardware,)
    return tuple(_engine_problems(plan, uses))


def _engine_problems(plan: Plan, uses: frozenset[Use]) -> Iterator[Diagnostic]:
    """An installed engine that is not the planned one; that none is installed, its start says."""
    engine, installed = plan.resolution.engine, find_installed_engine()
    if installed is None:
        return
    difference = _difference(engine, installed, uses)
    if difference is not None:
        place = plan.resolution.request.source.place_of(("engine", "version"))
        said = f"the installed {installed.distribution} {installed.version}"
        message = f"{said} is not the {engine.distribution} {engine.version} that was planned for: {difference}"
        help_text = "install that engine, or leave `engine.version` out to plan for the installed one"
        yield R010.at(place, message, help_text)


def _difference(engine: Engine, installed: InstalledEngine, uses: frozenset[Use]) -> str | None:
    """Why ``installed`` is not the planned engine; an unverified plan was asked for all the same."""
    if installed.distribution != engine.distribution:
        return "it is another build"
    differing = installed.digests_that_differ(engine.facts_version, uses) if engine.verified else ()
    return f"{len(differing)} of the functions that the plan relies on differ" if differing else None


def run(
    plan: Plan,
    serving: Serving,
    on_event: OnLaunchEvent,
    task: Task | None = None,
    *,
    fail_on_drift: bool = True,
    also_check: Verify = tuple,
) -> Outcome:
    """Starts the engine, holds what it captured against the plan, and stays until it ends.

    The plan and the record lie beside the engine's log.  With ``fail_on_drift`` a server that captured something else
    is stopped.  What ``also_check`` finds is added.  Raises SpecError where the folder cannot be used.
    """
    with launch_folder(serving.folder):
        with written_in(serving.folder):
            _empty(serving.folder)
            write_private(serving.folder / "plan.json", json_text(plan.to_json()))
        return _live(_Launch(plan, serving, on_event, fail_on_drift, also_check), task)


def _empty(folder: Path) -> None:
    """Of what an earlier launch left, so that none of it is taken for this one's."""
    remove_reports(folder)
    remove_counts(folder)


def _live(launch: "_Launch", task: Task | None) -> Outcome:
    """One launch from its start to its end, in a folder of its own."""
    plan, serving = launch.plan, launch.serving
    gpus = 0 if is_cpu(plan.resolution.device) else plan.resolution.device_count
    before = device_use(gpus) if gpus else None
    reports = [serving.folder / name for name in rank_names(plan, report_name)]
    try:
        outcome = serve(
            serving.command,
            ready_timeout_seconds=serving.ready_timeout_seconds,
            on_event=launch.on_event,
            verify=launch.check,
            task=task,
            before_stop=partial(ask_for_last_reports, reports),
        )
    finally:
        # Workers that were killed have left theirs.
        with suppress(OSError):
            remove_pipes(serving.folder)
    return launch.end(outcome, not_returned(before, gpus, outcome.engine_pid, Place(str(outcome.log_path))))


@dataclass(slots=True)
class _Launch:
    """One launch and what is known of it; ``measured`` is recorded once it answers, and again once it has ended."""

    plan: Plan
    serving: Serving
    on_event: OnLaunchEvent
    fail_on_drift: bool
    also_check: Verify
    measured: Measured = field(default_factory=lambda: Measured(started=time.time()))

    def check(self) -> tuple[Diagnostic, ...]:
        """Of a server that answers: what was captured otherwise than planned."""
        capture = _capture(self.plan, self.serving)
        said = said_numbers(whole_log(self.serving.command.log_path))
        every = (*capture.findings, *self.also_check())
        found = every if self.fail_on_drift else tuple(map(_as_warning, every))
        ready = None if has_errors(found) else time.time()
        self.measured = replace(self.measured, capture=capture, said=said, ready=ready, findings=found)
        self.on_event(Checked(capture))
        return (*found, *self._record())

    def end(self, outcome: Outcome, held_memory: tuple[Diagnostic, ...]) -> Outcome:
        """``outcome`` with what the check found and let pass, and with what shows only once every process is gone."""
        folder = self.serving.folder
        told = (advised(finding, self.plan, folder, outcome.log_path) for finding in outcome.diagnostics)
        at_exit, changes = graphs_at_exit(self.plan, folder)
        found = tuple(dict.fromkeys((*self.measured.findings, *told, *held_memory, *changes)))
        self.measured = replace(
            self.measured,
            at_exit=at_exit,
            ended=time.time(),
            exit_code=outcome.exit_code,
            counts=read_counts(folder),
            verification=verification_steps(self.plan, folder),
            findings=found,
        )
        return replace(outcome, diagnostics=(*found, *self._record()))

    def _record(self) -> tuple[Diagnostic, ...]:
        return write_record(self.serving.folder, self.plan, self.measured)


def _capture(plan: Plan, serving: Serving) -> Capture:
    """From the workers' own reports under the extension; else from the engine's log, which only counts."""
    if plan.lowered.lowering is Lowering.EXTENSION:
        return report_capture(plan, serving.folder)
    return log_capture(plan, serving.command.log_path)


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

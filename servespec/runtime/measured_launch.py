"""An engine started as `serve` would, whose workers measure before it is ready, and which is stopped after it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servespec.compiler.extension import extension_obstacles
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.facts.relied_on import Use
from servespec.compiler.lower import Lowering
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Rule, SpecError
from servespec.runtime.capture_report import rank_names
from servespec.runtime.machine_paths import without_machine_paths
from servespec.runtime.run_rules import EXIT_LAUNCH_FAILED
from servespec.runtime.serving import OnLaunchEvent, run, serving_of
from servespec.runtime.supervise import Outcome
from servespec.schema.spec import ServingSpec

Json = dict[str, Any]

FileName = Callable[[int, int], str]
"""Of a worker's file, from its data-parallel replica and its rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What workers do once their graphs are captured, and what is made of the files that they leave.

    ``variables`` tell the workers to do it.  ``without_extension`` refuses a plan that is lowered otherwise, and
    ``does`` says in it what the extension would do.  ``has_measured`` tells a document that holds anything from one of
    a launch that came to nothing.
    """

    variables: Mapping[str, str]
    file_name: FileName
    without_extension: Rule
    does: str
    findings_of: Callable[[Plan, Path], Iterable[Diagnostic]]
    document_of: Callable[[Plan, Path, Iterable[Diagnostic]], Json]
    has_measured: Callable[[Json], bool]


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """How the launch ended, and the document of what was measured, if anything was."""

    outcome: Outcome
    document: Json
    has_measured: bool


def launch_and_measure(
    plan: Plan, measurement: Measurement, folder: Path | None, on_event: OnLaunchEvent
) -> MeasuredLaunch:
    """Starts the engine of ``plan``, waits for what its workers measure, and stops it.

    Raises SpecError where this machine or this lowering cannot serve it.
    """
    if plan.lowered.lowering is not Lowering.EXTENSION:
        raise SpecError((_needs_extension(plan, measurement),))
    serving = serving_of(plan, folder, frozenset({Use.MEASURING}))
    command = replace(serving.command, env={**serving.command.env, **measurement.variables})
    paths = [serving.folder / one for one in rank_names(plan, measurement.file_name)]
    outcome = run(
        plan,
        replace(serving, command=command),
        on_event,
        _nothing_to_ask,
        also_check=lambda: tuple(measurement.findings_of(plan, serving.folder)),
    )
    if outcome.exit_code == EXIT_LAUNCH_FAILED and any(path.is_file() for path in paths):
        # What the workers saw before the end says more than the end.
        seen = measurement.findings_of(plan, serving.folder)
        outcome = replace(outcome, diagnostics=(*outcome.diagnostics, *seen))
    document = measurement.document_of(plan, serving.folder, outcome.diagnostics)
    return MeasuredLaunch(outcome, without_machine_paths(document, serving.folder), measurement.has_measured(document))


def _needs_extension(plan: Plan, measurement: Measurement) -> Diagnostic:
    path, because, help_text = _why_without(plan)
    message = f"{because}, and {measurement.does} by the worker extension"
    return measurement.without_extension.at(plan.resolution.request.source.place_of(path), message, help_text)


def _why_without(plan: Plan) -> tuple[tuple[str, ...], str, str]:
    """Where a plan has no extension: the place, why, and what helps, which is not to ask for it where it cannot be."""
    if is_cpu(plan.resolution.device):
        return ("hardware", "gpu"), "a CPU captures no graphs", "run it on a GPU, which `hardware.gpu` names"
    if plan.resolution.frame.mode is CudaGraphMode.NONE:
        path, help_text = _graphs_again(plan.resolution.request.spec)
        return path, "this plan captures no graphs", help_text
    obstacle = next(extension_obstacles(plan.resolution), None)
    if obstacle is not None:
        return obstacle.path, obstacle.message, "compare whole servers by `servespec bench`"
    because = f"this plan is lowered by `{plan.lowered.lowering}`"
    return ("engine", "lowering"), because, "write `lowering: extension` below `engine`"


def _graphs_again(spec: ServingSpec) -> tuple[tuple[str, ...], str]:
    """What took the graphs of a plan away, and how they come back."""
    if spec.model.enforce_eager:
        return ("model", "enforce_eager"), "delete `enforce_eager`"
    if spec.compilation.cudagraph_mode is not None:
        return ("compilation", "cudagraph_mode"), "delete `cudagraph_mode`"
    return ("compilation", "cudagraph_mode"), "`servespec plan` says what takes them away"


def _nothing_to_ask(_url: str) -> None:
    """A task that is done as soon as the server is ready."""


def worker_results(plan: Plan, folder: Path, name: FileName) -> Mapping[str, Json | None]:
    """Each worker's result by its file's name; None where it left none."""
    paths = {one: folder / one for one in rank_names(plan, name)}
    return {one: json.loads(path.read_text("utf-8")) if path.is_file() else None for one, path in paths.items()}

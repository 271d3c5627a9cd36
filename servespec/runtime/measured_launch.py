"""An engine started as `serve` would, whose workers measure before it is ready, and which is stopped after it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servespec.compiler.facts.relied_on import Use
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic
from servespec.runtime.capture_report import rank_names
from servespec.runtime.run_rules import EXIT_LAUNCH_FAILED
from servespec.runtime.serving import OnLaunchEvent, run, serving_of
from servespec.runtime.supervise import Outcome

FileName = Callable[[int, int], str]
"""Of a worker's file, from its data-parallel replica and its rank."""


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """How the launch ended, and where its workers' files lie."""

    outcome: Outcome
    folder: Path


def launch_and_measure(
    plan: Plan,
    folder: Path | None,
    on_event: OnLaunchEvent,
    variables: Mapping[str, str],
    name: FileName,
    findings_in: Callable[[Path], Iterable[Diagnostic]],
) -> MeasuredLaunch:
    """The launch of ``plan`` with ``variables`` that make its workers leave files; what is found there is added.

    Raises SpecError where this machine or this lowering cannot serve it.
    """
    serving = serving_of(plan, folder, frozenset({Use.MEASURING}))
    command = replace(serving.command, env={**serving.command.env, **variables})
    paths = [serving.folder / one for one in rank_names(plan, name)]
    for path in paths:
        path.unlink(missing_ok=True)
    outcome = run(
        plan,
        replace(serving, command=command),
        on_event,
        _nothing_to_ask,
        also_check=lambda: tuple(findings_in(serving.folder)),
    )
    if outcome.exit_code == EXIT_LAUNCH_FAILED and any(path.is_file() for path in paths):
        # What the workers saw before the end says more than the end.
        outcome = replace(outcome, diagnostics=(*outcome.diagnostics, *findings_in(serving.folder)))
    return MeasuredLaunch(outcome, serving.folder)


def _nothing_to_ask(_url: str) -> None:
    """A task that is done as soon as the server is ready."""


def worker_results(plan: Plan, folder: Path, name: FileName) -> Mapping[str, dict[str, Any] | None]:
    """Each worker's result by its file's name; None where it left none."""
    paths = {one: folder / one for one in rank_names(plan, name)}
    return {one: json.loads(path.read_text("utf-8")) if path.is_file() else None for one, path in paths.items()}

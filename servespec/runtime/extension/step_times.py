"""Times steps with and without graphs, in a worker, before the server is ready."""

import json
import os
from dataclasses import dataclass
from typing import Any, Final

from servespec.runtime.extension.batch_results import (
    BatchResults,
    Note,
    Write,
    each_batch,
    measure_after_warm_up,
    run_batches,
)
from servespec.runtime.extension.captured_shapes import captured_shapes
from servespec.runtime.extension.graph_choice import GraphChoice
from servespec.runtime.extension.report import managers_of_runner
from servespec.runtime.extension.step_batches import Batch, Limits, is_within
from servespec.runtime.extension.step_clock import step_clock
from servespec.runtime.extension.step_engine import Json
from servespec.runtime.extension.step_times_batches import Wanted, timed_batches
from servespec.runtime.extension.timed_engine import TimedEngine

STEPS_VARIABLE: Final = "SERVESPEC_STEPS"
"""What to time, as JSON; each worker then times it once its graphs are captured."""


def step_times_name(data_parallel_rank: int, rank: int) -> str:
    return f"steps-{data_parallel_rank}-{rank}.json"


def time_after_warm_up(worker: Any, sha256: str) -> None:
    """Makes the worker's warm-up end with timed steps, where the variables ask for them."""
    asked = os.environ.get(STEPS_VARIABLE)
    if asked:
        result = StepTimes(sha256=sha256, wanted=Wanted.from_json(json.loads(asked)))
        measure_after_warm_up(worker, step_times_name, result, time_steps)


@dataclass(slots=True, kw_only=True)
class StepTimes(BatchResults):
    """Beside the batches: what was asked for."""

    FINDS = "modes"

    wanted: Wanted

    def to_json(self) -> Json:
        return {**BatchResults.to_json(self), "wanted": self.wanted.to_json()}


def time_steps(worker: Any, result: StepTimes, write: Write[StepTimes]) -> None:
    """Times every batch; ``result`` is written after each.

    Raises what the engine raised where it cannot go on after a fault.
    """
    runner = worker.model_runner

    def run(limits: Limits, note: Note) -> None:
        managers = list(managers_of_runner(runner))
        batches = timed_batches(captured_shapes(managers), limits, result.wanted)
        with step_clock(runner) as clock:
            engine = TimedEngine(worker, limits, GraphChoice(managers), clock)
            each_batch(engine, batches, result, note, lambda batch: _timed(engine, batch, result.wanted))

    run_batches(worker, result, write, run)


def _timed(engine: TimedEngine, batch: Batch, wanted: Wanted) -> Json:
    if not is_within(batch, engine.limits):
        return {"because": "it is more than the engine takes in one step"}
    modes = engine.times(batch, wanted.repeats, served_only=wanted.served_only)
    return {"modes": [mode.to_json() for mode in modes], "because": None if modes else "no graph takes it"}

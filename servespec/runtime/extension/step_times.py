"""Times steps with and without graphs, in a worker, before the server is ready; the result as a file of its own.

The file is written after each batch, because a fault on the device ends the process.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from servespec.runtime.extension.captured_shapes import captured_shapes
from servespec.runtime.extension.graph_choice import GraphChoice
from servespec.runtime.extension.report import managers_of_runner, own_path
from servespec.runtime.extension.step_batches import Batch, is_within
from servespec.runtime.extension.step_clock import step_clock
from servespec.runtime.extension.step_engine import (
    FAULTS,
    Json,
    after_warm_up,
    batch_json,
    limits_of,
    quiet,
    reason_against,
    told,
)
from servespec.runtime.extension.step_requests import TooFewBlocksError
from servespec.runtime.extension.step_times_batches import Wanted, timed_batches
from servespec.runtime.extension.timed_engine import TimedEngine
from servespec.runtime.private_file import write_private

STEPS_VARIABLE: Final = "SERVESPEC_STEPS"
"""What to time, as JSON; each worker then times it once its graphs are captured."""


def step_times_name(data_parallel_rank: int, rank: int) -> str:
    return f"steps-{data_parallel_rank}-{rank}.json"


def time_after_warm_up(worker: Any, sha256: str) -> None:
    """Makes the worker's warm-up end with timed steps, where the variables ask for them."""
    path, asked = own_path(worker, step_times_name), os.environ.get(STEPS_VARIABLE)
    if not asked or path is None:
        return
    result = StepTimes(sha256=sha256, wanted=Wanted.from_json(json.loads(asked)))

    def write(known: StepTimes) -> None:
        write_private(path, json.dumps(known.to_json()))

    after_warm_up(worker, lambda: time_steps(worker, result, write))


@dataclass(slots=True, kw_only=True)
class StepTimes:
    """What is known so far; it grows batch by batch."""

    sha256: str
    wanted: Wanted
    seconds: float = 0.0
    complete: bool = False
    refused: str | None = None
    batches: list[Json] = field(default_factory=list)

    def to_json(self) -> Json:
        return {
            "format": 1,
            "sha256": self.sha256,
            "complete": self.complete,
            "seconds": round(self.seconds, 1),
            "refused": self.refused,
            "wanted": self.wanted.to_json(),
            "batches": self.batches,
        }


def time_steps(worker: Any, result: StepTimes, write: Callable[[StepTimes], None]) -> None:
    """Times every batch; ``result`` is written after each.

    Raises what the engine raised where it cannot go on after a fault.
    """
    import torch

    runner, began = worker.model_runner, time.perf_counter()
    result.refused = reason_against(runner)
    write(result)
    if result.refused is not None:
        return
    limits, managers = limits_of(runner), list(managers_of_runner(runner))
    batches = timed_batches(captured_shapes(managers), limits, result.wanted)
    with torch.inference_mode(), quiet(runner), step_clock(runner) as clock:
        engine = TimedEngine(worker, limits, GraphChoice(managers), clock)
        for batch in batches:
            if result.batches and result.batches[-1]["error"] is not None:
                # Written before, because it raises where the device is lost.
                engine.abandon()
            result.batches.append(_timed(engine, batch, result.wanted.repeats))
            result.seconds = time.perf_counter() - began
            write(result)
    result.complete = True
    write(result)


def _timed(engine: TimedEngine, batch: Batch, repeats: int) -> Json:
    document: Json = {**batch_json(batch), "modes": []}
    if not is_within(batch, engine.limits):
        return {**document, "because": "it is more than the engine takes in one step"}
    try:
        modes = engine.times(batch, repeats)
        document["modes"] = [mode.to_json() for mode in modes]
        document["because"] = None if modes else "no graph takes it"
    except TooFewBlocksError as refusal:
        document["because"] = str(refusal)
    except FAULTS as fault:
        document["error"] = told(fault)
    return document

"""Batches run one by one in a worker that serves nobody yet, and what is known of them so far as a file of its own.

The file is written after each batch, because a fault on the device ends the process.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from servespec.runtime.extension.report import own_path
from servespec.runtime.extension.step_batches import Batch, Limits
from servespec.runtime.extension.step_engine import (
    FAULTS,
    Json,
    StepEngine,
    after_warm_up,
    batch_json,
    limits_of,
    quiet,
    reason_against,
    told,
)
from servespec.runtime.extension.step_requests import TooFewBlocksError
from servespec.runtime.private_file import write_private


@dataclass(slots=True, kw_only=True)
class BatchResults:
    """What is known so far; it grows batch by batch.  ``refused`` is why no batch can be run in this engine.

    ``FINDS`` names the list in a batch's document that holds what was found.
    """

    FINDS: ClassVar[str]

    sha256: str
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
            "batches": self.batches,
        }

    def add(self, batch: Batch, found: Json) -> None:
        self.batches.append({**batch_json(batch), self.FINDS: [], **found})


Known = TypeVar("Known", bound=BatchResults)
Write = Callable[[Known], None]
Note = Callable[[], None]
"""Writes the results as they are now."""


def measure_after_warm_up(
    worker: Any, name: Callable[[int, int], str], results: Known, measure: Callable[[Any, Known, Write[Known]], None]
) -> None:
    """Makes the worker's warm-up end with ``measure``, its results in the worker's own file, where it has a folder."""
    path = own_path(worker, name)
    if path is None:
        return

    def write(known: Known) -> None:
        write_private(path, json.dumps(known.to_json()))

    after_warm_up(worker, lambda: measure(worker, results, write))


def run_batches(worker: Any, results: Known, write: Write[Known], run: Callable[[Limits, Note], None]) -> None:
    """Lets ``run`` fill ``results`` while nothing else sees its requests; not at all where the engine cannot.

    Raises what the engine raised where it cannot go on after a fault.
    """
    import torch

    runner, began = worker.model_runner, time.perf_counter()

    def note() -> None:
        results.seconds = time.perf_counter() - began
        write(results)

    results.refused = reason_against(runner)
    note()
    if results.refused is not None:
        return
    with torch.inference_mode(), quiet(runner):
        run(limits_of(runner), note)
    results.complete = True
    note()


def each_batch(
    engine: StepEngine, batches: Iterable[Batch], results: BatchResults, note: Note, measure: Callable[[Batch], Json]
) -> None:
    """What ``measure`` says of each batch, or why it says nothing; noted after each."""
    for batch in batches:
        if results.batches and results.batches[-1]["error"] is not None:
            # Noted before, because it raises where the device is lost.
            engine.abandon()
        results.add(batch, _measured(batch, measure))
        note()


def _measured(batch: Batch, measure: Callable[[Batch], Json]) -> Json:
    try:
        return measure(batch)
    except TooFewBlocksError as refusal:
        return {"because": str(refusal)}
    except FAULTS as fault:
        return {"error": told(fault)}

"""Every captured graph against eager, in a worker, before the server is ready."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from servespec.runtime.extension.batch_results import (
    BatchResults,
    Note,
    Write,
    each_batch,
    measure_after_warm_up,
    run_batches,
)
from servespec.runtime.extension.captured_shapes import CapturedShape, captured_shapes
from servespec.runtime.extension.replay_batches import batches_for
from servespec.runtime.extension.replay_comparison import compare
from servespec.runtime.extension.replay_eager import graph_switch
from servespec.runtime.extension.replay_steps import Continuations, ReplayEngine, Run, StepRecord
from servespec.runtime.extension.report import managers_of_runner
from servespec.runtime.extension.step_batches import Batch, Limits
from servespec.runtime.extension.step_engine import FAULTS, Json, told
from servespec.runtime.extension.step_requests import TooFewBlocksError

VERIFY_VARIABLE: Final = "SERVESPEC_VERIFY"
"""Set to 1 it makes each worker replay its graphs once they are captured."""


def verified_name(data_parallel_rank: int, rank: int) -> str:
    return f"verified-{data_parallel_rank}-{rank}.json"


def replay_after_warm_up(worker: Any, sha256: str) -> None:
    """Makes the worker's warm-up end with a replay, where the variables ask for one."""
    if os.environ.get(VERIFY_VARIABLE) == "1":
        measure_after_warm_up(worker, verified_name, Result(sha256=sha256), replay)


@dataclass(slots=True, kw_only=True)
class Result(BatchResults):
    """Beside the batches: every captured graph, and how speculation fared in them."""

    FINDS = "steps"

    shapes: tuple[CapturedShape, ...] = ()
    speculation: Json = field(default_factory=dict)

    def to_json(self) -> Json:
        own = {"shapes": [list(shape) for shape in self.shapes], "speculation": self.speculation}
        return {**BatchResults.to_json(self), **own}


def replay(worker: Any, result: Result, write: Write[Result]) -> None:
    """Runs every batch with graphs and twice eagerly; ``result`` is written after each.

    Raises what the engine raised where it cannot go on after a fault.
    """
    runner = worker.model_runner
    result.shapes = captured_shapes(managers_of_runner(runner))

    def run(limits: Limits, note: Note) -> None:
        batches = batches_for(result.shapes, limits)
        with graph_switch(runner) as switch:
            engine = ReplayEngine(worker, limits, switch)
            said = _continuations(engine, batches, result)
            each_batch(engine, batches, result, note, lambda batch: _replayed(engine, batch, said, result))

    run_batches(worker, result, write, run)


def _continuations(engine: ReplayEngine, batches: Sequence[Batch], result: Result) -> Continuations:
    """Of as many requests as the widest batch that the KV cache holds; none without speculation."""
    if engine.limits.drafts == 0:
        result.speculation = {"applies": False, "because": "the spec has no speculation"}
        return {}
    if engine.runner.speculative_config.rejection_sample_method == "synthetic":
        because = "synthetic acceptance takes drafts that the target would not say"
        result.speculation = {"applies": False, "because": because}
    else:
        result.speculation = {"applies": True, "because": None, "requests": 0, "equal": 0}
    for count in sorted({len(batch.decodes) for batch in batches} - {0}, reverse=True):
        try:
            return engine.continuations(count)
        except TooFewBlocksError:
            continue
        except FAULTS as fault:
            result.add(Batch(decodes=(1,) * count), {"error": told(fault)})
            return {}
    return {}


def _replayed(engine: ReplayEngine, batch: Batch, said: Continuations, result: Result) -> Json:
    graphs = engine.run(batch, said)
    eager = engine.run(batch, said, graphs)
    again = engine.run(batch, said, graphs)
    steps = [_step_json(*of_step) for of_step in zip(graphs.steps, eager.steps, again.steps, strict=True)]
    _count_speculation(graphs, said, result.speculation)
    return {"steps": steps}


def _step_json(graphs: StepRecord, eager: StepRecord, again: StepRecord) -> Json:
    return {
        "shapes": [list(shape) for shape in graphs.replayed],
        "accepted": {"graphs": graphs.accepted, "eager": eager.accepted},
        "target": _compared(graphs.target, eager.target, again.target),
        "drafter": _compared(graphs.drafter, eager.drafter, again.drafter),
    }


def _compared(graphs: Mapping[str, Any], eager: Mapping[str, Any], again: Mapping[str, Any]) -> Json:
    return {name: asdict(compare(one, eager[name], again[name])) for name, one in graphs.items()}


def _count_speculation(graphs: Run, said: Continuations, speculation: Json) -> None:
    """How many requests said with speculation, from graphs, what they say without it."""
    if not speculation["applies"]:
        return
    for name, tokens in graphs.emitted.items():
        if name in said:
            speculation["requests"] += 1
            speculation["equal"] += tuple(said[name][: len(tokens)]) == tokens

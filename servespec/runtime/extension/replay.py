"""Every captured graph against eager, in a worker, before the server is ready; the result as a file of its own.

The file is written after each batch, because a fault on the device ends the process.
Source: vllm/v1/worker/gpu_worker.py: Worker.compile_or_warm_up_model.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from servespec.runtime.extension.captured_shapes import CapturedShape, captured_shapes
from servespec.runtime.extension.replay_batches import batches_for
from servespec.runtime.extension.replay_comparison import compare
from servespec.runtime.extension.replay_eager import graph_switch
from servespec.runtime.extension.replay_steps import Continuations, ReplayEngine, Run, StepRecord
from servespec.runtime.extension.report import managers_of_runner, own_path
from servespec.runtime.extension.step_batches import Batch
from servespec.runtime.extension.step_engine import (
    FAULTS,
    after_warm_up,
    batch_json,
    limits_of,
    quiet,
    reason_against,
    told,
)
from servespec.runtime.extension.step_requests import TooFewBlocksError
from servespec.runtime.private_file import write_private

VERIFY_VARIABLE: Final = "SERVESPEC_VERIFY"
"""Set to 1 it makes each worker replay its graphs once they are captured."""

Json = dict[str, Any]


def verified_name(data_parallel_rank: int, rank: int) -> str:
    return f"verified-{data_parallel_rank}-{rank}.json"


def replay_after_warm_up(worker: Any, sha256: str) -> None:
    """Makes the worker's warm-up end with a replay, where the variables ask for one."""
    path = own_path(worker, verified_name)
    if os.environ.get(VERIFY_VARIABLE) != "1" or path is None:
        return
    result = Result(sha256=sha256)
    after_warm_up(worker, lambda: replay(worker, result, lambda one: write_private(path, json.dumps(one.to_json()))))


@dataclass(slots=True, kw_only=True)
class Result:
    """What is known so far; it grows batch by batch."""

    sha256: str
    seconds: float = 0.0
    complete: bool = False
    shapes: tuple[CapturedShape, ...] = ()
    batches: list[Json] = field(default_factory=list)
    speculation: Json = field(default_factory=dict)
    refused: str | None = None

    def to_json(self) -> Json:
        return {
            "format": 1,
            "sha256": self.sha256,
            "complete": self.complete,
            "seconds": round(self.seconds, 1),
            "refused": self.refused,
            "shapes": [list(shape) for shape in self.shapes],
            "speculation": self.speculation,
            "batches": self.batches,
        }


def replay(worker: Any, result: Result, write: Callable[[Result], None]) -> None:
    """Runs every batch with graphs and twice eagerly; ``result`` is written after each.

    Raises what the engine raised where it cannot go on after a fault.
    """
    import torch

    runner, began = worker.model_runner, time.perf_counter()
    result.shapes = captured_shapes(managers_of_runner(runner))
    result.refused = reason_against(runner)
    write(result)
    if result.refused is not None:
        return
    limits = limits_of(runner)
    batches = batches_for(result.shapes, limits)
    with torch.inference_mode(), quiet(runner), graph_switch(runner) as switch:
        engine = ReplayEngine(worker, limits, switch)
        said = _continuations(engine, batches, result)
        for batch in batches:
            if result.batches and result.batches[-1]["error"] is not None:
                # Written before, because it raises where the device is lost.
                engine.abandon()
            result.batches.append(_replayed(engine, batch, said, result))
            result.seconds = time.perf_counter() - began
            write(result)
    result.complete = True
    write(result)


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
            result.batches.append({**_batch_json(Batch(decodes=(1,) * count)), "error": told(fault)})
            return {}
    return {}


def _replayed(engine: ReplayEngine, batch: Batch, said: Continuations, result: Result) -> Json:
    document = _batch_json(batch)
    try:
        graphs = engine.run(batch, said)
        eager = engine.run(batch, said, graphs)
        again = engine.run(batch, said, graphs)
        document["steps"] = [
            _step_json(*of_step) for of_step in zip(graphs.steps, eager.steps, again.steps, strict=True)
        ]
        _count_speculation(graphs, said, result.speculation)
    except TooFewBlocksError as refusal:
        document["because"] = str(refusal)
    except FAULTS as fault:
        document["error"] = told(fault)
    return document


def _batch_json(batch: Batch) -> Json:
    return {**batch_json(batch), "steps": []}


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

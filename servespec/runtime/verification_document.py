"""What the workers found in their replay, folded into one document: a verdict for each graph, rows, sums.

A graph counts as the worst that any worker saw of it.  ``VERIFICATION_SCHEMA`` is published beside the plan's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from servespec import __version__
from servespec.compiler.graphs.hand_off import manager_class
from servespec.compiler.graphs.managers import GraphFrame, managers_of
from servespec.compiler.json_shapes import COUNT, MAYBE_TEXT, TEXT, closed_object
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic
from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.replay import verified_name
from servespec.runtime.machine import MADE_ON, made_on, this_command
from servespec.runtime.measured_launch import worker_results

Json = dict[str, Any]
RowKey = tuple[str, str, int]
"""Runner, routine, and query length, 0 where graphs take any."""

VERIFICATION_FORMAT: Final = 1


class Verdict(IntEnum):
    """Of one graph; the worse, the larger."""

    NOT_REPLAYED = 0
    EQUAL = 1
    NOT_DETERMINISTIC = 2
    DIFFERS = 3


@dataclass(slots=True)
class Judged:
    """One graph over all steps and workers; ``outputs`` holds the largest difference of each output that has one."""

    verdict: Verdict = Verdict.NOT_REPLAYED
    steps: int = 0
    outputs: dict[str, Json] = field(default_factory=dict)

    def take(self, compared: Mapping[str, Json]) -> None:
        self.steps += 1
        for name, one in compared.items():
            self.verdict = max(self.verdict, verdict_of(one))
            known = self.outputs.get(name)
            if not one["equal"] and (known is None or one["largest_absolute"] >= known["largest_absolute"]):
                self.outputs[name] = one


def verdict_of(compared: Json) -> Verdict:
    if compared["equal"]:
        return Verdict.EQUAL
    return Verdict.DIFFERS if compared["eager_reproduces"] else Verdict.NOT_DETERMINISTIC


def judged_shapes(results: Iterable[Json]) -> Mapping[CapturedShape, Judged]:
    """Every graph that a worker captured."""
    judged: dict[CapturedShape, Judged] = {}
    for result in results:
        for shape in result["shapes"]:
            judged.setdefault(CapturedShape(*shape), Judged())
        for batch in result["batches"]:
            for step in batch["steps"]:
                for shape in map(_captured, step["shapes"]):
                    judged.setdefault(shape, Judged()).take(step["target" if shape.is_target else "drafter"])
    return judged


def _captured(row: Sequence[Any]) -> CapturedShape:
    return CapturedShape(*row)


def row_of(frame: GraphFrame, shape: CapturedShape) -> RowKey:
    """The row of the plan that a graph belongs to, as far as the plan knows its manager."""
    for manager in managers_of(frame):
        if (manager_class(frame, manager), manager.query_len) == (shape.manager, shape.manager_query_len):
            is_bounded = bool(shape.query_len or shape.max_query_len)
            # Where one graph serves every step, microbatch twins alone have a query length, and it is of the same row.
            is_decode = manager.mixed is None or (is_bounded and manager.mode.separate_routine())
            fixed = manager.fixed if shape.query_len else None
            routine = (fixed or manager.decode) if is_decode else manager.mixed
            return (str(manager.runner), str(routine), shape.query_len or shape.max_query_len)
    return ("engine", shape.manager, shape.query_len)


def rows_of_shapes(
    frame: GraphFrame, judged: Mapping[CapturedShape, Judged]
) -> Mapping[RowKey, Mapping[CapturedShape, Judged]]:
    rows: dict[RowKey, dict[CapturedShape, Judged]] = {}
    for shape, one in judged.items():
        rows.setdefault(row_of(frame, shape), {})[shape] = one
    return rows


def gap_reason(shape: CapturedShape, results: Iterable[Json]) -> str:
    """Why a graph was not replayed."""
    every = list(results)
    refused = next((result["refused"] for result in every if result["refused"] is not None), None)
    if refused is not None:
        return str(refused)
    if shape.active_loras:
        return "the replay's requests have no LoRA adapters"
    if shape.ubatches > 1:
        return "the replay does not divide its batches"
    for batch in (batch for result in every for batch in result["batches"]):
        if batch["because"] is not None and batch["tokens"] <= shape.tokens:
            return str(batch["because"])
    return "no batch of the replay came to them"


def row_name(key: RowKey) -> str:
    runner, routine, query_len = key
    return f"{runner} {routine}" + (f" q={query_len}" if query_len else "")


def document_of(plan: Plan, folder: Path, findings: Iterable[Diagnostic]) -> Json:
    """In the form of ``VERIFICATION_SCHEMA``."""
    results = worker_results(plan, folder, verified_name)
    present = [result for result in results.values() if result is not None]
    rows = rows_of_shapes(plan.resolution.frame, judged_shapes(present))
    return {
        "format": VERIFICATION_FORMAT,
        "servespec": __version__,
        **made_on(this_command()),
        "spec_text": plan.resolution.request.source.text,
        "engine": {"name": "vllm", "version": plan.resolution.engine.version},
        "folder": str(folder),
        "workers": {"expected": len(results), "complete": sum(result["complete"] for result in present)},
        "seconds": max((result["seconds"] for result in present), default=0.0),
        "rows": [_row_json(key, shapes, present) for key, shapes in rows.items()],
        "acceptance": _acceptance(present),
        "speculation": present[0]["speculation"] if present else {},
        "failures": list(_failed_batches(results)),
        "diagnostics": [finding.to_json() for finding in findings],
    }


def has_replayed(document: Json) -> bool:
    """Whether any graph was replayed."""
    return any(row["graphs"] > row["not_replayed"] for row in document["rows"])


def _row_json(key: RowKey, shapes: Mapping[CapturedShape, Judged], results: Sequence[Json]) -> Json:
    counts = Counter(one.verdict for one in shapes.values())
    runner, routine, query_len = key
    return {
        "runner": runner,
        "routine": routine,
        "query_len": query_len or None,
        "graphs": len(shapes),
        **{verdict.name.lower(): counts[verdict] for verdict in Verdict},
        "shapes": [_shape_json(shape, one, results) for shape, one in sorted(shapes.items())],
    }


def _shape_json(shape: CapturedShape, judged: Judged, results: Sequence[Json]) -> Json:
    return {
        "tokens": shape.tokens,
        "requests": shape.requests or None,
        "active_loras": shape.active_loras,
        "ubatches": shape.ubatches,
        "draft_steps": shape.draft_steps or None,
        "verdict": judged.verdict.name.lower(),
        "steps": judged.steps,
        "because": gap_reason(shape, results) if not judged.steps else None,
        "outputs": [{"output": name, **one} for name, one in judged.outputs.items()],
    }


def _acceptance(results: Iterable[Json]) -> Json:
    """Accepted drafts of every step of one worker; all ranks of tensor parallel sample alike."""
    first = next(iter(results), None)
    steps = [step["accepted"] for batch in first["batches"] for step in batch["steps"]] if first else []
    return {"graphs": sum(one["graphs"] for one in steps), "eager": sum(one["eager"] for one in steps)}


def _failed_batches(results: Mapping[str, Json | None]) -> Iterator[Json]:
    for name, result in results.items():
        for batch in result["batches"] if result is not None else ():
            if batch["error"] is not None:
                yield {"worker": name, **{key: batch[key] for key in ("requests", "tokens", "next_drafts", "error")}}


_OPTIONAL_COUNT = {"type": ["integer", "null"], "minimum": 1}
_NUMBER = {"type": "number", "minimum": 0}


def _object(**properties: Any) -> Json:
    return closed_object(properties)


_OUTPUT = _object(
    output=TEXT,
    equal={"type": "boolean"},
    eager_reproduces={"type": "boolean"},
    values=COUNT,
    differing=COUNT,
    largest_absolute=_NUMBER,
    largest_relative=_NUMBER,
    not_numbers=COUNT,
)
_SHAPE = _object(
    tokens={"type": "integer", "minimum": 1},
    requests=_OPTIONAL_COUNT,
    active_loras=COUNT,
    ubatches={"type": "integer", "minimum": 1},
    draft_steps=_OPTIONAL_COUNT,
    verdict={"enum": [verdict.name.lower() for verdict in Verdict]},
    steps=COUNT,
    because=MAYBE_TEXT,
    outputs={"type": "array", "items": _OUTPUT},
)
_ROW = _object(
    runner=TEXT,
    routine=TEXT,
    query_len=_OPTIONAL_COUNT,
    graphs=COUNT,
    **{verdict.name.lower(): COUNT for verdict in Verdict},
    shapes={"type": "array", "items": _SHAPE},
)
VERIFICATION_SCHEMA: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "servespec verification",
    "description": "Every captured graph against an eager run of the same inputs, format 1.",
    **_object(
        format={"const": VERIFICATION_FORMAT},
        servespec=TEXT,
        **MADE_ON,
        spec_text=TEXT,
        engine=_object(name={"const": "vllm"}, version=TEXT),
        folder=TEXT,
        workers=_object(expected=COUNT, complete=COUNT),
        seconds=_NUMBER,
        rows={"type": "array", "items": _ROW},
        acceptance=_object(graphs=COUNT, eager=COUNT),
        speculation={
            "type": "object",
            "properties": {
                "applies": {"type": "boolean"},
                "because": MAYBE_TEXT,
                "requests": COUNT,
                "equal": COUNT,
            },
            "additionalProperties": False,
        },
        failures={
            "type": "array",
            "items": _object(worker=TEXT, requests=COUNT, tokens=COUNT, next_drafts=COUNT, error=TEXT),
        },
        diagnostics={"type": "array", "items": {"type": "object"}},
    ),
}

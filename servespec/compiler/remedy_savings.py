"""What each remedy of graph memory takes off a plan's graphs by formula, in force or not."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Any

from servespec.compiler.extension import can_take_extension
from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Shape
from servespec.compiler.json_shapes import COUNT, closed_object
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.graph_lines import graph_lines
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.compiler.memory.indexer_logits import indexer_row
from servespec.compiler.memory.stage import stages_of
from servespec.compiler.remedies import graph_remedies
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes

# chosen: less is not worth a word
_LEAST_BYTES = 128 << 20


class RemedyState(StrEnum):
    """``NOT_THERE`` is a remedy that the formulas know and the worker extension does not have."""

    IN_FORCE = "in_force"
    OFF = "off"
    NOT_THERE = "not_there"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedySaving:
    """Bytes of one device that the graphs take less with the remedy, beside those in force."""

    remedy: GraphRemedy
    state: RemedyState
    size: Bytes
    low: Bytes
    high: Bytes


def remedy_savings(
    resolution: Resolution, asked: tuple[Shape, ...], shapes: tuple[Shape, ...], lowering: Lowering
) -> tuple[RemedySaving, ...]:
    """Of every remedy that saves something, on the last pipeline stage.

    None where no formula counts the graphs, or where the worker extension, which has the remedies, cannot come.
    """
    if resolution.runner is ModelRunner.V1 or not shapes or not can_take_extension(resolution):
        return ()
    in_force, last = graph_remedies(resolution, asked, lowering), stages_of(resolution.request.spec)[-1]

    @cache
    def taken(remedies: frozenset[GraphRemedy]) -> tuple[int, int, int]:
        lines = graph_lines(resolution, shapes, lowering, remedies, stage=last)
        return sum(line.size for line in lines), sum(line.low for line in lines), sum(line.high for line in lines)

    found = []
    for remedy in filter(partial(_may_save, resolution), GraphRemedy):
        without, with_it = taken(in_force - {remedy}), taken(in_force | {remedy})
        size, *ends = (before - after for before, after in zip(without, with_it, strict=True))
        if size >= _LEAST_BYTES:
            low, high = Bytes(max(min(size, *ends), 0)), Bytes(max(size, *ends))
            state = _state(remedy, in_force)
            found.append(RemedySaving(remedy=remedy, state=state, size=Bytes(size), low=low, high=high))
    return tuple(found)


def _may_save(resolution: Resolution, remedy: GraphRemedy) -> bool:
    """Whether there is what the remedy is about, so that nobody plays graphs through in vain."""
    there = {
        GraphRemedy.WEAK_AUX_OUTPUTS: bool(resolution.values["compilation.breakable_cudagraph"].value),
        GraphRemedy.ONE_CAPTURE_STREAM: resolution.drafting.kind is not DrafterKind.NONE,
        GraphRemedy.STEPWISE_DRAFT_LOGITS: resolution.drafting.kind is DrafterKind.BLOCK,
        GraphRemedy.INDEXER_ROW_CHUNKS: indexer_row(resolution) is not None,
    }
    return there[remedy]


def _state(remedy: GraphRemedy, in_force: frozenset[GraphRemedy]) -> RemedyState:
    if remedy in in_force:
        return RemedyState.IN_FORCE
    return RemedyState.OFF if str(remedy) in set(Remedy) else RemedyState.NOT_THERE


def saving_json(saving: RemedySaving) -> dict[str, Any]:
    return {
        "remedy": str(saving.remedy),
        "state": str(saving.state),
        "saved_bytes": saving.size,
        "low_bytes": saving.low,
        "high_bytes": saving.high,
    }


SAVINGS_SCHEMA: dict[str, Any] = {
    "description": "What each remedy takes off the graphs of one device by formula, beside those in force.",
    "type": "array",
    "items": closed_object(
        {
            "remedy": {"enum": [str(remedy) for remedy in GraphRemedy]},
            "state": {"enum": [str(state) for state in RemedyState]},
            "saved_bytes": COUNT,
            "low_bytes": COUNT,
            "high_bytes": COUNT,
        }
    ),
}

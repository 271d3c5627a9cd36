"""Replay against eager: an engine is started as `serve` would, its workers replay their graphs, and it is stopped.

The workers leave a result each (``runtime/extension/replay.py``); here they become findings.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.replay import VERIFY_VARIABLE, verified_name
from servespec.runtime.measured_launch import MeasuredLaunch, Measurement, launch_and_measure, worker_results
from servespec.runtime.run_rules import (
    REPLAY_DIFFERS,
    REPLAY_FAILED,
    REPLAY_INCOMPLETE,
    REPLAY_NOT_DETERMINISTIC,
    REPLAY_WITHOUT_EXTENSION,
)
from servespec.runtime.serving import OnLaunchEvent
from servespec.runtime.verification_document import (
    Json,
    Judged,
    RowKey,
    Verdict,
    document_of,
    gap_reason,
    has_replayed,
    judged_shapes,
    row_name,
    rows_of_shapes,
)

_SHOWN: Final = 4
_SEE_FILES: Final = "see the worker's file for every step, and report this with the folder of the launch"


def verify(plan: Plan, folder: Path | None, on_event: OnLaunchEvent) -> MeasuredLaunch:
    """Starts the engine of ``plan``, has its workers replay their graphs, and stops it.

    The document has the form of ``VERIFICATION_SCHEMA``.  Raises SpecError where this machine or this lowering cannot
    serve it.
    """
    return launch_and_measure(plan, _REPLAY, folder, on_event)


# Findings


def findings_of(plan: Plan, folder: Path) -> Iterator[Diagnostic]:
    """What was found by the workers whose results lie in ``folder``."""
    results = worker_results(plan, folder, verified_name)
    place = Place(str(folder))
    present = {name: result for name, result in results.items() if result is not None}
    if len(present) < len(results):
        message = f"{len(results) - len(present)} of {len(results)} workers left no result of their replay"
        yield REPLAY_FAILED.at(place, message, "see the engine's log for why")
    for name, result in present.items():
        yield from _failures(Place(str(folder / name)), result)
    rows = rows_of_shapes(plan.resolution.frame, judged_shapes(present.values()))
    for key, shapes in rows.items():
        yield from _differences(place, key, shapes)
        yield from _gaps(place, key, shapes, present.values())


def _failures(place: Place, result: Json) -> Iterator[Diagnostic]:
    failed = [batch for batch in result["batches"] if batch["error"] is not None]
    for batch in failed[:_SHOWN]:
        message = f"{_batch_words(batch)} could not be replayed: {batch['error']}"
        yield REPLAY_FAILED.at(place, message, _SEE_FILES)
    if len(failed) > _SHOWN:
        message = f"{len(failed) - _SHOWN} more batches could not be replayed"
        yield REPLAY_FAILED.at(place, message, _SEE_FILES)
    if result["refused"] is not None:
        message = f"no graph can be replayed in this engine: {result['refused']}"
        yield REPLAY_FAILED.at(place, message, "nothing is known of its graphs but that they are as planned")
    elif not result["complete"] and not failed:
        yield REPLAY_FAILED.at(place, "the replay did not come to its end", "see the engine's log for why")
    elif not failed and not any(batch["steps"] for batch in result["batches"]):
        yield REPLAY_FAILED.at(place, "no batch could be replayed", "give the server a larger KV cache")


def _batch_words(batch: Json) -> str:
    return f"a batch of {batch['requests']} requests and {batch['tokens']} tokens"


def _differences(place: Place, key: RowKey, shapes: Mapping[CapturedShape, Judged]) -> Iterator[Diagnostic]:
    for verdict, rule, words in (
        (Verdict.DIFFERS, REPLAY_DIFFERS, "differ from eager"),
        (Verdict.NOT_DETERMINISTIC, REPLAY_NOT_DETERMINISTIC, "differ from eager, which does not reproduce itself"),
    ):
        own = {shape: one for shape, one in shapes.items() if one.verdict is verdict}
        if own:
            message = f"`{row_name(key)}`: {len(own)} of {len(shapes)} graphs {words}; {_worst_words(own)}"
            yield rule.at(place, message, _SEE_FILES)


def _worst_words(shapes: Mapping[CapturedShape, Judged]) -> str:
    """The output that differs most, and where."""
    every = [(one, name, shape) for shape, judged in shapes.items() for name, one in judged.outputs.items()]
    one, name, shape = max(every, key=lambda found: (found[0]["largest_relative"], found[0]["largest_absolute"]))
    return (
        f"most in the {name}, by {one['largest_absolute']:.3g} (relative {one['largest_relative']:.3g})"
        f" at {shape.tokens} tokens"
    )


def _gaps(
    place: Place, key: RowKey, shapes: Mapping[CapturedShape, Judged], results: Iterable[Json]
) -> Iterator[Diagnostic]:
    reasons = Counter(gap_reason(shape, results) for shape, one in shapes.items() if not one.steps)
    for reason, count in reasons.items():
        message = f"`{row_name(key)}`: {count} of {len(shapes)} graphs were not replayed: {reason}"
        yield REPLAY_INCOMPLETE.at(place, message, "they are captured as planned, and nothing more is known of them")


_REPLAY: Final = Measurement(
    variables={VERIFY_VARIABLE: "1"},
    file_name=verified_name,
    without_extension=REPLAY_WITHOUT_EXTENSION,
    does="graphs are replayed",
    findings_of=findings_of,
    document_of=document_of,
    has_measured=has_replayed,
)

"""What the workers timed, folded into one document; ``STEP_TIMES_SCHEMA`` is published beside the plan's."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from servespec import __version__
from servespec.compiler.json_shapes import COUNT, MAYBE_TEXT, TEXT, closed_object
from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic
from servespec.runtime.extension.graph_choice import FULL, NONE, PIECEWISE
from servespec.runtime.extension.step_times import step_times_name
from servespec.runtime.machine import MADE_ON, made_on, this_command
from servespec.runtime.measured_launch import worker_results
from servespec.runtime.step_times_statistics import PARTS, Gain, Json, ModeTimes, Verdict, gain, modes_of

STEP_TIMES_FORMAT: Final = 1
_SECONDS_DIGITS: Final = 7
_RATIO_DIGITS: Final = 4


def document_of(plan: Plan, folder: Path, findings: Iterable[Diagnostic]) -> Json:
    """In the form of ``STEP_TIMES_SCHEMA``."""
    results = worker_results(plan, folder, step_times_name)
    present = [result for result in results.values() if result is not None]
    return {
        "format": STEP_TIMES_FORMAT,
        "servespec": __version__,
        **made_on(this_command()),
        "spec_text": plan.resolution.request.source.text,
        "identity": identity_of(plan.to_json()),
        "engine": {"name": "vllm", "version": plan.resolution.engine.version},
        "planned_device": plan.resolution.device.name,
        "folder": str(folder),
        "workers": {"expected": len(results), "complete": sum(result["complete"] for result in present)},
        "seconds": max((result["seconds"] for result in present), default=0.0),
        "sizes": list(sizes_of(present)),
        "diagnostics": [finding.to_json() for finding in findings],
    }


def has_times(document: Json) -> bool:
    """Whether any size was timed."""
    return any(size["modes"] for size in document["sizes"])


def sizes_of(results: Sequence[Json]) -> Iterator[Json]:
    """Each batch that all workers came to; without modes where one of them could not time it."""
    for batches in zip(*(result["batches"] for result in results), strict=False):
        failed = next((batch for batch in batches if batch["because"] or batch["error"]), None)
        yield _size_json(failed or batches[0], () if failed else modes_of(batches))


def _size_json(batch: Json, modes: Sequence[ModeTimes]) -> Json:
    is_mixed = bool(batch["prompts"])
    return {
        "kind": "mixed" if is_mixed else "decode",
        "requests": batch["requests"],
        "tokens": batch["tokens"],
        "query_len": None if is_mixed else batch["decodes"][0][0],
        "next_drafts": batch["next_drafts"],
        "because": batch["because"],
        "error": batch["error"],
        "modes": [_mode_json(mode, modes[-1]) for mode in modes],
    }


def _mode_json(mode: ModeTimes, last: ModeTimes) -> Json:
    """Beside the last one, which is eager, or the one that was timed alone."""
    whole = None if mode is last else gain(last.step_seconds, mode.step_seconds)
    return {
        "mode": mode.mode,
        "padded_tokens": mode.padded_tokens,
        "repeats": len(mode.step_seconds),
        "median_seconds": _seconds(mode.median_seconds),
        "spread_seconds": _seconds(mode.spread_seconds),
        "parts": {part: _seconds(median(mode.part_seconds[part])) for part in PARTS},
        "host_seconds": None if mode.median_host_seconds is None else _seconds(mode.median_host_seconds),
        "eager_over_graph": _gain_json(whole),
        "target_eager_over_graph": _part_gain(mode, last, "target"),
        "drafter_eager_over_graph": _part_gain(mode, last, "drafter"),
        "verdict": None if whole is None else str(whole.verdict),
    }


def _part_gain(mode: ModeTimes, last: ModeTimes, part: str) -> Json | None:
    return None if mode is last else _gain_json(gain(last.part_seconds[part], mode.part_seconds[part]))


def _gain_json(found: Gain | None) -> Json | None:
    if found is None:
        return None
    ratios = {"ratio": found.ratio, "low_95": found.low_95, "high_95": found.high_95}
    return {name: round(ratio, _RATIO_DIGITS) for name, ratio in ratios.items()}


def _seconds(seconds: float) -> float:
    return round(seconds, _SECONDS_DIGITS)


_OPTIONAL_COUNT = {"type": ["integer", "null"], "minimum": 1}
_NUMBER = {"type": "number", "minimum": 0}


def _object(**properties: Any) -> Json:
    return closed_object(properties)


_RATIO = {**_NUMBER, "description": "The geometric mean of the pairs, which the interval is of."}
_GAIN = {"anyOf": [{"type": "null"}, _object(ratio=_RATIO, low_95=_NUMBER, high_95=_NUMBER)]}
_HOST_SECONDS = {
    "type": ["number", "null"],
    "minimum": 0,
    "description": "How long the host takes to start the step while the device runs the one before: the step takes as "
    "long as whichever is slower. Null, or not there, where the device was idle when the step started: the parts then "
    "hold what it waited for the host.",
}
_MODE = closed_object(
    {
        "mode": {"enum": [FULL, PIECEWISE, NONE]},
        "padded_tokens": COUNT,
        "repeats": COUNT,
        "median_seconds": _NUMBER,
        "spread_seconds": _NUMBER,
        "parts": _object(**dict.fromkeys(PARTS, _NUMBER)),
        "host_seconds": _HOST_SECONDS,
        "eager_over_graph": _GAIN,
        "target_eager_over_graph": _GAIN,
        "drafter_eager_over_graph": _GAIN,
        "verdict": {"enum": [None, *map(str, Verdict)]},
    },
    optional=("host_seconds",),
)
_SIZE = _object(
    kind={"enum": ["decode", "mixed"]},
    requests=COUNT,
    tokens=COUNT,
    query_len=_OPTIONAL_COUNT,
    next_drafts=COUNT,
    because=MAYBE_TEXT,
    error=MAYBE_TEXT,
    modes={"type": "array", "items": _MODE},
)
STEP_TIMES_SCHEMA: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "servespec steps",
    "description": "The same steps as FULL graph, as PIECEWISE graphs and eagerly, timed in one process, format 1.",
    **_object(
        format={"const": STEP_TIMES_FORMAT},
        servespec=TEXT,
        **MADE_ON,
        spec_text=TEXT,
        identity={"type": "object", "additionalProperties": TEXT},
        engine=_object(name={"const": "vllm"}, version=TEXT),
        planned_device=TEXT,
        folder=TEXT,
        workers=_object(expected=COUNT, complete=COUNT),
        seconds=_NUMBER,
        sizes={"type": "array", "items": _SIZE},
        diagnostics={"type": "array", "items": {"type": "object"}},
    ),
}

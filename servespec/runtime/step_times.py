"""Step times: an engine is started as `serve` would, its workers time steps with and without graphs, and it is stopped.

The workers leave a result each (``runtime/extension/step_times.py``); here they become findings.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.extension.step_times import STEPS_VARIABLE, step_times_name
from servespec.runtime.extension.step_times_batches import Wanted
from servespec.runtime.measured_launch import MeasuredLaunch, Measurement, launch_and_measure, worker_results
from servespec.runtime.serving import OnLaunchEvent
from servespec.runtime.step_times_document import document_of, has_times, sizes_of
from servespec.runtime.step_times_rules import (
    GRAPH_DOES_NOT_PAY,
    STEPS_DESIGN,
    STEPS_FAILED,
    STEPS_INCOMPLETE,
    STEPS_WITHOUT_EXTENSION,
)
from servespec.runtime.step_times_statistics import Json, Verdict

AUTO: Final = "auto"
_FEWEST_REPEATS: Final = 3
"""With two pairs the interval is so wide that it says nothing."""


def wanted_of(plan: Plan, *, requests: str, tokens: str, repeats: int, most_requests: int | None = None) -> Wanted:
    """What the options ask for; ``most_requests`` is the spec's own limit where that of ``plan`` is another.

    Raises SpecError where a size is no number, or more than a step takes.
    """
    limits = plan.resolution.limits
    most = int(limits.max_num_seqs.value) if most_requests is None else most_requests
    if repeats < _FEWEST_REPEATS:
        message = f"`--repeats` is `{repeats}`, which leaves no interval"
        raise SpecError([STEPS_DESIGN.at(Place("--repeats"), message, f"write {_FEWEST_REPEATS} or more")])
    return Wanted(
        requests=_sizes("--requests", requests, "scheduler.max_num_seqs", most),
        tokens=_sizes("--tokens", tokens, "scheduler.max_num_batched_tokens", limits.max_num_batched_tokens.value),
        repeats=repeats,
    )


def _sizes(option: str, text: str, limit_name: str, limit: int) -> tuple[int, ...] | None:
    """The sizes of a list with commas, None for those captured."""
    if text == AUTO:
        return None
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not re.fullmatch(r"0*[1-9]\d{0,8}", word):
            message, help_text = f"`{word}` is no size", f"write `{option} 1,8,64` or `{option} auto`"
            raise SpecError([STEPS_DESIGN.at(Place(option), message, help_text)])
        if int(word) > limit:
            message = f"a step of this spec has at most {limit} (`{limit_name}`), not {word}"
            raise SpecError([STEPS_DESIGN.at(Place(option), message, f"lower it, or raise `{limit_name}`")])
    return tuple(sorted(set(map(int, words))))


def time_steps(plan: Plan, wanted: Wanted, folder: Path | None, on_event: OnLaunchEvent) -> MeasuredLaunch:
    """Starts the engine of ``plan``, has its workers time steps, and stops it.

    The document has the form of ``STEP_TIMES_SCHEMA``.  Raises SpecError where this machine or this lowering cannot
    serve it.
    """
    measurement = Measurement(
        variables={STEPS_VARIABLE: json.dumps(wanted.to_json())},
        file_name=step_times_name,
        without_extension=STEPS_WITHOUT_EXTENSION,
        does="steps are timed",
        findings_of=findings_of,
        document_of=document_of,
        has_measured=has_times,
    )
    return launch_and_measure(plan, measurement, folder, on_event)


# Findings


def findings_of(plan: Plan, folder: Path) -> Iterator[Diagnostic]:
    """What was found by the workers whose results lie in ``folder``."""
    results = worker_results(plan, folder, step_times_name)
    present = {name: result for name, result in results.items() if result is not None}
    if len(present) < len(results):
        message = f"{len(results) - len(present)} of {len(results)} workers left no step times"
        yield STEPS_FAILED.at(Place(str(folder)), message, "see the engine's log for why")
    for name, result in present.items():
        yield from _failures(Place(str(folder / name)), result)
    sizes = list(sizes_of(list(present.values())))
    yield from _untimed(Place(str(folder)), sizes)
    yield from _slower(Place(str(folder)), sizes)


def _failures(place: Place, result: Json) -> Iterator[Diagnostic]:
    if result["refused"] is not None:
        message = f"no step can be timed in this engine: {result['refused']}"
        yield STEPS_FAILED.at(place, message, "compare whole servers by `servespec bench`")
    elif not result["complete"]:
        yield STEPS_FAILED.at(place, "the timing did not come to its end", "see the engine's log for why")
    elif not any(batch["modes"] for batch in result["batches"]):
        yield STEPS_FAILED.at(place, "no size could be timed", "see the other findings for why")


def _untimed(place: Place, sizes: Iterable[Json]) -> Iterator[Diagnostic]:
    for size in sizes:
        if size["error"] is not None:
            yield STEPS_FAILED.at(place, f"{size_words(size)} failed: {size['error']}", "see the engine's log for why")
        elif size["because"] is not None:
            message = f"{size_words(size)} was not timed: {size['because']}"
            yield STEPS_INCOMPLETE.at(place, message, "leave it out, or let the spec hold it")


def _slower(place: Place, sizes: Iterable[Json]) -> Iterator[Diagnostic]:
    """The engine's own choice comes first, and the others never run while it serves."""
    for size in sizes:
        served = next(iter(size["modes"]), None)
        if served is not None and served["verdict"] == Verdict.DOES_NOT_PAY:
            found = served["eager_over_graph"]
            message = (
                f"{size_words(size)} is slower as {served['mode']} than eager: eager takes {found['ratio']:.3f} of"
                f" its time ({found['low_95']:.3f} to {found['high_95']:.3f})"
            )
            yield GRAPH_DOES_NOT_PAY.at(place, message, _CAPTURE_LESS[size["kind"]])


_CAPTURE_LESS: Final = {
    "decode": "lower `compilation.max_decode_cudagraph_capture_requests`, or leave the size out of "
    "`compilation.decode_cudagraph_capture_request_sizes`",
    "mixed": "lower `compilation.max_prefill_cudagraph_capture_tokens`, or leave the size out of "
    "`compilation.prefill_cudagraph_capture_token_sizes`",
}


def size_words(size: Json) -> str:
    if size["kind"] == "decode":
        return f"a decode of {size['requests']} requests, q={size['query_len']},"
    return f"a step of {size['tokens']} tokens with prompts"

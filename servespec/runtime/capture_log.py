"""What an engine says it captured, held against the plan.

The engine shows one progress bar for each graph manager and mode; its last state in the log counts the graphs that
were really captured, LoRA cases and tiers together.  A profiling pass shows bars too, so the last of a name counts.
A manager of a model that nothing cuts has a bar of PIECEWISE sizes at which the model ran and nothing was captured.
Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture, and the speculators' progress_bar_desc.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.managers import managers_of
from servespec.compiler.graphs.shape import Routine, Row, Runner, Shape
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.capture import Capture, Evidence, RankCapture, RowCapture, Verdict
from servespec.runtime.engine_log import GIB_BYTES, whole_log
from servespec.runtime.run_rules import CAPTURE_DIFFERS, CAPTURE_UNSEEN

_BAR = re.compile(
    r"Capturing (?P<manager>[\w -]*?)\s*CUDA graphs \((?P<mode>PIECEWISE|FULL)\):\s*\d+%\|[^|]*\|"
    r"\s*(?P<done>\d+)/(?P<total>\d+)"
)
_FINISHED = re.compile(
    r"^(?P<process>\([^)]*\))?.*Graph capturing finished in (?P<seconds>\d+) secs, took (?P<gib>-?[\d.]+) GiB",
    re.MULTILINE,
)

Bar = tuple[str, str]
"""The manager's name in its title, '' for the target, and the mode."""

_BLOCK_TITLES = {"dspark": "dspark", "dflash": "dflash", "mtp": "multi-module MTP"}


@dataclass(frozen=True, slots=True)
class Progress:
    """A bar's last state."""

    name: Bar
    done: int
    total: int


def last_bar(log: str) -> Progress | None:
    """The bar that was drawn last, None where there is none."""
    *_, last = (None, *_BAR.finditer(log))
    if last is None:
        return None
    return Progress((last["manager"], last["mode"]), int(last["done"]), int(last["total"]))


def captured_counts(log: str) -> Mapping[Bar, int]:
    """Graphs captured by each bar of an engine's log."""
    return {(found["manager"], found["mode"]): int(found["done"]) for found in _BAR.finditer(log)}


def planned_counts(plan: Plan) -> Mapping[Bar, int]:
    """Graphs of each bar that the plan's capture will show."""
    method = plan.resolution.drafting.method.value or ""
    return Counter(bar_of(shape, method) for shape in plan.graphs.shapes)


def bar_of(graphs: Shape | Row, method: str) -> Bar:
    """The bar that counts a shape, or all of a row."""
    return (_title(graphs.runner, graphs.routine, method), str(graphs.mode))


def empty_bars(plan: Plan) -> frozenset[Bar]:
    """The bars that count sizes at which nothing is captured."""
    method = plan.resolution.drafting.method.value or ""
    without_pieces = (one for one in managers_of(plan.resolution.frame) if not one.has_pieces)
    return frozenset((_title(one.runner, one.decode, method), str(CudaGraphMode.PIECEWISE)) for one in without_pieces)


def _title(runner: Runner, routine: Routine, method: str) -> str:
    if runner is Runner.TARGET:
        return ""
    if routine in (Routine.STEP0_PIECEWISE, Routine.STEP0_UNIFORM):
        return "prefill"
    return "decode" if routine is Routine.LATER_STEPS else _BLOCK_TITLES.get(method, method)


def log_capture(plan: Plan, log_path: Path) -> Capture:
    """What the log shows of the capture."""
    log = whole_log(log_path)
    planned, empty = planned_counts(plan), empty_bars(plan)
    captured = {bar: count for bar, count in captured_counts(log).items() if bar not in empty}
    return Capture(
        evidence=Evidence.LOG,
        rows=tuple(_row_captures(plan, planned, captured)),
        ranks=tuple(_ranks(log)) if planned else (),
        findings=_findings(planned, captured, Place(str(log_path))),
    )


def _row_captures(plan: Plan, planned: Mapping[Bar, int], captured: Mapping[Bar, int]) -> Iterator[RowCapture]:
    """A row that shares its bar with another has no number of its own."""
    method = plan.resolution.drafting.method.value or ""
    bars = [bar_of(row, method) for row in plan.graphs.rows]
    for bar in bars:
        count = captured.get(bar, 0) if captured and bars.count(bar) == 1 else None
        seen = Verdict.AS_PLANNED if captured.get(bar) == planned[bar] else Verdict.DIFFERS
        yield RowCapture((count,), seen if captured else Verdict.UNSEEN)


def _ranks(log: str) -> Iterator[RankCapture]:
    """The last end of a capture that each process logs; the ones before it are of profiling passes."""
    for found in {found["process"]: found for found in _FINISHED.finditer(log)}.values():
        size_bytes = round(float(found["gib"]) * GIB_BYTES)
        seconds = float(found["seconds"])
        yield RankCapture(data_parallel_rank=None, rank=None, capture_seconds=seconds, graph_bytes=size_bytes)


def _findings(planned: Mapping[Bar, int], captured: Mapping[Bar, int], place: Place) -> tuple[Diagnostic, ...]:
    if planned and not captured:
        message = f"the log shows no capture; {sum(planned.values())} graphs were planned"
        return (CAPTURE_UNSEEN.at(place, message, "the plan could not be checked"),)
    return tuple(_differences(planned, captured, place))


def _differences(planned: Mapping[Bar, int], captured: Mapping[Bar, int], place: Place) -> Iterator[Diagnostic]:
    for bar in sorted({*planned, *captured}):
        wanted, got = planned.get(bar, 0), captured.get(bar, 0)
        if wanted != got:
            name, mode = bar
            message = f"the {name or 'target'} manager captured {got} {mode} graphs; {wanted} were planned"
            help_text = "compare the engine's version with the plan's, and report this with both"
            yield CAPTURE_DIFFERS.at(place, message, help_text)

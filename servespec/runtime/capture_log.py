"""What an engine says it captured, held against the plan.

The engine shows one progress bar for each graph manager and mode; its last state in the log counts the graphs that
were really captured, LoRA cases and tiers together.  A profiling pass shows bars too, so the last of a name counts.
Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture, and the speculators' progress_bar_desc.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.run_rules import CAPTURE_DIFFERS, CAPTURE_UNSEEN

_BAR = re.compile(
    r"Capturing (?P<manager>[\w -]*?)\s*CUDA graphs \((?P<mode>PIECEWISE|FULL)\):\s*\d+%\|[^|]*\|"
    r"\s*(?P<done>\d+)/(?P<total>\d+)"
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


def bar_of(shape: Shape, method: str) -> Bar:
    """The bar that counts a shape."""
    return (_title(shape, method), str(shape.mode))


def _title(shape: Shape, method: str) -> str:
    if shape.runner is Runner.TARGET:
        return ""
    if shape.routine in (Routine.STEP0_PIECEWISE, Routine.STEP0_UNIFORM):
        return "prefill"
    return "decode" if shape.routine is Routine.LATER_STEPS else _BLOCK_TITLES.get(method, method)


def log_findings(plan: Plan, log_path: Path) -> tuple[Diagnostic, ...]:
    """How what the engine captured differs from the plan; nothing where it is the same."""
    planned = planned_counts(plan)
    captured = captured_counts(log_path.read_text(encoding="utf-8", errors="replace"))
    place = Place(str(log_path))
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


def verdict(plan: Plan) -> str:
    """One line for a capture that is as planned."""
    total = len(plan.graphs.shapes)
    if plan.graphs.mode is CudaGraphMode.NONE or not total:
        return "no graphs were planned"
    return f"captured {total} graphs, as planned"

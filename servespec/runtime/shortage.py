"""Where an engine ran out of device memory: the phase, the graph that was being captured, what was free.

Under the extension the worker that failed left a record; else the engine's log tells by its progress bars, whose last
state counts the graphs before the one that failed.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.hand_off import manager_class
from servespec.compiler.graphs.managers import managers_of, own_shapes
from servespec.compiler.graphs.shape import Runner, Shape
from servespec.compiler.lower import Lowering
from servespec.compiler.plan import Plan
from servespec.runtime.capture_log import bar_of, empty_bars, last_bar, planned_counts
from servespec.runtime.capture_report import graph_of
from servespec.runtime.engine_log import LogTail, Phase, log_end

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = r"([\d.]+ (?:bytes|[KMG]iB))"
_ALLOCATION = re.compile(
    rf"Tried to allocate {_SIZE}\. GPU \d+ has a total capacity of {_SIZE} of which {_SIZE} is free"
)
"""torch's own words, of its allocator: c10/cuda/CUDACachingAllocator.cpp."""
_OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What is known; None for what is not. ``captured_graphs`` are the plan's graphs before ``shape``, which is also
    known of a profiling pass, where the engine captures a few to measure them.

    ``wanted_bytes`` is the allocation that failed.
    """

    phase: Phase
    shape: Shape | None = None
    captured_graphs: int | None = None
    wanted_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int


def read_shortage(plan: Plan, folder: Path, log_path: Path) -> Shortage:
    """From the worker's record where there is one, and the log."""
    log = log_end(log_path)
    wanted, total, free = _allocation(log)
    record = next(iter(_records(folder)), None)
    phase, shape = _of_record(plan, record) if record else _of_log(plan, log, log_path)
    free_bytes = record["free_bytes"] if record and record["free_bytes"] is not None else free
    return Shortage(
        phase=phase,
        shape=shape,
        captured_graphs=None if shape is None or phase is not Phase.CAPTURING else capture_order(plan).index(shape),
        wanted_bytes=wanted,
        free_bytes=free_bytes,
        total_bytes=total or plan.resolution.device.total_memory_bytes,
    )


def capture_order(plan: Plan) -> tuple[Shape, ...]:
    """The plan's graphs as the engine captures them: by manager, PIECEWISE first, each from the widest.

    Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture.
    """
    managers = managers_of(plan.resolution.frame)
    shapes = plan.graphs.shapes
    order = [one for manager in managers for one in sorted(own_shapes(manager, shapes), key=_capture_key)]
    first = max(order, key=lambda one: one.tokens) if _puts_widest_first(plan) else None
    # Stable: the extension moves one graph, where a FULL one is the target's widest.
    return tuple(sorted(order, key=lambda one: one is not first))


def _capture_key(shape: Shape) -> tuple[bool, int]:
    return (shape.mode is CudaGraphMode.FULL, -shape.tokens)


def _puts_widest_first(plan: Plan) -> bool:
    """As the extension does; see `runtime/extension/install.py`."""
    widest = dict.fromkeys((CudaGraphMode.FULL, CudaGraphMode.PIECEWISE), 0)
    for shape in plan.graphs.shapes:
        if shape.runner is Runner.TARGET:
            widest[shape.mode] = max(widest[shape.mode], shape.tokens)
    is_extension = plan.lowered.lowering is Lowering.EXTENSION
    return is_extension and 0 < widest[CudaGraphMode.PIECEWISE] < widest[CudaGraphMode.FULL]


def _allocation(log: str) -> tuple[int | None, int | None, int | None]:
    """Bytes of the last allocation that failed: wanted, the device's total, free."""
    found = _ALLOCATION.findall(log)
    if not found:
        return None, None, None
    wanted, total, free = map(_bytes, found[-1])
    return wanted, total, free


def _bytes(text: str) -> int:
    number, unit = text.split()
    return round(float(number) * _UNITS[unit])


def _records(folder: Path) -> list[dict[str, Any]]:
    """Of the workers that failed; those before the others that say that memory ran out.

    Some of the engine's operators raise an error that does not say so.
    """
    records = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("failed-[0-9]*-[0-9]*.json"))
    ]
    return sorted(records, key=lambda record: _OUT_OF_MEMORY not in record["message"])


def _of_record(plan: Plan, record: dict[str, Any]) -> tuple[Phase, Shape | None]:
    frame = plan.resolution.frame
    for manager in managers_of(frame):
        if (record["class"], record["query_len"]) == (manager_class(frame, manager), manager.query_len):
            own = own_shapes(manager, plan.graphs.shapes)
            same = (one for one in own if [str(one.mode), list(graph_of(one))] == [record["mode"], record["graph"]])
            return Phase(record["phase"]), next(same, None)
    return Phase(record["phase"]), None


def _of_log(plan: Plan, log: str, log_path: Path) -> tuple[Phase, Shape | None]:
    phase, bar = LogTail(log_path).advance(), last_bar(log)
    if phase is not Phase.CAPTURING or bar is None or bar.name in empty_bars(plan):
        return phase, None
    if bar.total != planned_counts(plan).get(bar.name):
        return Phase.PROFILING, None
    method = plan.resolution.drafting.method.value or ""
    counted = [one for one in capture_order(plan) if bar_of(one, method) == bar.name]
    return phase, counted[bar.done] if bar.done < bar.total else None

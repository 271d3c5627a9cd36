"""Whether a cell was bound by a process of the host: how much of one core each side took meanwhile."""

import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servespec.runtime.engine_log import whole_log

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_FRONT_END: Final = re.compile(r"^\((?:APIServer|ApiServer_\d+) pid=(\d+)\)", re.MULTILINE)
"""How an API server begins its lines. Source: vllm/utils/system_utils.py: decorate_logs."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds of processor time by process, at a moment."""

    at: float
    seconds: Mapping[int, float]


def front_end_pids(engine_log: Path) -> frozenset[int]:
    """The API servers of an engine; its other processes wait for the GPU by looking at it, and tell nothing."""
    return frozenset(map(int, _FRONT_END.findall(whole_log(engine_log))))


def cpu_times(pids: Iterable[int]) -> CpuTimes:
    """Of those that live."""
    return CpuTimes(time.monotonic(), {pid: seconds for pid in pids if (seconds := _seconds(pid)) is not None})


def busiest_share(before: CpuTimes, after: CpuTimes) -> float | None:
    """Cores that the busiest process took between two moments; None where the system does not tell."""
    elapsed = after.at - before.at
    spent = [after.seconds[pid] - before.seconds[pid] for pid in before.seconds if pid in after.seconds]
    return round(max(spent) / elapsed, 3) if spent and elapsed > 0 else None


def _seconds(pid: int) -> float | None:
    # A process may end while it is read.
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return None

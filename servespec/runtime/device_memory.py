"""Whether the GPUs have their memory back after an engine's end, asked of the driver before and after."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.probe import driver_rows
from servespec.runtime.run_rules import MEMORY_NOT_RETURNED

_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 0.5
# What the driver itself takes and gives back as contexts come and go.
_NOISE_MIB = 256


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Memory in use by GPU, in MiB as the driver says it, and the processes on each."""

    used_mib: Mapping[str, int]
    pids: Mapping[str, frozenset[int]]


def device_use(count: int) -> DeviceUse | None:
    """Of the GPUs that an engine of ``count`` will use; None where no driver tells."""
    only = ("-i", os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count))))
    used = _pairs(*only, "--query-gpu=uuid,memory.used")
    pids = _pairs(*only, "--query-compute-apps=gpu_uuid,pid")
    if not used:
        return None
    return DeviceUse(
        {gpu: int(mib) for gpu, mib in used if mib.isdecimal()},
        {gpu: frozenset(int(pid) for one, pid in pids if one == gpu and pid.isdecimal()) for gpu, _ in used},
    )


def _pairs(*query: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in driver_rows(*query) if len(row) == 2]


def not_returned(before: DeviceUse | None, count: int, place: Place) -> tuple[Diagnostic, ...]:
    """A warning for each GPU that still has not its memory back after some seconds."""
    if before is None:
        return ()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (after := device_use(count)) and _held(before, after) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return tuple(_finding(before, after, gpu, place) for gpu in _held(before, after)) if after else ()


def _held(before: DeviceUse, after: DeviceUse) -> list[str]:
    return [gpu for gpu, mib in before.used_mib.items() if after.used_mib.get(gpu, 0) > mib + _NOISE_MIB]


def _finding(before: DeviceUse, after: DeviceUse, gpu: str, place: Place) -> Diagnostic:
    held_mib = after.used_mib[gpu] - before.used_mib[gpu]
    newcomers = sorted(after.pids[gpu] - before.pids.get(gpu, frozenset()))
    who = f"new on it: process {', '.join(map(str, newcomers))}" if newcomers else "the driver names no new process"
    message = f"GPU `{gpu}` has {held_mib / 1024:.1f} GiB less free than before the launch; {who}"
    return MEMORY_NOT_RETURNED.at(place, message, "look at `nvidia-smi`, and stop the process if it is not wanted")

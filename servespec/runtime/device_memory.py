"""Whether the GPUs have their memory back after an engine's end, asked of the driver before and after."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.probe import driver_rows
from servespec.runtime.run_rules import MEMORY_NOT_RETURNED

_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 0.5
# What the driver itself takes and gives back as contexts come and go.
_NOISE_MIB = 256

Pids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Memory in use by GPU, in MiB as the driver says it, and by process on each; None where it does not tell."""

    used_mib: Mapping[str, int]
    held_mib: Mapping[str, Mapping[int, int | None]]


@dataclass(frozen=True, slots=True)
class _Lack:
    """What a GPU has not back, less what others hold on it by the driver's word, and who may hold it.

    ``left`` are the engine's processes, ``unseen`` those that are not among this machine's, as in a container, and
    ``untold`` others whose memory is not known.
    """

    gpu: str
    lacking_mib: int
    others_mib: int
    left: Pids
    unseen: Pids
    untold: Pids


def device_use(count: int) -> DeviceUse | None:
    """Of the GPUs that an engine of ``count`` will use; None where no driver tells."""
    only = ("-i", os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count))))
    used = _rows(*only, "--query-gpu=uuid,memory.used", columns=2)
    # Read last: a process that grows meanwhile then seems to hold more than is in use, and nothing is lacking.
    held = _rows(*only, "--query-compute-apps=gpu_uuid,pid,used_memory", columns=3)
    if not used:
        return None
    used_mib = {gpu: mib for gpu, said in used if (mib := _number(said)) is not None}
    return DeviceUse(used_mib, {gpu: dict(_holders(held, gpu)) for gpu in used_mib})


def _rows(*query: str, columns: int) -> list[list[str]]:
    return [row for row in driver_rows(*query) if len(row) == columns]


def _holders(rows: list[list[str]], gpu: str) -> Iterator[tuple[int, int | None]]:
    """Each process on ``gpu`` whose number the driver tells, with what it holds."""
    return ((pid, _number(mib)) for one, name, mib in rows if one == gpu and (pid := _number(name)) is not None)


def _number(said: str) -> int | None:
    return int(said) if said.isdecimal() else None


def not_returned(before: DeviceUse | None, count: int, engine_pid: int | None, place: Place) -> tuple[Diagnostic, ...]:
    """A warning for each GPU that still has not its memory back some seconds after the end of the engine.

    ``engine_pid`` is the engine's first process, None of one that was never started.
    """
    if before is None or engine_pid is None:
        return ()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (lacks := _lacks(before, device_use(count), engine_pid)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return tuple(_finding(lack, place) for lack in lacks)


def _lacks(before: DeviceUse, after: DeviceUse | None, engine_pid: int) -> tuple[_Lack, ...]:
    if after is None:
        return ()
    lacks = (_lack(before, after, gpu, engine_pid) for gpu in before.used_mib if gpu in after.used_mib)
    return tuple(lack for lack in lacks if lack.lacking_mib > _NOISE_MIB)


def _lack(before: DeviceUse, after: DeviceUse, gpu: str, engine_pid: int) -> _Lack:
    earlier, held = before.held_mib[gpu], after.held_mib[gpu]
    sessions = {pid: _session(pid) for pid in sorted(held.keys() - earlier.keys())}
    left = tuple(pid for pid, session in sessions.items() if session == engine_pid)
    unseen = tuple(pid for pid, session in sessions.items() if session is None)
    others = {pid: mib for pid, mib in held.items() if pid not in {*left, *unseen}}
    others_mib = _total(others) - _total(earlier)
    return _Lack(
        gpu=gpu,
        lacking_mib=after.used_mib[gpu] - before.used_mib[gpu] - others_mib,
        others_mib=others_mib,
        left=left,
        unseen=unseen,
        untold=tuple(pid for pid, mib in sorted(others.items()) if mib is None),
    )


def _session(pid: int) -> int | None:
    """The session of a process, None where it is unseen.

    The engine's is named after its first process, and vLLM's workers do not leave it.
    """
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _total(held_mib: Mapping[int, int | None]) -> int:
    return sum(mib or 0 for mib in held_mib.values())


def _finding(lack: _Lack, place: Place) -> Diagnostic:
    beside = f", besides {_gib(lack.others_mib)} that others took" if lack.others_mib > _NOISE_MIB else ""
    who = "; ".join(_suspects(lack)) or "the driver names no process that holds it, and one that it does not show may"
    message = f"GPU `{lack.gpu}` has {_gib(lack.lacking_mib)} less free than before the launch{beside}; {who}"
    return MEMORY_NOT_RETURNED.at(place, message, "look at `nvidia-smi`, and stop the process if it is not wanted")


def _suspects(lack: _Lack) -> Iterator[str]:
    said = {
        "left of the engine": lack.left,
        "not known whose": lack.unseen,
        "not the engine's, holding an amount that is not known": lack.untold,
    }
    return (f"{what}: process {', '.join(map(str, pids))}" for what, pids in said.items() if pids)


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"

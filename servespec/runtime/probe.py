"""Which NVIDIA GPUs this machine has, asked of its driver without importing torch."""

import shutil
import subprocess
from dataclasses import dataclass

from servespec.compiler.facts.devices import DEVICES, Device, is_cpu
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.config_rules import R009

_QUERY = "name,memory.total,compute_cap,memory.free"
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class PresentGpu:
    """A GPU as its driver names it; ``memory_mib`` is the driver's total, ``free_mib`` None where it does not tell."""

    name: str
    memory_mib: int
    compute_capability: tuple[int, int]
    free_mib: int | None = None


def present_gpus() -> tuple[PresentGpu, ...]:
    """The GPUs that the driver lists; none where there is no driver."""
    return tuple(gpu for row in driver_rows(f"--query-gpu={_QUERY}") if (gpu := _parsed(row)) is not None)


def driver_version() -> str | None:
    """The version of the GPUs' driver; None where there is none."""
    return next((row[0] for row in driver_rows("--query-gpu=driver_version")), None)


def driver_rows(*query: str) -> list[list[str]]:
    """What the driver's own tool answers, by column; nothing where there is no driver, or where it does not answer.

    Numbers are without their units, which are the tool's: memory is in MiB.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run(  # noqa: S603 - the driver's own tool
            [program, *query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = answer.stdout.splitlines() if answer.returncode == 0 else []
    return [[column.strip() for column in line.split(",")] for line in lines if line.strip()]


def _parsed(row: list[str]) -> PresentGpu | None:
    if len(row) != 4 or not row[1].isdecimal():
        return None
    major, _, minor = row[2].partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return None
    free_mib = int(row[3]) if row[3].isdecimal() else None
    return PresentGpu(row[0], int(row[1]), (int(major), int(minor)), free_mib)


def hardware_problem(device: Device, count: int, place: Place) -> Diagnostic | None:
    """Why this machine cannot serve a spec for ``count`` GPUs of ``device``; None where it can."""
    if is_cpu(device):
        return None
    gpus = present_gpus()
    fitting = [gpu for gpu in gpus if is_device(gpu, device)]
    if len(fitting) >= count:
        return None
    seen = ", ".join(sorted({gpu.name for gpu in gpus})) or "no NVIDIA GPU"
    message = f"the spec needs {count} x `{device.name}`; this machine has {f'{len(gpus)} x {seen}' if gpus else seen}"
    help_text = "serve it there, plan for this machine with its own name, or write `gpu: cpu` for the embedded engine"
    return R009.at(place, message, help_text)


def is_device(gpu: PresentGpu, device: Device) -> bool:
    """The same capability, and memory within a tenth: names differ between drivers and form factors."""
    planned_mib = device.total_memory_bytes / (1 << 20)
    return gpu.compute_capability == device.compute_capability and abs(gpu.memory_mib - planned_mib) <= planned_mib / 10


def table_name(gpu: PresentGpu) -> str:
    """The device table's name of a GPU; '' where it has none."""
    return next((name for name, device in DEVICES.items() if is_device(gpu, device)), "")


def this_machine() -> str:
    """The machine's GPUs as a preset's name says them, such as `h200x8`; '' where the table has no such GPU."""
    names = [table_name(gpu) for gpu in present_gpus()]
    name = names[0] if names else ""
    count = names.count(name)
    return f"{name}x{count}" if name and count > 1 else name

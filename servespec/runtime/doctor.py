"""What this machine has for planning and serving, and a device file that describes its GPU."""

import json
import platform
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from servespec import __version__
from servespec.compiler.facts.devices import DEVICES, Device, device_to_json
from servespec.diagnostics import Place, SpecError
from servespec.runtime.config_rules import R011
from servespec.runtime.installed_engine import find_installed_engine, matching_facts_version
from servespec.runtime.machine import version_of
from servespec.runtime.probe import PresentGpu, present_gpus, table_name
from servespec.runtime.run_rules import INSTALL_ENGINE
from servespec.units import Bytes, size_words

_MIB_BYTES = 1 << 20
_DEFAULT_PORT = 8000
_MEMORY_FILE = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Reading:
    """One line of the report; ``mend`` is what to run where something is missing, '' where nothing is."""

    name: str
    said: str
    mend: str = ""

    def to_json(self) -> dict[str, str]:
        """One entry of `doctor --format json`."""
        return {"name": self.name, "said": self.said, "mend": self.mend}


def readings() -> Iterator[Reading]:
    """The report, in the order in which things are needed."""
    yield Reading("python", platform.python_version())
    yield Reading("servespec", __version__)
    yield _engine()
    gpus = present_gpus()
    yield _flashinfer(gpus)
    yield from _gpus(gpus)
    yield _memory()
    yield _port()


def _engine() -> Reading:
    installed = find_installed_engine()
    if installed is None:
        return Reading("engine", "none", INSTALL_ENGINE)
    facts = matching_facts_version(installed)
    known = f"as vLLM {facts}" if facts else "its source is unknown"
    mend = "" if facts else "plan with --allow-unverified-engine, or install a supported version"
    return Reading("engine", f"{installed.distribution} {installed.version}, {known}", mend)


def _flashinfer(gpus: tuple[PresentGpu, ...]) -> Reading:
    version = version_of("flashinfer-python")
    if version is None and gpus:
        return Reading("flashinfer", "none", "pip install 'servespec[gpu]'")
    return Reading("flashinfer", version or "none, and no GPU that would use it")


def _gpus(gpus: tuple[PresentGpu, ...]) -> Iterator[Reading]:
    if not gpus:
        yield Reading("gpu", "none that a driver lists", "install NVIDIA's driver, or serve with `hardware.gpu: cpu`")
    for gpu in gpus:
        name = table_name(gpu)
        major, minor = gpu.compute_capability
        mend = "" if name else "servespec doctor --device-file FILE describes it"
        free = "" if gpu.free_mib is None else f", {gpu.free_mib} MiB free"
        said = f"{gpu.name}, {gpu.memory_mib} MiB{free}, {major}.{minor}: {name or 'not in the table'}"
        yield Reading("gpu", said, mend)


def _memory() -> Reading:
    """Of the machine, which a server on the CPU lives in and weights pass through."""
    total, available = (_memory_bytes(name) for name in ("MemTotal", "MemAvailable"))
    if total is None or available is None:
        return Reading("memory", "this system does not tell")
    return Reading("memory", f"{size_words(available)} of {size_words(total)} free")


def _memory_bytes(name: str) -> Bytes | None:
    """One line of what Linux tells of memory, in kibibytes there."""
    try:
        told = _MEMORY_FILE.read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^{name}:\s*(\d+) kB$", told, re.MULTILINE)
    return Bytes(int(found[1]) * 1024) if found else None


def _port() -> Reading:
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", _DEFAULT_PORT)) == 0
    mend = "write another `serve.port`" if taken else ""
    return Reading("port", f"{_DEFAULT_PORT} is {'taken' if taken else 'free'}", mend)


def write_device_file(path: Path) -> Device:
    """Describes this machine's first GPU in a file that `hardware.gpu.device` names.

    Raises SpecError where there is no GPU.
    """
    gpus = present_gpus()
    if not gpus:
        place = Place(str(path))
        raise SpecError([R011.at(place, "no driver lists a GPU here", "run it on the machine that has one")])
    device = _described(gpus[0])
    path.write_text(json.dumps(device_to_json(device), indent=1) + "\n", encoding="utf-8")
    return device


def _described(gpu: PresentGpu) -> Device:
    """From torch where it is installed, else from the driver and the table's row of the same GPU."""
    known = DEVICES.get(table_name(gpu))
    device = Device(
        name=known.name if known else "-".join(gpu.name.lower().split()),
        device_name=gpu.name,
        compute_capability=gpu.compute_capability,
        total_memory_bytes=known.total_memory_bytes if known else Bytes(gpu.memory_mib * _MIB_BYTES),
        sm_count=known.sm_count if known else 0,
        unified_memory=known.unified_memory if known else False,
    )
    return _with_torch(device)


def _with_torch(device: Device) -> Device:
    """Memory and multiprocessors as torch reports them."""
    try:
        import torch
    except ImportError:
        return device
    if not torch.cuda.is_available():
        return device
    properties = torch.cuda.get_device_properties(0)
    return replace(
        device,
        total_memory_bytes=Bytes(properties.total_memory),
        sm_count=properties.multi_processor_count,
        unified_memory=bool(properties.is_integrated),
    )

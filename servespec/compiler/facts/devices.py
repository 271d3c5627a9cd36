"""The device table: what the engine can ask a GPU, for the GPUs that a spec may name.

``total_memory_bytes`` is what ``torch.cuda.get_device_properties`` reports, which is a little less than
NVML's total (a measured H200: 150,109,880,320 against 150,754,820,096 bytes) and far from the size on the
box.  The engine's batch defaults read NVML's total; no device here lies between the two and a threshold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from servespec.provenance import Sourced
from servespec.units import Bytes

MIB_BYTES = 1 << 20
GIB_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One kind of GPU, or the CPU (capability 0.0, no memory of its own).

    ``device_name`` is the name that NVML and torch report; the engine's rules look for words in it.
    ``unified_memory``: the GPU's memory is the machine's.
    """

    name: str
    device_name: str
    compute_capability: tuple[int, int]
    total_memory_bytes: Bytes
    sm_count: int
    unified_memory: bool = False


def is_sm100(device: Device) -> bool:
    """Compute capability 10.x, the family the engine's larger graph defaults are for.

    Source: vllm/platforms/interface.py, Platform.is_device_capability_family(100).
    """
    return device.compute_capability[0] == 10


def is_cpu(device: Device) -> bool:
    return device.name == "cpu"


DEVICE_FORMAT = 1

DEVICE_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "required": [
            "format",
            "name",
            "device_name",
            "compute_capability",
            "memory_bytes",
            "sm_count",
            "unified_memory",
        ],
        "additionalProperties": False,
        "properties": {
            "format": {"const": DEVICE_FORMAT},
            "name": {"type": "string", "minLength": 1},
            "device_name": {"type": "string"},
            "compute_capability": {"type": "string", "pattern": r"^\d{1,2}\.\d$"},
            "memory_bytes": {"type": "integer", "minimum": 0},
            "sm_count": {"type": "integer", "minimum": 0},
            "unified_memory": {"type": "boolean"},
        },
    }
)
"""JSON Schema of a device file; a reader validates with it before :func:`device_from_json`."""


def device_to_json(device: Device) -> dict[str, Any]:
    """The JSON form of a device, which a device file holds."""
    major, minor = device.compute_capability
    return {
        "format": DEVICE_FORMAT,
        "name": device.name,
        "device_name": device.device_name,
        "compute_capability": f"{major}.{minor}",
        "memory_bytes": device.total_memory_bytes,
        "sm_count": device.sm_count,
        "unified_memory": device.unified_memory,
    }


def device_from_json(data: Mapping[str, Any]) -> Device:
    """The device of a mapping that is valid against :data:`DEVICE_SCHEMA`."""
    major, minor = data["compute_capability"].split(".")
    return Device(
        name=data["name"],
        device_name=data["device_name"],
        compute_capability=(int(major), int(minor)),
        total_memory_bytes=Bytes(data["memory_bytes"]),
        sm_count=data["sm_count"],
        unified_memory=data["unified_memory"],
    )


_TORCH = "torch device properties"
_OUT_OF_MEMORY = "torch out-of-memory message"
_NVIDIA = "NVIDIA product tables"
_ESTIMATE = "estimate: "


def _row(device: Device, package: str, version: str, quote: str, note: str = "", path: str = "") -> Sourced[Device]:
    return Sourced(device, "device", package, version, path or device.device_name, quote, note)


def _gib(gib: float) -> Bytes:
    """Bytes of a size that its source prints with two decimals."""
    return Bytes(round(gib * 1024) * MIB_BYTES)


def _mib(mib: int) -> Bytes:
    return Bytes(mib * MIB_BYTES)


def _device(
    name: str, device_name: str, capability: tuple[int, int], memory: Bytes, sms: int, unified: bool = False
) -> Device:
    return Device(
        name=name,
        device_name=device_name,
        compute_capability=capability,
        total_memory_bytes=memory,
        sm_count=sms,
        unified_memory=unified,
    )


DEVICE_FACTS: tuple[Sourced[Device], ...] = (
    _row(
        _device("gb200", "NVIDIA GB200", (10, 0), _gib(184.31), 152),
        _OUT_OF_MEMORY,
        "",
        "GPU 0 has a total capacity of 184.31 GiB",
        "memory to 0.01 GiB",
    ),
    _row(
        _device("b200", "NVIDIA B200", (10, 0), _mib(182642), 148),
        _TORCH,
        "2.8",
        "name='NVIDIA B200', major=10, minor=0, total_memory=182642MB, multi_processor_count=148",
        "182631 to 182642 MiB were seen",
    ),
    _row(
        _device("gb300", "NVIDIA GB300", (10, 3), _gib(276.50), 152),
        _OUT_OF_MEMORY,
        "",
        "GPU 0 has a total capacity of 276.50 GiB",
        "memory to 0.01 GiB; SM count is an estimate, as of GB200",
    ),
    _row(
        _device("b300", "NVIDIA B300 SXM6 AC", (10, 3), _gib(267.69), 148),
        _OUT_OF_MEMORY,
        "",
        "GPU 0 has a total capacity of 267.69 GiB",
        "memory to 0.01 GiB; SM count is an estimate, as of B200",
    ),
    _row(
        _device("h100", "NVIDIA H100 80GB HBM3", (9, 0), _mib(81089), 132),
        _TORCH,
        "2.7.0",
        "name='NVIDIA H100 80GB HBM3', major=9, minor=0, total_memory=81089MB, multi_processor_count=132",
        "81082 to 81090 MiB were seen",
    ),
    _row(
        _device("h100-nvl", "NVIDIA H100 NVL", (9, 0), Bytes(99_456_909_312), 132),
        _TORCH,
        "2.5.1",
        "gpu_name='NVIDIA H100 NVL', gpu_total_bytes=99456909312",
    ),
    _row(
        _device("h200", "NVIDIA H200", (9, 0), Bytes(150_109_880_320), 132),
        "driver query",
        "580.159.04",
        "cuDeviceTotalMem 150109880320, 132 multiprocessors, NVML total 150754820096",
        "measured 2026-11-30; torch 2.11.0 reports the same 143155 MiB",
    ),
    _row(
        _device("h20", "NVIDIA H20", (9, 0), _mib(97285), 78),
        _TORCH,
        "",
        "name='NVIDIA H20', major=9, minor=0, total_memory=97285MB, multi_processor_count=78",
    ),
    _row(
        _device("a100-80", "NVIDIA A100-SXM4-80GB", (8, 0), _gib(79.14), 108),
        _OUT_OF_MEMORY,
        "",
        "GPU 0 has a total capacity of 79.14 GiB",
        "memory to 0.01 GiB; the SXM4 card with ECC on",
    ),
    _row(
        _device("a100-40", "NVIDIA A100-SXM4-40GB", (8, 0), _gib(39.39), 108),
        _NVIDIA,
        "",
        "40960MiB",
        _ESTIMATE + "NVML's total less the share that an A100 80 GB reserves",
    ),
    _row(
        _device("l4", "NVIDIA L4", (8, 9), _gib(22.03), 58),
        _NVIDIA,
        "",
        "23034MiB",
        _ESTIMATE + "NVML's total less about 2 %",
    ),
    _row(
        _device("l40s", "NVIDIA L40S", (8, 9), _mib(45589), 142),
        _TORCH,
        "",
        "name='NVIDIA L40S', major=8, minor=9, total_memory=45589MB, multi_processor_count=142",
    ),
    _row(
        _device("a10g", "NVIDIA A10G", (8, 6), _mib(22723), 80),
        _TORCH,
        "",
        "name='NVIDIA A10G', total_memory=22723MB",
        "SM count from the product table",
    ),
    _row(
        _device("rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), _mib(97250), 188),
        _TORCH,
        "2.7.1",
        "name='NVIDIA RTX PRO 6000 Blackwell Server Edition', major=12, minor=0, total_memory=97250MB, "
        "multi_processor_count=188",
    ),
    _row(
        _device("rtx-5090", "NVIDIA GeForce RTX 5090", (12, 0), _gib(31.36), 170),
        _OUT_OF_MEMORY,
        "",
        "GPU 0 has a total capacity of 31.36 GiB",
        "memory to 0.01 GiB; 31.34 to 31.37 were seen; SM count from the product table",
    ),
    _row(
        _device("rtx-4090", "NVIDIA GeForce RTX 4090", (8, 9), _gib(23.64), 128),
        _OUT_OF_MEMORY,
        "",
        "GPU 0 has a total capacity of 23.64 GiB",
        "memory to 0.01 GiB; SM count from the product table",
    ),
    _row(
        _device("gb10", "NVIDIA GB10", (12, 1), _gib(121.69), 48, unified=True),
        "vLLM start-up log",
        "",
        "Free memory on device (110.37/121.69 GiB) on startup",
        "DGX Spark; NVML does not answer for this GPU and the engine falls back to torch's total",
    ),
    _row(
        _device("cpu", "cpu", (0, 0), Bytes(0), 0, unified=True),
        "none",
        "",
        "",
        "the machine's memory is not a property of the device kind",
    ),
)

DEVICES: Mapping[str, Device] = MappingProxyType({fact.value.name: fact.value for fact in DEVICE_FACTS})


def device_named(name: str) -> Device | None:
    """The device of the table that a name means, in capitals too; None where there is none."""
    return DEVICES.get(name.lower())

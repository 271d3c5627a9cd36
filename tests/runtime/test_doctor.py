"""`doctor` on made-up machines: what each reading says, and what mends it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.runtime import doctor
from servespec.runtime.probe import PresentGpu

H200 = PresentGpu("NVIDIA H200", 143771, (9, 0), 143000)


def readings(monkeypatch: pytest.MonkeyPatch, *gpus: PresentGpu, flashinfer: str | None = None) -> dict[str, list[str]]:
    monkeypatch.setattr(doctor, "present_gpus", lambda: gpus)
    monkeypatch.setattr(doctor, "version_of", lambda _: flashinfer)
    return {one.name: [one.said, one.mend] for one in doctor.readings()}


def test_a_gpu_without_flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = readings(monkeypatch, H200)

    assert found["gpu"] == ["NVIDIA H200, 143771 MiB, 143000 MiB free, 9.0: h200", ""]
    assert found["flashinfer"] == ["none", "pip install 'servespec[gpu]'"]


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = readings(monkeypatch)

    assert found["gpu"] == [
        "none that a driver lists", "install NVIDIA's driver, or serve with `hardware.gpu: cpu`",
    ]  # fmt: skip
    assert found["flashinfer"] == ["none, and no GPU that would use it", ""]


def test_what_is_there_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert readings(monkeypatch, H200, flashinfer="0.6.1")["flashinfer"] == ["0.6.1", ""]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n", "8.0 GiB of 32.0 GiB free"),
        ("MemTotal:       33554432 kB\n", "this system does not tell"),
        (None, "this system does not tell"),
    ],
)
def test_the_memory_of_the_machine(
    told: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meminfo"
    if told is not None:
        file.write_text(told)
    monkeypatch.setattr(doctor, "_MEMORY_FILE", file)

    assert readings(monkeypatch)["memory"] == [said, ""]


def test_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "present_gpus", lambda: (H200,))
    text, read = (CliRunner().invoke(app, ["doctor", "--format", form]).stdout for form in ("text", "json"))
    rows = json.loads(read)

    assert [set(row) for row in rows] == [{"name", "said", "mend"}] * len(rows)
    assert [line.split()[0] for line in text.splitlines()] == [row["name"] for row in rows]
    assert [row["said"] for row in rows if row["name"] == "gpu"] == [
        "NVIDIA H200, 143771 MiB, 143000 MiB free, 9.0: h200"
    ]

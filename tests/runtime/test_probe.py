"""What the driver's tool says of a GPU, read; a row that is no GPU's is left out."""

import pytest

from servespec.runtime import probe
from servespec.runtime.probe import PresentGpu, present_gpus

H200 = PresentGpu("NVIDIA H200", 143771, (9, 0), 143000)


def gpus_of(monkeypatch: pytest.MonkeyPatch, *rows: list[str]) -> tuple[PresentGpu, ...]:
    monkeypatch.setattr(probe, "driver_rows", lambda *_: list(rows))
    return present_gpus()


def test_a_row_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus_of(monkeypatch, ["NVIDIA H200", "143771", "9.0", "143000"]) == (H200,)


@pytest.mark.parametrize("free", ["[N/A]", "14³"])
def test_free_memory_that_is_not_told(monkeypatch: pytest.MonkeyPatch, free: str) -> None:
    (found,) = gpus_of(monkeypatch, ["NVIDIA H200", "143771", "9.0", free])

    assert found.free_mib is None


@pytest.mark.parametrize(
    "row",
    [
        ["NVIDIA H200", "143771", "9.³", "143000"],
        ["NVIDIA H200", "143771", "³.0", "143000"],
        ["NVIDIA H200", "14³", "9.0", "143000"],
        ["NVIDIA H200", "143771", "[N/A]", "143000"],
        ["NVIDIA H200", "143771", "9", "143000"],
        ["NVIDIA H200", "143771", "9.0"],
    ],
)
def test_a_row_without_its_numbers_is_left_out(monkeypatch: pytest.MonkeyPatch, row: list[str]) -> None:
    """Superscripts are digits, and no numbers."""
    assert gpus_of(monkeypatch, row, ["NVIDIA H200", "143771", "9.0", "143000"]) == (H200,)

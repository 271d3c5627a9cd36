"""Memory that a GPU has back, or has not, as a stand-in for the driver's tool says it."""

import stat
import sys
from pathlib import Path

import pytest

from servespec.diagnostics import Place
from servespec.runtime import device_memory
from servespec.runtime.device_memory import DeviceUse, device_use, not_returned

PLACE = Place("engine.log")

TOOL = """#!{python}
import json, sys
from pathlib import Path
folder = Path({folder!r})
with (folder / "asked").open("a") as asked:
    asked.write(" ".join(sys.argv[1:]) + "\\n")
said = json.loads((folder / "said").read_text())
if said.get("fails"):
    sys.exit(9)
print("\\n".join(said["apps" if "compute-apps" in " ".join(sys.argv) else "gpus"]))
"""


class Driver:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def says(self, gpus: list[str], apps: list[str]) -> None:
        import json

        (self.folder / "said").write_text(json.dumps({"gpus": gpus, "apps": apps}))

    def fails(self) -> None:
        (self.folder / "said").write_text('{"fails": true}')

    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    program = tmp_path / "nvidia-smi"
    program.write_text(TOOL.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(device_memory, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(device_memory, "_LOOK_SECONDS", 0.05)
    return Driver(tmp_path)


def test_use_is_read_for_the_gpus_of_the_launch(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.says(["GPU-a, 512", "GPU-b, 0"], ["GPU-a, 41", "GPU-a, 42", "GPU-b, [N/A]"])

    assert device_use(2) == DeviceUse({"GPU-a": 512, "GPU-b": 0}, {"GPU-a": frozenset({41, 42}), "GPU-b": frozenset()})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-x")
    device_use(2)
    assert [line.split()[:2] for line in driver.asked()] == [["-i", "0,1"]] * 2 + [["-i", "3,GPU-x"]] * 2


def test_memory_that_is_back_is_no_finding(driver: Driver) -> None:
    driver.says(["GPU-a, 512"], ["GPU-a, 41"])
    before = device_use(1)
    driver.says(["GPU-a, 700"], ["GPU-a, 41"])

    assert not_returned(before, 1, PLACE) == ()


@pytest.mark.parametrize(
    ("apps", "who"),
    [(["GPU-a, 41", "GPU-a, 99"], "new on it: process 99"), (["GPU-a, 41"], "the driver names no new process")],
)
def test_memory_that_stays_is_a_warning(driver: Driver, apps: list[str], who: str) -> None:
    driver.says(["GPU-a, 512", "GPU-b, 100"], ["GPU-a, 41"])
    before = device_use(2)
    driver.says(["GPU-a, 72704", "GPU-b, 100"], apps)

    (finding,) = not_returned(before, 2, PLACE)

    assert (finding.code, finding.message) == (
        "L019",
        f"GPU `GPU-a` has 70.5 GiB less free than before the launch; {who}",
    )


def test_the_driver_has_some_seconds(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.says(["GPU-a, 512"], [])
    before = device_use(1)
    driver.says(["GPU-a, 72704"], [])
    monkeypatch.setattr(device_memory, "_PATIENCE_SECONDS", 30.0)
    monkeypatch.setattr(device_memory.time, "sleep", lambda _: driver.says(["GPU-a, 600"], []))

    assert not_returned(before, 1, PLACE) == ()


def test_without_a_driver_nothing_is_said(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.fails()
    assert device_use(1) is None
    assert not_returned(None, 1, PLACE) == ()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert device_use(1) is None

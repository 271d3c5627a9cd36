"""Memory that a GPU has back, or has not, as a stand-in for the driver's tool says it."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from servespec.diagnostics import Place
from servespec.runtime import device_memory
from servespec.runtime.device_memory import DeviceUse, device_use, not_returned

PLACE = Place("engine.log")

Held = Mapping[int | str, int | str]
Said = tuple[int, Held]

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


@pytest.fixture
def engine() -> Iterator[tuple[int, int]]:
    """An engine's first process, which has ended, and one that it left in its session."""
    first = subprocess.Popen(
        ["/bin/sh", "-c", "/bin/sleep 60 >/dev/null & echo $!"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    left = int(first.communicate()[0])
    yield first.pid, left
    os.kill(left, signal.SIGKILL)


OTHER = os.getpid()
"""A process that no engine here started."""
UNSEEN = 1 << 30
"""A process that is not among those of this machine."""


def test_use_is_read_for_the_gpus_of_the_launch(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.says(["GPU-a, 512", "GPU-b, 0"], ["GPU-a, 41, 300", "GPU-a, 42, [N/A]", "GPU-b, [N/A], [N/A]"])

    assert device_use(2) == DeviceUse({"GPU-a": 512, "GPU-b": 0}, {"GPU-a": {41: 300, 42: None}, "GPU-b": {}})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-x")
    device_use(2)
    assert [line.split()[:2] for line in driver.asked()] == [["-i", "0,1"]] * 2 + [["-i", "3,GPU-x"]] * 2


def messages(driver: Driver, engine_pid: int | None, before: Said, after: Said) -> list[str]:
    """What is found of GPU `a`, where ``before`` and ``after`` are its use and each process with what it holds."""
    driver.says(*lines(before))
    earlier = device_use(1)
    driver.says(*lines(after))
    found = not_returned(earlier, 1, engine_pid, PLACE)
    assert {finding.code for finding in found} <= {"L019"}
    return [finding.message for finding in found]


def lines(said: Said) -> tuple[list[str], list[str]]:
    used, held = said
    return [f"a, {used}"], [f"a, {pid}, {mib}" for pid, mib in held.items()]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((512, {41: 400}), (700, {41: 400}), id="noise"),
        pytest.param((512, {}), (25_500, {OTHER: 24_900}), id="a launch that began later"),
        pytest.param((9_000, {OTHER: 8_900}), (25_500, {OTHER: 25_400}), id="a launch that was loading"),
        pytest.param((25_500, {OTHER: 24_900}), (512, {}), id="a launch that has ended"),
        pytest.param((9_000, {UNSEEN: 8_900}), (25_500, {UNSEEN: 25_400}), id="unseen, but there before"),
    ],
)
def test_what_others_hold_is_no_finding(driver: Driver, engine: tuple[int, int], before: Said, after: Said) -> None:
    assert messages(driver, engine[0], before, after) == []


def test_a_process_that_the_engine_left_is_named(driver: Driver, engine: tuple[int, int]) -> None:
    first, left = engine

    assert messages(driver, first, (512, {41: 400}), (72_704, {41: 400, left: 72_000})) == [
        f"GPU `a` has 70.5 GiB less free than before the launch; left of the engine: process {left}"
    ]


def test_what_others_took_does_not_hide_what_is_left(driver: Driver, engine: tuple[int, int]) -> None:
    first, left = engine

    (message,) = messages(driver, first, (512, {}), (72_704, {left: 10_240, OTHER: 61_440}))

    assert "10.5 GiB less free than before the launch, besides 60.0 GiB that others took" in message
    assert message.endswith(f"; left of the engine: process {left}")


def test_what_an_ended_process_gave_back_does_not_hide_what_is_left(driver: Driver, engine: tuple[int, int]) -> None:
    first, left = engine

    (message,) = messages(driver, first, (20_992, {OTHER: 20_480}), (20_992, {left: 20_480}))

    assert message == f"GPU `a` has 20.0 GiB less free than before the launch; left of the engine: process {left}"


@pytest.mark.parametrize(
    ("held", "who"),
    [
        ({}, "the driver names no process that holds it, and one that it does not show may"),
        ({"[N/A]": "[N/A]"}, "the driver names no process that holds it, and one that it does not show may"),
        ({UNSEEN: 72_000}, f"not known whose: process {UNSEEN}"),
        ({OTHER: "[N/A]"}, f"not the engine's, holding an amount that is not known: process {OTHER}"),
    ],
    ids=["no process", "no number", "unseen process", "unseen amount"],
)
def test_what_the_driver_does_not_tell_is_said(driver: Driver, engine: tuple[int, int], held: Held, who: str) -> None:
    assert messages(driver, engine[0], (512, {}), (72_704, held)) == [
        f"GPU `a` has 70.5 GiB less free than before the launch; {who}"
    ]


def test_only_the_gpus_that_lack_memory_are_named(driver: Driver) -> None:
    driver.says(["GPU-a, 512", "GPU-b, 100"], [])
    before = device_use(2)
    driver.says(["GPU-a, 72704", "GPU-b, 100"], [])

    (finding,) = not_returned(before, 2, 1, PLACE)

    assert "GPU `GPU-a` has 70.5 GiB less" in finding.message


def test_an_engine_that_was_never_started_has_taken_nothing(driver: Driver) -> None:
    assert messages(driver, None, (512, {}), (72_704, {})) == []


def test_the_driver_has_some_seconds(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.says(["GPU-a, 512"], [])
    before = device_use(1)
    driver.says(["GPU-a, 72704"], [])
    monkeypatch.setattr(device_memory, "_PATIENCE_SECONDS", 30.0)
    monkeypatch.setattr(device_memory.time, "sleep", lambda _: driver.says(["GPU-a, 600"], []))

    assert not_returned(before, 1, 1, PLACE) == ()


def test_without_a_driver_nothing_is_said(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.fails()
    assert device_use(1) is None
    assert not_returned(None, 1, 1, PLACE) == ()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert device_use(1) is None

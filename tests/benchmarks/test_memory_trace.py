"""What a trace of the allocator makes of a history, and which part of a start is recorded."""

import importlib.util
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import memory_trace
import pytest

MIB = 1 << 20
EMBEDDING, TIMED, KEPT = ["wrapper.py:4425:generate_example_value"], ["benchmarking.py:383:benchmark_gpu"], ["kept.py"]


def history(*events: tuple[str, int, int, int]) -> dict[str, Any]:
    """Of action, MiB, address and place; segments of the graphs' own pool are told from others."""
    return {
        "events": [[action, size * MIB, address, 0, place] for action, size, address, place in events],
        "frames": [EMBEDDING, TIMED, KEPT],
        "segments": [
            {"bytes": 9 * MIB, "pool": [0, 0]},
            {"bytes": 6 * MIB, "pool": [0, 1]},
            {"bytes": 2, "pool": [0, 1]},
        ],
    }


def test_a_profile_tells_what_was_held_at_its_highest_and_what_is_left() -> None:
    found = memory_trace._profile(
        history(
            ("alloc", 5, 1, 2),
            ("alloc", 7, 2, 0),
            ("alloc", 3, 3, 1),
            ("free_requested", 7, 2, 0),  # still held until the device is done with it
            ("free_completed", 7, 2, 0),
            ("free_completed", 3, 3, 1),
            ("alloc", 3, 3, 1),
            ("free_completed", 3, 3, 1),
        )
    )

    assert found["peak_bytes"] == 15 * MIB
    assert [(one["bytes"] // MIB, one["where"]) for one in found["at_peak"]] == [(5, KEPT), (7, EMBEDDING), (3, TIMED)]
    assert found["left"] == [{"bytes": 5 * MIB, "where": KEPT}]
    assert found["of_timed_kernels"] == [{"by": "benchmark_gpu", "bytes": 3 * MIB, "times": 2}]


def test_a_capture_is_what_follows_its_eager_run() -> None:
    """An address that serves again is another tensor; what was taken before is nobody's."""
    found = memory_trace._capture(
        history(
            ("alloc", 8, 1, 2),
            ("segment_free", 8, 1, 2),
            ("alloc", 4, 1, 2),
            ("free_requested", 4, 1, 2),
            ("alloc", 2, 1, 2),
            ("free_requested", 1, 7, 2),
        )
    )

    assert found == {"events": [[1, 4 * MIB], [-1], [3, 2 * MIB]], "segments_bytes": [2, 6 * MIB]}


class Mode(Enum):
    FULL = 1
    PIECEWISE = 2


class Manager:
    def capture(self, create_forward_fn: Callable[..., None], modes: list[Mode]) -> None:
        for mode in modes:
            for warmup in (True, False):
                create_forward_fn(SimpleNamespace(cg_mode=mode), warmup=warmup)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The hook's module as no process imports it by itself: without a folder."""
    monkeypatch.delenv("SERVESPEC_ALLOCATOR_HISTORY", raising=False)
    path = Path(memory_trace.HOOK) / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("allocator_history", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("keeps", "recorded"), [(True, ["begins", "Manager-PIECEWISE"]), (False, [])])
def test_the_first_piecewise_graph_alone_is_recorded(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, keeps: bool, recorded: list[str]
) -> None:
    told: list[str] = []
    monkeypatch.setattr(hook, "begin", lambda: told.append("begins"))
    monkeypatch.setattr(hook, "end", told.append)
    monkeypatch.setitem(hook.STATE, "keeps", keeps)
    manager_type = type("Manager", (Manager,), {})
    made: list[bool] = []
    hook._watch_captures(SimpleNamespace(CudaGraphManager=manager_type))

    manager_type().capture(
        lambda _, warmup: made.append(warmup), [Mode.FULL, Mode.PIECEWISE, Mode.PIECEWISE, Mode.FULL]
    )

    assert told == recorded
    assert made == [True, False] * 4


def test_the_last_graph_is_recorded_too(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(hook, "begin", lambda: told.append("begins"))
    monkeypatch.setattr(hook, "end", told.append)
    monkeypatch.setitem(hook.STATE, "keeps", True)
    manager_type = type("Manager", (Manager,), {})
    hook._watch_captures(SimpleNamespace(CudaGraphManager=manager_type))

    manager_type().capture(lambda *_, **__: None, [Mode.PIECEWISE])

    assert told == ["begins", "Manager-PIECEWISE"]

"""Processor time of the processes that can bound a cell."""

import os
import time
from pathlib import Path

import pytest

from servespec.runtime.bench.cpu_time import CpuTimes, busiest_share, cpu_times, front_end_pids

LOG = """(APIServer pid=480) INFO 11-30 13:17:22 starting
(EngineCore pid=1079) INFO 11-30 13:20:29 [model_runner.py:1163] Graph capturing finished
(ApiServer_1 pid=512) INFO ready
said by (APIServer pid=9) itself
"""


def test_the_front_end_is_told_by_its_lines(tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text(LOG)

    assert front_end_pids(tmp_path / "engine.log") == {480, 512}
    assert front_end_pids(tmp_path / "absent.log") == frozenset()


def test_the_busiest_process_counts() -> None:
    before = CpuTimes(10.0, {1: 5.0, 2: 1.0, 3: 0.0})
    after = CpuTimes(12.0, {1: 5.5, 2: 2.9})

    assert busiest_share(before, after) == 0.95
    assert busiest_share(before, CpuTimes(12.0, {})) is None


def test_a_process_that_works_is_seen_to_work() -> None:
    own = os.getpid()
    before = cpu_times([own])
    while cpu_times([own]).seconds[own] - before.seconds[own] < 0.1:
        pass
    share = busiest_share(before, cpu_times([own]))

    assert share is not None
    assert share > 0


def test_a_process_that_is_gone_is_left_out() -> None:
    assert cpu_times([2**22 + 1]).seconds == {}
    assert cpu_times([]).at == pytest.approx(time.monotonic(), abs=5)

"""What kernels of 4-bit experts allocate, against live peaks of published traces."""

from dataclasses import replace

import measured_launches as measured
import memory_table as table
import pytest

from servespec.compiler.facts.memory import LEFT_BY_PROFILE
from servespec.compiler.memory.caching_allocator import PerfectAllocator
from servespec.compiler.memory.expert_workspace import EXPERTS, ExpertWorkspace, expert_workspace
from servespec.compiler.memory.line import MemoryLine

GIB = 1 << 30
MINIMAX = ExpertWorkspace(experts=128, per_token=4, widths=(768 // 16, 768 // 2, 2 * 6144))
"""MiniMax-M3 on four ranks."""
LAUNCHES = {launch.name: launch for launch in measured.launches()}
PLAN = LAUNCHES["MiniMax-M3 EAGLE3 K=3, plan"]


@pytest.mark.parametrize(("tokens", "peak_gib"), [(4096, 0.290), (8192, 0.678)])
def test_live_peaks_that_were_traced(tokens: int, peak_gib: float) -> None:
    assert MINIMAX.size_bytes(tokens) / GIB == pytest.approx(peak_gib, abs=0.0005)


@pytest.mark.parametrize(
    ("tokens", "rows"),
    [
        # A mean share of 128 tokens takes the tile before, of 64: one of each expert and 254 full ones.
        (4096, (128 + (16384 - 128) // 64) * 64),
        (8192, (128 + (32768 - 128) // 192) * 192),
        # Fewer tokens than experts begin as many tiles of the smallest kind.
        (16, 64 * 8),
        # Beyond the widest tile.
        (1 << 17, (128 + ((1 << 19) - 128) // 192) * 192),
    ],
)
def test_rows_are_padded_to_tiles(tokens: int, rows: int) -> None:
    assert MINIMAX.rows(tokens) == rows


def test_tuning_may_take_a_wider_tile() -> None:
    assert MINIMAX.most_growth(4096) == pytest.approx((128 + (16384 - 128) // 256) * 256 / 24448)


def test_a_call_gives_back_what_it_takes() -> None:
    memory = PerfectAllocator()

    MINIMAX.run(memory, 4096)

    assert memory.reserved_bytes == MINIMAX.size_bytes(4096)
    assert memory.kept_bytes == 0


def lines(launch: measured.Launch) -> dict[str, MemoryLine]:
    resolution, _, _ = table.subject_of(launch)
    ledger = table.ledger_of(resolution, table.lines_of(launch), None)
    assert ledger is not None
    return {line.owner: line for line in ledger.lines}


def test_graphs_hold_two_segments_of_it_as_was_traced() -> None:
    """The engine's own workspace is not there then, and a step has the kernels' instead."""
    found = lines(PLAN)

    assert found[f"target: {EXPERTS} in FULL graphs"].size / GIB == 0.5625
    assert EXPERTS not in found
    step_bytes = 16384 * (6 * 6144 + 3 * 12288 // 4) * 2 + MINIMAX.size_bytes(16384)
    assert found["peak of a step"].size == step_bytes - LEFT_BY_PROFILE.value


@pytest.mark.parametrize(
    ("section", "fields"),
    [("hardware", {"gpu": "h200", "count": 4}), ("kernel", {"moe_backend": "cutlass"})],
)
def test_other_kernels_have_a_workspace_of_the_engines(section: str, fields: dict[str, object]) -> None:
    spec = {**PLAN.spec, "attention": {}, section: fields}
    resolution, _, _ = table.subject_of(replace(PLAN, spec=spec))

    assert expert_workspace(resolution, resolution.request.target) is None

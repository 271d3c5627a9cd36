"""Pools of launches that shared a GPU: every row is within its bound, or named as one that is not."""

from dataclasses import replace

import measured_launches as measured
import pool_table as table
import pytest


def test_rows_are_within_their_bound_but_for_the_named_ones() -> None:
    """A row that comes within its bound leaves the table of misses, so that none can be better than it is said."""
    far = {(row.launch, row.stage) for row in table.pool_rows() if not row.is_within}

    assert far == set(table.MISSED_POOLS)


def test_the_segment_that_a_cause_names_is_the_only_one_that_comes_near() -> None:
    """What is missing of the pool is what one segment would keep if the capture outputs lay in it."""
    ((name, stage),) = table.MISSED_POOLS
    (row,) = (one for one in table.pool_rows() if (one.launch, one.stage) == (name, stage))
    (launch,) = (one.whole for one in measured.shared_launches() if one.whole.name == name)
    outputs = next(line.size for line in table.lines_of(launch) if line.owner == "target: capture outputs")

    off = sorted(abs(-row.off_mib - (size - outputs) / measured.MIB) for size in table.eager_segments(launch))
    assert off[0] < 0.15 * row.measured_mib < 0.25 * row.measured_mib < off[1]


def test_what_was_measured_lies_within_the_bars() -> None:
    """Those of the named ones too: what is not known of a pool is in its bar."""
    for launch in measured.shared_launches():
        lines = table.lines_of(launch.whole)
        low, high = (tuple(replace(line, size=getattr(line, end)) for line in lines) for end in ("low", "high"))
        for row in (one for one in table.pool_rows() if one.launch == launch.whole.name):
            ends = [table.pool_bytes_of(launch.whole, row.stage, ended) / measured.MIB for ended in (low, high)]
            assert ends[0] - table.POOL_BOUND_MIB <= row.measured_mib <= ends[1] + table.POOL_BOUND_MIB, row


def test_no_two_launches_have_one_name() -> None:
    names = [launch.whole.name for launch in measured.shared_launches()]

    assert len(names) == len(set(names)) == 17


def test_every_launch_of_the_files_has_its_rows() -> None:
    stages: dict[str, list[str]] = {launch.whole.name: [] for launch in measured.shared_launches()}
    for row in table.pool_rows():
        stages[row.launch].append(row.stage)

    assert all(stages[name] == ["target"] for name in ("k0", "8b-k0", "30b-k0"))
    assert all(stages[name] == ["target", "step 0"] for name in ("k1", "8b-k1", "30b-k1"))
    drafting = [found for name, found in stages.items() if not name.endswith(("k0", "k1"))]
    assert len(drafting) == 11
    assert all(found == ["target", "step 0", "later steps"] for found in drafting)


def test_graphs_that_are_no_longer_planned_are_not_counted() -> None:
    """Uniform graphs of draft step 0 above a load at which steps are not uniform."""
    (load,) = (launch for launch in measured.shared_launches() if launch.whole.name == "load")
    (row,) = (one for one in table.pool_rows() if (one.launch, one.stage) == ("load", "step 0"))

    reserved = {one.routine: one.pool_bytes / measured.MIB for one in load.rows if one.stage == "step 0"}
    assert reserved == {"step0_piecewise": 256, "step0_uniform": 350}
    assert row.measured_mib == 256


@pytest.mark.parametrize(
    ("measured_mib", "predicted_mib", "is_within"),
    [(1000.0, 860.0, True), (1000.0, 840.0, False), (100.0, 130.0, True), (0.0, 30.0, True), (0.0, 40.0, False)],
)
def test_a_share_or_a_size_bounds_a_row(measured_mib: float, predicted_mib: float, is_within: bool) -> None:
    assert table.PoolRow("a", "a.json", "target", measured_mib, predicted_mib).is_within == is_within


def test_no_row_is_within_its_bound_whatever_is_predicted() -> None:
    """Neither nothing nor twice as much would do for a runner that reserved something."""
    held = [row for row in table.pool_rows() if row.measured_mib]

    assert len(held) == 34
    assert not any(replace(row, predicted_mib=share * row.measured_mib).is_within for row in held for share in (0, 2))

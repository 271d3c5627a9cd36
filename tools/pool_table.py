"""What each runner's captures reserved in launches that shared the GPU, beside what the memory ledger says of it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from measured_launches import MIB, SharedLaunch, shared_launches
from memory_table import lines_of, pool_bytes_of, subject_of

POOL_BOUND = 0.15
POOL_BOUND_MIB = 32.0
"""A row is within its bound where it is within either of the two; every pool that took anything took more MiB."""

_OUTPUTS_PLACE = (
    "of the segments that the ledger plays of the first eager run only one, of 384 MiB, comes near what is missing: "
    "the 64 MiB of capture outputs would keep all of it if they lay there; which free block they take is not known"
)
MISSED_POOLS: Mapping[tuple[str, str], str] = {("8b-k0", "target"): _OUTPUTS_PLACE}
"""Rows that are further off than their bound, and why; one that comes within it has to leave this table."""


@dataclass(frozen=True, slots=True)
class PoolRow:
    """What the captures of one manager reserved, by measurement and by the ledger."""

    launch: str
    file: str
    stage: str
    measured_mib: float
    predicted_mib: float

    @property
    def off_mib(self) -> float:
        return self.predicted_mib - self.measured_mib

    @property
    def error(self) -> float | None:
        """None where nothing was reserved, of which nothing is a share."""
        return self.off_mib / self.measured_mib if self.measured_mib else None

    @property
    def is_within(self) -> bool:
        is_near = self.error is not None and abs(self.error) <= POOL_BOUND
        return is_near or abs(self.off_mib) <= POOL_BOUND_MIB


@cache
def pool_rows() -> tuple[PoolRow, ...]:
    return tuple(row for launch in shared_launches() for row in _rows_of(launch))


def _rows_of(launch: SharedLaunch) -> Iterator[PoolRow]:
    lines = lines_of(launch.whole)
    for stage, size in _measured(launch).items():
        yield PoolRow(
            launch.whole.name, launch.whole.file, stage, size / MIB, pool_bytes_of(launch.whole, stage, lines) / MIB
        )


def _measured(launch: SharedLaunch) -> Counter[str]:
    """By manager, without rows whose widest graph is no longer planned."""
    _, shapes, _ = subject_of(launch.whole)
    planned = {(shape.routine.value, shape.tokens) for shape in shapes}
    found: Counter[str] = Counter()
    for row in launch.rows:
        if (row.routine, row.widest_tokens) in planned:
            found[row.stage] += row.pool_bytes
    return found

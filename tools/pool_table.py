"""What each runner's captures reserved in launches that shared the GPU, beside what the memory ledger says of it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from measured_launches import MIB, Launch, SharedLaunch, shared_launches
from memory_table import lines_of, pool_bytes_of, subject_of

from servespec.compiler.graphs.shape import widest_tokens
from servespec.compiler.list_effects import split_bound_tokens
from servespec.compiler.memory.caching_allocator import CachingAllocator
from servespec.compiler.memory.capture_outputs import eager_attention
from servespec.compiler.memory.graph_manager import splits_of, target_manager
from servespec.compiler.memory.model_pass import Attention
from servespec.compiler.memory.stage import WHOLE_MODEL
from servespec.units import Tokens

POOL_BOUND = 0.15
POOL_BOUND_MIB = 32.0
"""A row is within its bound where it is within either of the two; every pool that took anything took more MiB."""


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


def split_bound_of(launch: Launch) -> Tokens:
    """The widest step that may split a request's KV cache."""
    _, shapes, lowering = subject_of(launch)
    return split_bound_tokens(lowering, widest_tokens(shapes), shapes)


def eager_segments(launch: Launch) -> tuple[int, ...]:
    """Of the target's first eager run, as wide as its widest graph, by the ledger's model of the allocator."""
    resolution, shapes, lowering = subject_of(launch)
    target = target_manager(resolution, shapes, splits_of(resolution, shapes, lowering), WHOLE_MODEL)
    memory, tokens = CachingAllocator(), Tokens(max(target.widest_piecewise, target.widest_full))
    bound = split_bound_of(launch)
    target.forward.run(memory, tokens, eager_attention(tokens, bound, Attention.OF_SHORT_CONTEXT))
    return tuple(sum(size for size, *_ in blocks) for _, blocks in memory.layout())


def _outputs_place() -> str:
    (row,) = (one for one in pool_rows() if (one.launch, one.stage) == _OUTPUTS)
    (launch,) = (one.whole for one in shared_launches() if one.whole.name == row.launch)
    (outputs,) = (line.size / MIB for line in lines_of(launch) if line.owner == "target: capture outputs")
    kept = max(segment / MIB for segment in eager_segments(launch)) - outputs
    return (
        f"{-row.off_mib:.0f} MiB are missing; of the segments that the ledger plays of the first eager run only the "
        f"widest comes near that, of which the {outputs:.0f} MiB of capture outputs would keep {kept:.0f} more if they "
        "lay there; which free block they take is not known"
    )


_OUTPUTS = ("8b-k0", "target")
MISSED_POOLS: Mapping[tuple[str, str], Callable[[], str]] = {_OUTPUTS: _outputs_place}
"""Rows that are further off than their bound, and why; one that comes within it has to leave this table."""

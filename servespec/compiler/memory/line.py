"""One line of the memory ledger: who holds bytes of one device, how many, and how well that is known."""

from dataclasses import dataclass
from enum import StrEnum

from servespec.provenance import Basis
from servespec.units import Bytes


class Part(StrEnum):
    """What a line is summed under."""

    WEIGHTS = "weights"
    ACTIVATIONS = "activations"
    GRAPHS = "graphs"
    KV_CACHE = "kv_cache"
    OTHER = "other"
    RUNTIME = "runtime"


class Holder(StrEnum):
    """Whose the bytes are."""

    TARGET = "target"
    DRAFTER = "drafter"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """Bytes of one device, on the rank that holds most; ``low`` and ``high`` are the ends of the error bar.

    ``is_budgeted`` says whether the engine counts them when it sizes the KV cache; ``because`` is the formula with its
    numbers, for a person.  ``moves_estimate`` says that the engine's estimate of its graphs is as much higher where
    these turn out to be more, because it captures the same graphs for it.
    """

    owner: str
    holder: Holder
    part: Part
    size: Bytes
    low: Bytes
    high: Bytes
    basis: Basis
    because: str
    is_budgeted: bool = True
    moves_estimate: bool = False

    def __post_init__(self) -> None:
        assert self.low <= self.size <= self.high, self


def exact_line(owner: str, holder: Holder, part: Part, size: Bytes, because: str) -> MemoryLine:
    """A line that is a count of stored elements."""
    return MemoryLine(
        owner=owner, holder=holder, part=part, size=size, low=size, high=size, basis=Basis.EXACT, because=because
    )


def line_within(
    *,
    owner: str,
    holder: Holder,
    part: Part,
    size: Bytes,
    low_share: float,
    high_share: float,
    because: str,
) -> MemoryLine:
    """A line with shares of its size as error bars; exact where there are none."""
    return MemoryLine(
        owner=owner,
        holder=holder,
        part=part,
        size=size,
        # A float rounds what has more than 53 bits, which must not move an end of the bar across the size.
        low=Bytes(min(size, int(size * (1 - low_share)))),
        high=Bytes(max(size, int(size * (1 + high_share)))),
        basis=Basis.ESTIMATE if low_share or high_share else Basis.EXACT,
        because=because,
    )

"""Figures of a bench, made from its results document: for the terminal and for the documentation."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from servespec.runtime.bench.ratios import geometric_mean

Json = Mapping[str, Any]

# chosen: such a process hardly waits for anything
HOST_BOUND_CORES: Final = 0.9


@dataclass(frozen=True, slots=True)
class ArmAtLoad:
    """The cells of one arm at one number of requests at a time, a cell for each round."""

    arm: str
    concurrency: int
    cells: tuple[Json, ...]

    def median_of(self, name: str) -> float | None:
        """Of the cells that have ``name``, in its own unit; None where none has."""
        values = [cell[name] for cell in self.cells if cell[name] is not None]
        return median(values) if values else None

    @property
    def is_host_bound(self) -> bool:
        """Whether the busiest API server or the client is at work nearly all the time."""
        busiest = (self.median_of(name) for name in ("api_server_cores", "client_cores"))
        return any(cores is not None and cores >= HOST_BOUND_CORES for cores in busiest)

    def full_share(self) -> float | None:
        """How much of the target's tokens ran on FULL graphs, padding left out; None where no step was counted."""
        by_mode: Counter[str] = Counter()
        for cell in self.cells:
            by_mode.update({mode: ran["unpadded_tokens"] for mode, ran in (cell["steps"] or {}).items()})
        return by_mode["FULL"] / by_mode.total() if by_mode.total() else None


def arms_at_loads(results: Json) -> Iterator[ArmAtLoad]:
    """Every arm at every load of the design, those without a cell too."""
    for arm in results["arms"]:
        for load in results["design"]["concurrencies"]:
            own = (cell for cell in results["cells"] if (cell["arm"], cell["concurrency"]) == (arm, load))
            yield ArmAtLoad(arm, load, tuple(own))


def mean_ratio(one: Json) -> float:
    """The geometric mean of the pairs, which the interval is of; an earlier file has their median and the pairs."""
    return geometric_mean(one["ratios"])


def ratio_row(one: Json) -> tuple[str, str, str, str, str]:
    """Arms, requests at a time, mean, 95 % interval ('' where one pair is all there is), pairs."""
    interval = "" if one["low_95"] is None else f"{one['low_95']:.3f} to {one['high_95']:.3f}"
    arms = f"{one['arm']} / {one['over']}"
    return arms, str(one["concurrency"]), f"{mean_ratio(one):.3f}", interval, str(len(one["ratios"]))

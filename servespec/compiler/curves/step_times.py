"""Step times of an earlier run, with and without graphs, and where graphs pay by them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode

PAYS: Final = "pays"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSize:
    """One size in one mode of graphs: ``ratio`` is eager over the graph, with the 95 % interval of its mean.

    ``size`` is in requests of a decode, and in tokens of a step with prompts; ``query_len`` is None of the latter.
    """

    mode: CudaGraphMode
    size: int
    query_len: int | None
    ratio: float
    low_95: float
    high_95: float
    pays: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """``identity`` is what the engine was started with, apart from memory, address and graphs."""

    name: str
    identity: Mapping[str, str]
    sizes: tuple[TimedSize, ...]


def step_times_of(document: Mapping[str, Any], name: str) -> StepTimes:
    """From the document that `servespec steps` writes."""
    return StepTimes(
        name=name, identity=document["identity"], sizes=tuple(size for one in document["sizes"] for size in _timed(one))
    )


def _timed(size: Mapping[str, Any]) -> Iterator[TimedSize]:
    is_decode = size["kind"] == "decode"
    for mode in size["modes"]:
        if mode["eager_over_graph"] is not None:
            yield TimedSize(
                mode=CudaGraphMode(mode["mode"]),
                size=size["requests"] if is_decode else size["tokens"],
                query_len=size["query_len"],
                pays=mode["verdict"] == PAYS,
                **mode["eager_over_graph"],
            )


class Bound(StrEnum):
    """What an eager step waits for."""

    HOST = "host"
    DEVICE = "device"
    UNCLEAR = "unclear"
    """Eager was slower, and it may have been noise."""


HOST_BOUND_FROM: Final = 1.1
"""Chosen: from here on the host takes a tenth longer to start the kernels of a step than the device to run them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphGain:
    """What graphs of one mode gain at neighbouring sizes: eager over graph, the least and the most.

    Sizes are in requests of a decode, and in tokens of a step with prompts, whose ``query_len`` is None.
    """

    mode: CudaGraphMode
    query_len: int | None
    from_size: int
    to_size: int
    bound: Bound
    least: float
    most: float


def graph_gains(times: StepTimes) -> Iterator[GraphGain]:
    """Neighbouring timed sizes that wait for the same, decodes before steps with prompts, small ones first."""

    def kind(one: TimedSize) -> tuple[bool, int, str]:
        return one.query_len is None, one.query_len or 0, one.mode

    for _, of_kind in groupby(sorted(times.sizes, key=lambda one: (*kind(one), one.size)), key=kind):
        for bound, same in groupby(of_kind, key=_bound):
            yield _gain(list(same), bound)


def _bound(one: TimedSize) -> Bound:
    if one.ratio < HOST_BOUND_FROM:
        return Bound.DEVICE
    return Bound.HOST if one.low_95 > 1 else Bound.UNCLEAR


def _gain(same: Sequence[TimedSize], bound: Bound) -> GraphGain:
    ratios = [one.ratio for one in same]
    return GraphGain(
        mode=same[0].mode,
        query_len=same[0].query_len,
        from_size=same[0].size,
        to_size=same[-1].size,
        bound=bound,
        least=min(ratios),
        most=max(ratios),
    )

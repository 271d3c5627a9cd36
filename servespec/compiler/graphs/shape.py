"""One graph, and the rows and folds over a plan's graphs.

A plan's graphs are one tuple of :class:`Shape`; inventory, coverage, the union of token counts, memory, the hand-off
to the engine and the comparison after launch are folds over it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.units import Requests, Tokens, TokensPerRequest


class Runner(StrEnum):
    TARGET = "target"
    DRAFTER = "drafter"
    ENGINE = "engine"


class Routine(StrEnum):
    """What a graph records; the names of the plan's rows."""

    PIECEWISE = "piecewise"
    UNIFORM_DECODE = "uniform_decode"
    ADAPTIVE_VERIFICATION = "adaptive_verification"
    STEP0_PIECEWISE = "step0_piecewise"
    STEP0_UNIFORM = "step0_uniform"
    LATER_STEPS = "later_steps"
    BLOCK = "block"
    BLOCK_PIECEWISE = "block_piecewise"


IN_TOKENS = frozenset(
    {Routine.PIECEWISE, Routine.ADAPTIVE_VERIFICATION, Routine.STEP0_PIECEWISE, Routine.BLOCK_PIECEWISE}
)
"""Routines whose sizes are token counts; the others count requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One CUDA graph (a PIECEWISE one stands for the graphs of all pieces at one size).

    ``requests`` is None where a graph does not bound them; ``query_len`` is set for uniform batches,
    ``max_query_len`` for adaptive verification; ``draft_steps`` for a later-steps graph that is specialised to a K.
    """

    runner: Runner
    routine: Routine
    mode: CudaGraphMode
    tokens: Tokens
    requests: Requests | None = None
    query_len: TokensPerRequest | None = None
    max_query_len: TokensPerRequest | None = None
    draft_steps: int | None = None
    active_loras: int = 0
    ubatches: int = 1

    @property
    def size(self) -> int:
        """The size in the routine's own unit."""
        if self.routine in IN_TOKENS:
            return self.tokens
        assert self.requests is not None, self
        return self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The graphs of one runner, routine, mode, query length and specialised K.

    ``sizes`` ascend, in ``unit``; ``graphs`` counts every LoRA case and microbatch twin of each size.
    """

    runner: Runner
    routine: Routine
    mode: CudaGraphMode
    unit: str
    query_len: TokensPerRequest | None
    draft_steps: int | None
    sizes: tuple[int, ...]
    graphs: int
    active_loras: tuple[int, ...]
    ubatches: tuple[int, ...]
    max_requests: Requests | None
    max_tokens: Tokens

    def holds(self, shape: Shape) -> bool:
        return _row_key(shape) == (self.runner, self.routine, self.mode, self.query_len, self.draft_steps)


def rows_of(shapes: Iterable[Shape]) -> tuple[Row, ...]:
    """The inventory: one row per routine and query length, in order of first appearance."""
    ordered: dict[tuple[object, ...], list[Shape]] = {}
    for shape in shapes:
        ordered.setdefault(_row_key(shape), []).append(shape)
    return tuple(_row(group) for group in ordered.values())


def union_tokens(shapes: Iterable[Shape]) -> tuple[Tokens, ...]:
    """Every token count that some graph captures, ascending."""
    return tuple(sorted({shape.tokens for shape in shapes}))


def widest_tokens(shapes: Iterable[Shape]) -> Tokens:
    """The largest token count captured, 0 where there is no graph."""
    return max((shape.tokens for shape in shapes), default=Tokens(0))


def _row_key(shape: Shape) -> tuple[object, ...]:
    query_len = shape.query_len or shape.max_query_len
    return (shape.runner, shape.routine, shape.mode, query_len, shape.draft_steps)


def _row(shapes: list[Shape]) -> Row:
    first = shapes[0]
    bounded = [shape.requests for shape in shapes if shape.requests is not None]
    return Row(
        runner=first.runner,
        routine=first.routine,
        mode=first.mode,
        unit="tokens" if first.routine in IN_TOKENS else "requests",
        query_len=first.query_len or first.max_query_len,
        draft_steps=first.draft_steps,
        sizes=tuple(size for size, _ in groupby(sorted(shape.size for shape in shapes))),
        graphs=len(shapes),
        active_loras=tuple(sorted({shape.active_loras for shape in shapes})),
        ubatches=tuple(sorted({shape.ubatches for shape in shapes})),
        max_requests=max(bounded, default=None),
        max_tokens=widest_tokens(shapes),
    )

"""Which graph a batch runs from: the engine's rule, and the one servespec installs.

The engine looks only at the FULL graphs of the next captured token count, whichever tier they belong to; where that
count is another tier's, it misses a larger graph of the batch's own tier.  servespec's rule keeps one ladder a query
length.  Both try FULL graphs before PIECEWISE ones, and fall back to eager.
Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.dispatch, _init_candidates, _is_compatible.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.shape import Shape
from servespec.units import Requests, Tokens, TokensPerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step. ``query_len`` is set where all requests are decodes of that many tokens each.

    ``max_query_len`` is None for a step with a prefill in it; such a step never takes a decode graph.
    """

    requests: Requests
    tokens: Tokens
    query_len: TokensPerRequest | None = None
    max_query_len: TokensPerRequest | None = None
    active_loras: int = 0
    ubatches: int = 1
    draft_steps: int | None = None


def uniform_batch(requests: Requests, query_len: TokensPerRequest, draft_steps: int | None = None) -> Batch:
    """A decode step of ``requests`` requests at ``query_len`` tokens each."""
    return Batch(
        requests=requests,
        tokens=Tokens(requests * query_len),
        query_len=query_len,
        max_query_len=query_len,
        draft_steps=draft_steps,
    )


@dataclass(frozen=True, slots=True)
class _Ladder:
    """Shapes grouped by token count, ascending."""

    counts: tuple[Tokens, ...]
    groups: tuple[tuple[Shape, ...], ...]

    def next_group(self, tokens: Tokens) -> tuple[Shape, ...]:
        at = bisect_left(self.counts, tokens)
        return self.groups[at] if at < len(self.groups) else ()


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Finds graphs for the batches of one manager.

    ``ladders`` are tried in order; the first compatible shape of each ladder's next group wins.
    """

    ladders: Mapping[TokensPerRequest | None, tuple[_Ladder, ...]]
    fallback: tuple[_Ladder, ...]

    def dispatch(self, batch: Batch) -> Shape | None:
        """The shape that ``batch`` replays, or None where it runs eagerly."""
        for ladder in self.ladders.get(batch.query_len, self.fallback):
            for shape in ladder.next_group(batch.tokens):
                if _serves(shape, batch):
                    return shape
        return None


def engine_dispatcher(shapes: Iterable[Shape]) -> Dispatcher:
    """The rule of the released engine, over the shapes of one manager."""
    return Dispatcher({}, _by_lora_case(tuple(shapes)))


def split_dispatcher(shapes: Iterable[Shape]) -> Dispatcher:
    """One ladder for each query length, then the graphs that serve any batch."""
    every = tuple(shapes)
    free = tuple(shape for shape in every if shape.query_len is None)
    query_lens = {shape.query_len for shape in every if shape.query_len is not None}
    ladders: dict[TokensPerRequest | None, tuple[_Ladder, ...]] = {
        q: _by_lora_case(tuple(shape for shape in every if shape.query_len == q)) + _by_lora_case(free)
        for q in query_lens
    }
    return Dispatcher(ladders, _by_lora_case(free))


def _by_lora_case(shapes: tuple[Shape, ...]) -> tuple[_Ladder, ...]:
    """FULL ladders before PIECEWISE ones, one for each LoRA case: a case never hides another's sizes."""
    cases = sorted({shape.active_loras for shape in shapes})
    return tuple(
        _ladder(shape for shape in shapes if shape.mode is mode and shape.active_loras == case)
        for mode in (CudaGraphMode.FULL, CudaGraphMode.PIECEWISE)
        for case in cases
    )


def _ladder(shapes: Iterable[Shape]) -> _Ladder:
    by_tokens = attrgetter("tokens")
    groups = [(tokens, tuple(group)) for tokens, group in groupby(sorted(shapes, key=by_tokens), by_tokens)]
    return _Ladder(tuple(tokens for tokens, _ in groups), tuple(group for _, group in groups))


def _serves(shape: Shape, batch: Batch) -> bool:
    return (
        shape.active_loras == batch.active_loras
        and shape.ubatches == batch.ubatches
        and (shape.requests is None or shape.requests >= batch.requests)
        and _query_lengths_agree(shape, batch)
        and shape.draft_steps in (None, batch.draft_steps)
    )


def _query_lengths_agree(shape: Shape, batch: Batch) -> bool:
    if shape.query_len is not None and shape.query_len != batch.query_len:
        return False
    if shape.max_query_len is None:
        return True
    return batch.max_query_len is not None and shape.max_query_len >= batch.max_query_len

"""How far the graphs of a spec may reach where it leaves that open, the best first, and the fields that say so.

An extent is a reach of decode graphs and one of prefill graphs; a density says how far apart their sizes lie.  One is
better than another by the first of these that differs:

1. in both kinds it reaches as far as the unmodified engine's graphs, or else half as far, a quarter, and so on;
2. it covers more decode batches with FULL graphs;
3. its decode sizes lie closer together, so that a batch is padded less;
4. it covers wider prefill steps with PIECEWISE graphs;
5. its prefill sizes lie closer together.

Decode comes before prefill because a request takes a decode step for every few tokens of its answer, and prefill steps
of thousands of tokens lose little to launches.  The engine's own reach comes before either, so that a bound never
trades the graphs of one kind for the last few of the other.  A kind whose cap or list is written is held as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.graph_sizes import DECODE_EPSILON, PREFILL_CAP, PREFILL_EPSILON
from servespec.compiler.graphs.grid import DecodeGrid, PrefillGrid
from servespec.compiler.graphs.managers import GraphFrame, managers_of
from servespec.compiler.graphs.split import CaptureFields, SizeDefaults
from servespec.compiler.graphs.stock import TokenList, rounded_up_requests
from servespec.compiler.graphs.tiers import Tier
from servespec.units import Requests, Tokens, TokensPerRequest

# chosen: at four times the default share a size costs up to a quarter of a step in padding
_STRIDES = (1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeReach:
    """A cap in requests and a budget in tokens, None without one.

    ``covered_requests`` counts the batch sizes that get a FULL graph; ``widest_tokens`` are the tokens of the widest.
    """

    covered_requests: Requests
    widest_tokens: Tokens
    cap_requests: Requests
    budget_tokens: Tokens | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Both reaches; None is a kind that the spec holds or that is not captured."""

    decode: DecodeReach | None
    prefill_tokens: Tokens | None


Rows = tuple[tuple[Extent, ...], ...]
"""Extents that cover as many decode requests in each row, the most first, with prefill reaches that narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """How many times as wide as by default the strides of each grid are."""

    decode: int = 1
    prefill: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Every choice that a spec leaves open.

    ``densities`` are finest first; ``stock`` is how far the unmodified engine's graphs reach, in decode requests and
    prefill tokens.
    """

    fields: CaptureFields
    defaults: SizeDefaults
    rows: Rows
    densities: tuple[Density, ...]
    stock: tuple[Requests, Tokens]

    @property
    def widest(self) -> Extent:
        return self.rows[0][0]

    @property
    def sparsest(self) -> Density:
        return self.densities[-1]

    def by_share(self, rows: Rows) -> Iterator[Rows]:
        """The extents that reach as far as the unmodified engine's graphs, then those that reach half as far, ..."""
        for halvings in range(max(self.stock).bit_length()):
            requests, tokens = (reach >> halvings for reach in self.stock)
            reaching = (tuple(one for one in row if _reaches(one, requests, tokens)) for row in rows)
            yield tuple(row for row in reaching if row)
        yield rows

    def fields_of(self, extent: Extent, density: Density) -> CaptureFields:
        """A cap where the default grid is taken, a list where a wider one is."""
        fields = self.fields
        if extent.prefill_tokens is not None:
            fields = _with_prefill(fields, extent.prefill_tokens, density.prefill, self.defaults)
        return fields if extent.decode is None else _with_decode(fields, extent.decode, density.decode)


def _reaches(extent: Extent, requests: int, tokens: int) -> bool:
    """A kind that is held reaches what it reaches."""
    reaches_decode = extent.decode is None or extent.decode.covered_requests >= requests
    return reaches_decode and (extent.prefill_tokens is None or extent.prefill_tokens >= tokens)


def _with_prefill(fields: CaptureFields, cap: Tokens, strides: int, defaults: SizeDefaults) -> CaptureFields:
    if strides == 1:
        return replace(fields, prefill_cap_tokens=cap)
    grid = PrefillGrid(epsilon=strides * PREFILL_EPSILON.value, every_small_count=defaults.every_small_count)
    return replace(fields, prefill_sizes_tokens=grid.sizes(cap))


def _with_decode(fields: CaptureFields, reach: DecodeReach, strides: int) -> CaptureFields:
    """A list ends at what is covered, because one that a budget cuts gains no entry there; `[]` is no reach of 0."""
    budgeted = replace(fields, decode_budget_tokens=reach.budget_tokens, unlimited_budget=reach.budget_tokens is None)
    if strides == 1 or not reach.covered_requests:
        return replace(budgeted, decode_cap_requests=reach.cap_requests)
    grid = DecodeGrid(epsilon=strides * DECODE_EPSILON.value)
    return replace(budgeted, decode_sizes_requests=grid.sizes(reach.covered_requests))


# Spaces


def space_of(
    frame: GraphFrame,
    fields: CaptureFields,
    defaults: SizeDefaults,
    stock: TokenList,
    *,
    one_list: bool,
) -> Space | None:
    """What the fields leave open; None where that is nothing.

    ``one_list`` says that the engine gets a single list of token counts: both kinds then reach equally far, unless one
    of them or the budget is written.
    """
    frees_prefill = _is_prefill_free(frame, fields)
    reaches = _decode_reaches(frame, fields) if _is_decode_free(frame, fields) else ()
    if fields.legacy or not (frees_prefill or reaches):
        return None
    if one_list and frees_prefill and reaches and not _has_budget(fields):
        rows = tuple(_one_list_rows(frame))
    else:
        caps = _prefill_caps(frame) if frees_prefill else (None,)
        rows = tuple(tuple(Extent(decode=reach, prefill_tokens=cap) for cap in caps) for reach in reaches or (None,))
    return Space(
        fields=fields,
        defaults=defaults,
        rows=rows,
        densities=tuple(_densities(frame, frees_prefill=frees_prefill, frees_decode=bool(reaches))),
        stock=_stock_reach(frame, stock),
    )


def _has_budget(fields: CaptureFields) -> bool:
    return fields.unlimited_budget or fields.decode_budget_tokens is not None


def _is_prefill_free(frame: GraphFrame, fields: CaptureFields) -> bool:
    is_written = fields.prefill_cap_tokens is not None or fields.prefill_sizes_tokens is not None
    return not is_written and frame.mode.mixed_mode() is not CudaGraphMode.NONE


def _is_decode_free(frame: GraphFrame, fields: CaptureFields) -> bool:
    is_written = fields.decode_cap_requests is not None or fields.decode_sizes_requests is not None
    captures = frame.mode.separate_routine() and frame.mode.decode_mode() is CudaGraphMode.FULL
    return not is_written and captures


def _densities(frame: GraphFrame, *, frees_prefill: bool, frees_decode: bool) -> Iterator[Density]:
    """Tiers keep a ladder each, which no one list can hold; adaptive verification has sizes of its own."""
    has_ladder = frees_decode and not frame.tiers and not frame.adaptive_verification
    for decode in _STRIDES if has_ladder else (1,):
        for prefill in _STRIDES if frees_prefill else (1,):
            yield Density(decode=decode, prefill=prefill)


def _prefill_caps(frame: GraphFrame) -> tuple[Tokens, ...]:
    """The sizes of the default grid, widest first; beyond its cap graphs gain nothing that was measured."""
    limit = managers_of(frame)[0].mixed_limit_tokens
    most = min(PREFILL_CAP.value, frame.max_num_batched_tokens)
    return PrefillGrid().sizes(Tokens(most if limit is None else min(most, limit)))[::-1]


def _decode_reaches(frame: GraphFrame, fields: CaptureFields) -> tuple[DecodeReach, ...]:
    """Reaches of which a wider one always has a wider graph, widest first; a written budget is in all of them.

    A budget of its own is only for tiers: where query lengths fall, it covers batches on both sides of a tier that is
    too wide.  It is never below ``max_num_seqs``, so that no drafter loses steps of one token a request to it.
    """
    written = fields.decode_budget_tokens
    caps = DecodeGrid().sizes(frame.max_num_seqs)
    if frame.adaptive_verification:
        return tuple(_best_of_each_width([_varlen_reach(frame, cap, written) for cap in caps]))
    found = [_reach(frame, cap, written) for cap in caps]
    if frame.tiers and not _has_budget(fields):
        widths = {reach.widest_tokens for reach in found if reach.widest_tokens >= frame.max_num_seqs}
        found += [_reach(frame, frame.max_num_seqs, width) for width in widths]
    return tuple(_best_of_each_width(found))


def _best_of_each_width(found: list[DecodeReach]) -> Iterator[DecodeReach]:
    """From the widest on, those that cover more than every one with a graph no wider."""
    ordered = sorted(found, key=lambda one: (one.widest_tokens, -one.covered_requests, one.cap_requests))
    kept: list[DecodeReach] = []
    for reach in ordered:
        if reach.covered_requests > (kept[-1].covered_requests if kept else 0):
            kept.append(reach)
    yield from reversed(kept)


def _reach(frame: GraphFrame, cap: Requests, budget: Tokens | None) -> DecodeReach:
    most = frame.max_num_batched_tokens
    within = most if budget is None else min(most, budget)
    spans = [(tier, min(tier.to_requests, cap, Requests(within // tier.query_len))) for tier in _tiers(frame)]
    return DecodeReach(
        covered_requests=Requests(sum(max(last - tier.from_requests + 1, 0) for tier, last in spans)),
        widest_tokens=Tokens(max((last * tier.query_len for tier, last in spans), default=0)),
        cap_requests=cap,
        budget_tokens=budget,
    )


def _varlen_reach(frame: GraphFrame, cap: Requests, budget: Tokens | None) -> DecodeReach:
    """Adaptive verification, whose graphs no budget bounds; beyond its limit a step verifies no more tokens."""
    widest = Tokens(min(cap * frame.query_len, frame.max_num_batched_tokens))
    is_limited = frame.verify_limit_tokens is not None and frame.verify_limit_tokens <= widest
    chosen = min(widest if is_limited else widest // frame.query_len, frame.max_num_seqs)
    return DecodeReach(
        covered_requests=_covered_either_way(frame, _all_drafts_reach(frame, cap, budget), Requests(chosen)),
        widest_tokens=widest,
        cap_requests=cap,
        budget_tokens=budget,
    )


def _all_drafts_reach(frame: GraphFrame, cap: Requests, budget: Tokens | None) -> Requests:
    """Of uniform graphs, which a budget does bound, where the load decides."""
    most = frame.max_num_batched_tokens
    within = most if budget is None else min(most, budget)
    return Requests(min(cap, within // frame.query_len, frame.adaptive_from_requests - 1))


def _covered_either_way(frame: GraphFrame, all_drafts: Requests, chosen: Requests) -> Requests:
    """Batch sizes whose every way has a graph: all drafts below the band, chosen ones above it, both within."""
    below, start = frame.fixed_below_requests - 1, frame.adaptive_from_requests
    within = min(all_drafts, chosen) - below
    return Requests(min(all_drafts, below) + max(within, 0) + max(chosen - start + 1, 0))


def _tiers(frame: GraphFrame) -> tuple[Tier, ...]:
    whole = Tier(Requests(1), frame.max_num_seqs, frame.num_speculative_tokens)
    return frame.tiers or (whole,)


def _one_list_rows(frame: GraphFrame) -> Iterator[tuple[Extent, ...]]:
    """Lists up to some token count, which every runner takes what it can of."""
    most = min(max(PREFILL_CAP.value, frame.max_num_seqs * frame.query_len), frame.max_num_batched_tokens)
    lists = [
        Extent(decode=_list_reach(frame, tokens), prefill_tokens=tokens)
        for tokens in reversed(PrefillGrid().sizes(Tokens(most)))
    ]
    for _, row in groupby(lists, key=lambda one: one.decode and one.decode.covered_requests):
        yield tuple(row)


def _list_reach(frame: GraphFrame, tokens: Tokens) -> DecodeReach:
    if not frame.adaptive_verification:
        return _reach(frame, frame.max_num_seqs, tokens)
    cap = Requests(min(frame.max_num_seqs, -(-tokens // frame.query_len)))
    return _varlen_reach(frame, cap, tokens)


def _stock_reach(frame: GraphFrame, stock: TokenList) -> tuple[Requests, Tokens]:
    def widest(query_len: TokensPerRequest) -> Requests:
        counts = rounded_up_requests(stock.sizes, query_len, stock.maximum, frame.max_num_seqs)
        return max(counts, default=Requests(0))

    covered = sum(
        max(min(tier.to_requests, widest(tier.query_len)) - tier.from_requests + 1, 0) for tier in _tiers(frame)
    )
    return Requests(covered), Tokens(min(stock.maximum, PREFILL_CAP.value))

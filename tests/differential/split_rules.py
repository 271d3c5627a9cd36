"""The sizes of the split settings, written a second time from the rules' own words, as plain sets of numbers.

Where a rule refers to the engine ("stock list", "stock counts"), the numbers are the engine's: they come in as
:class:`Stock`, which a test reads off the oracle.  Nothing here is shared with ``servespec.compiler.graphs``.
Source: vLLM pull request "separate prefill/decode graph sizes", Configuration and Graphs per runner.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.differential.engine_oracle import Graph
from tests.differential.sides import Answers, Case, DrafterCase, k_of_each

Rows = dict[tuple[str, int | None, int | None], tuple[int, ...]]
"""Sizes by routine, query length and the K that a graph is specialised to."""


class Fields(NamedTuple):
    """The five fields as written; None is not set, an empty tuple is `[]`."""

    prefill_cap: int | None = None
    prefill_list: tuple[int, ...] | None = None
    decode_cap: int | None = None
    decode_list: tuple[int, ...] | None = None
    budget: int | None = None
    unlimited: bool = False


class Stock(NamedTuple):
    """The engine's list in tokens, and its target's request counts by query length."""

    tokens: tuple[int, ...]
    counts: Mapping[int, tuple[int, ...]]


def stock_of(answers: Answers) -> Stock:
    """The numbers of a case whose decode graphs are uniform ones; see :func:`with_uniform_decode`."""
    counts: dict[int, set[int]] = {}
    for graph in answers.managers["target"].captured:
        if graph.uniform_token_count is not None and graph.ubatches == 1:
            assert graph.num_requests is not None
            counts.setdefault(graph.uniform_token_count, set()).add(graph.num_requests)
    return Stock(answers.capture_sizes, {q: tuple(sorted(found)) for q, found in counts.items()})


def with_uniform_decode(case: Case) -> Case:
    """The case whose target shows the engine's request counts, whatever the mode of ``case``."""
    return case._replace(mode="FULL_AND_PIECEWISE", adaptive_verification=False)


# -- Grids ------------------------------------------------------------------------------------------------


def decode_grid(cap: int) -> tuple[int, ...]:
    sizes, n = [], 1
    while n < cap:
        sizes.append(n)
        step = 2 ** math.floor(math.log2(max(1, 0.65 * n ** (2 / 3))))
        n += step - n % step
    return (*sizes, cap) if cap > 0 else ()


def prefill_grid(cap: int, every_small_count: bool = False) -> tuple[int, ...]:
    sizes, t = [], 1
    while t < cap:
        sizes.append(t)
        step = 2 ** math.floor(math.log2(min(t, 0.07 * max(t, 4096))))
        t += step - t % step
    small = range(1, min(cap, 32) + 1) if every_small_count else ()
    return tuple(sorted({*sizes, *small, cap}))


def adaptive_verification_grid(cap: int) -> tuple[int, ...]:
    bases = [8, 16, 32, 64, 128, 256, 512]
    doublings = [base * quarters // 4 for base in bases for quarters in (5, 6, 7, 8)]
    every = [1, 2, 4, 8, *doublings, *range(1152, 4097, 128), *range(4352, cap, 256)]
    return (*(t for t in every if t < cap), cap) if cap > 0 else ()


# -- Rules ------------------------------------------------------------------------------------------------


class Sizes(NamedTuple):
    """What the target has: prefill tokens, the decode cap, the counts to choose from (None: the grid), the budget."""

    prefill: tuple[int, ...]
    cap: int
    counts: tuple[int, ...] | None
    budget: float


def target_sizes(case: Case, fields: Fields, stock: Stock, wide: bool, own_ceiling: bool = False) -> Sizes:
    """``wide``: the defaults of compute capability 10.x; ``own_ceiling``: the model's hook sets the list's maximum."""
    cap, counts = _decode(case, fields, stock, wide, own_ceiling)
    return Sizes(_prefill(case, fields, stock, wide), cap, counts, _budget(case, fields, wide))


def _prefill(case: Case, fields: Fields, stock: Stock, wide: bool) -> tuple[int, ...]:
    limit, every = case.max_num_batched_tokens, case.performance_mode == "interactivity"
    if fields.prefill_list is not None:
        return tuple(sorted({t for t in fields.prefill_list if t <= limit}))
    if fields.prefill_cap is not None:
        return prefill_grid(min(fields.prefill_cap, limit), every)
    if wide and case.nothing_set:
        return prefill_grid(min(8192, limit), every)
    return stock.tokens


def _decode(
    case: Case, fields: Fields, stock: Stock, wide: bool, own_ceiling: bool
) -> tuple[int, tuple[int, ...] | None]:
    seqs = case.max_num_seqs
    if fields.decode_list is not None:
        kept = tuple(sorted({n for n in fields.decode_list if n <= seqs}))
        return max(kept, default=0), kept
    if fields.decode_cap is not None:
        return min(fields.decode_cap, seqs), None
    if wide and case.nothing_set:
        return seqs, None
    reachable = {1 + k for k in k_of_each(case)}
    counts = {n for q in reachable for n in stock.counts.get(q, ())}
    if case.nothing_set or own_ceiling:
        return max(counts, default=0), None if own_ceiling else tuple(sorted(counts))
    cap = min(seqs, max((_reach(stock.tokens, q) for q in reachable), default=0))
    return cap, tuple(sorted({*counts, cap} - {0}))


def _reach(tokens: Sequence[int], q: int) -> int:
    """The most requests that the list has room for, whatever ``max_num_seqs`` is."""
    return max((math.ceil(t / q) for t in tokens if math.ceil(t / q) * q <= tokens[-1]), default=0)


def _budget(case: Case, fields: Fields, wide: bool) -> float:
    if fields.unlimited:
        return math.inf
    if fields.budget is not None:
        return fields.budget
    return 4096 if wide and case.nothing_set else math.inf


def decode_sizes(case: Case, sizes: Sizes, q: int, widest: int, cap: int) -> tuple[int, ...]:
    """Counts at ``q`` for batches of up to ``widest`` requests."""
    most = min(cap, int(min(sizes.budget, case.max_num_batched_tokens) // q))
    if sizes.counts is None:
        return decode_grid(min(most, widest))
    wider = [n for n in sizes.counts if n >= widest]
    return tuple(n for n in sizes.counts if n <= most and (n <= widest or n == wider[0]))


def widest_batches(case: Case) -> dict[int, int]:
    """The largest batch of each query length that the target's decode has."""
    return {1 + k: n for n, k in enumerate(k_of_each(case), 1)}


# -- Rows -------------------------------------------------------------------------------------------------


def expected_rows(
    case: Case, fields: Fields, drafter: DrafterCase | None, stock: Stock, wide: bool, own_ceiling: bool = False
) -> Rows:
    """Every row of the split settings, rows without sizes left out."""
    sizes = target_sizes(case, fields, stock, wide, own_ceiling)
    mixed = sizes.prefill if case.mode in ("PIECEWISE", "FULL", "FULL_AND_PIECEWISE") else ()
    full = case.mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    uniform = _uniform(case, sizes) if full else {}
    rows: Rows = {("piecewise", None, None): _within(case, mixed)}
    if case.adaptive_verification and full:
        q = 1 + case.k
        rows["adaptive_verification", q, None] = adaptive_verification_grid(
            min(sizes.cap * q, case.max_num_batched_tokens)
        )
    else:
        rows.update({("uniform_decode", q, None): counts for q, counts in uniform.items()})
    if drafter is not None:
        rows.update(_drafter_rows(case, fields, drafter, sizes, _recorded(rows)))
    return {key: found for key, found in rows.items() if found}


def _within(case: Case, mixed: tuple[int, ...]) -> tuple[int, ...]:
    limit = case.max_num_seqs * (1 + case.k) if case.within_decode_width else math.inf
    return tuple(t for t in mixed if t <= limit)


def _uniform(case: Case, sizes: Sizes) -> dict[int, tuple[int, ...]]:
    return {q: decode_sizes(case, sizes, q, widest, sizes.cap) for q, widest in widest_batches(case).items()}


def _recorded(rows: Rows) -> int:
    """The widest graph of the target, in tokens."""
    in_tokens = ("piecewise", "adaptive_verification")
    return max(
        (max(found) * (1 if routine in in_tokens else q or 1) for (routine, q, _), found in rows.items() if found),
        default=0,
    )


def _drafter_rows(case: Case, fields: Fields, drafter: DrafterCase, sizes: Sizes, recorded: int) -> Rows:
    full = case.mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    if drafter.kind == "autoregressive":
        return _autoregressive(case, fields, drafter, sizes)
    if drafter.kind == "block":
        q = case.k + drafter.extra_query_len
        counts = decode_sizes(case, sizes, q, case.max_num_seqs, min(sizes.cap, recorded // q))
        has_graphs = full or case.mode == "FULL"
        return {("block", q, None): counts if has_graphs else ()}
    rows: Rows = {}
    if full or case.mode == "FULL":
        rows = {("block", q, None): counts for q, counts in _uniform(case, sizes).items()}
    return _multi_module(case, sizes, rows)


def _multi_module(case: Case, sizes: Sizes, rows: Rows) -> Rows:
    """Without breakable graphs the modules have whole graphs only; in mode FULL one for any batch."""
    if case.mode == "FULL":
        return {("block_piecewise", None, None): _within(case, sizes.prefill)}
    return rows


def _autoregressive(case: Case, fields: Fields, drafter: DrafterCase, sizes: Sizes) -> Rows:
    full = case.mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    rows: Rows = {}
    if case.mode in ("PIECEWISE", "FULL", "FULL_AND_PIECEWISE"):
        rows["step0_piecewise", None, None] = _within(case, sizes.prefill)
    if full:
        rows.update({("step0_uniform", q, None): counts for q, counts in _uniform(case, sizes).items()})
    if case.k < 2 or not (full or case.mode == "FULL") or fields.decode_list == ():
        return rows
    later = decode_grid(int(min(case.max_num_seqs, sizes.budget, case.max_num_batched_tokens)))
    specialised = case.schedule is not None and drafter.in_place_metadata
    ks = sorted({*k_of_each(case)} - {0, 1}) if specialised else [None]
    return {**rows, **{("later_steps", 1, k): later for k in ks}}


def rows_of(rows: Iterable[Any]) -> Rows:
    """Our rows in the same form."""
    return {(str(row.routine), row.query_len, row.draft_steps): row.sizes for row in rows if row.sizes}


# -- Dispatch ---------------------------------------------------------------------------------------------


def smallest_graph(
    graphs: Iterable[Graph], requests: int, tokens: int, uniform: int | None, widest: int | None
) -> Graph | None:
    """What a batch should replay: the smallest graph of its own query length, else of any, else PIECEWISE."""

    def rank(graph: Graph) -> tuple[bool, bool, int]:
        return (graph.mode == "PIECEWISE", graph.uniform_token_count is None, graph.num_tokens)

    able = [
        graph
        for graph in graphs
        if graph.num_tokens >= tokens
        and (graph.num_requests is None or graph.num_requests >= requests)
        and graph.uniform_token_count in (None, uniform)
        and (graph.max_query_len is None or (widest is not None and graph.max_query_len >= widest))
    ]
    return min(able, key=rank, default=None)

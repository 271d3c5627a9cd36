"""The sizes that servespec gives each manager: prefill in tokens, decode in requests.

One owner for each decision: :func:`prefill_sizes` the mixed grid, :func:`decode_source` the target's request counts
and their cap, :func:`split_sizes` what each manager takes of them.
Source: vLLM pull request "separate prefill/decode graph sizes", Configuration and Graphs per runner.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.graph_sizes import DECODE_BUDGET, PREFILL_CAP
from servespec.compiler.graphs.grid import (
    DecodeGrid,
    PrefillGrid,
    adaptive_verification_sizes,
    sparse_verification_sizes,
)
from servespec.compiler.graphs.inventory import ManagerSizes, SizedManager, shapes_of
from servespec.compiler.graphs.managers import GraphFrame, Manager, managers_of
from servespec.compiler.graphs.shape import Routine, Runner, Shape, widest_tokens
from servespec.compiler.graphs.stock import TokenList, rounded_up_requests
from servespec.units import Requests, Tokens, TokensPerRequest


class VerificationGrid(StrEnum):
    """Where adaptive verification has graphs, by the spec's words."""

    DENSE = "dense"
    REACHABLE = "reachable"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFields:
    """The five fields and the two legacy ones, as asked; None is 'not set', an empty tuple is `[]`.

    ``decode_budget_tokens`` keeps 'not set' (None) and `unlimited` (``unlimited_budget``) apart.
    """

    prefill_cap_tokens: Tokens | None = None
    prefill_sizes_tokens: tuple[Tokens, ...] | None = None
    decode_cap_requests: Requests | None = None
    decode_sizes_requests: tuple[Requests, ...] | None = None
    decode_budget_tokens: Tokens | None = None
    unlimited_budget: bool = False
    legacy_sizes_tokens: tuple[Tokens, ...] | None = None
    legacy_max_tokens: Tokens | None = None
    verification_grid: VerificationGrid = VerificationGrid.DENSE

    @property
    def legacy(self) -> bool:
        return self.legacy_sizes_tokens is not None or self.legacy_max_tokens is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDefaults:
    """What decides the default of a kind that has neither cap nor list.

    ``wide`` is true on compute capability 10.x; ``decode_grid_off_wide`` where the model's own ceiling makes the
    split grid the default elsewhere too (GPT-OSS).
    """

    wide: bool
    decode_grid_off_wide: bool = False
    every_small_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSource:
    """Where request counts come from. ``counts`` is None for the grid, else the counts that may be captured.

    ``budget_tokens`` bounds n * q, None is no budget.
    """

    cap_requests: Requests
    counts: tuple[Requests, ...] | None
    budget_tokens: Tokens | None
    grid: DecodeGrid = field(default_factory=DecodeGrid)

    def counts_for(self, query_len: TokensPerRequest, widest: Requests, limit_tokens: Tokens) -> tuple[Requests, ...]:
        """Counts for batches of up to ``widest`` requests at ``query_len``, none above ``limit_tokens``.

        Of given counts the first that reaches ``widest`` stays, so that the widest batch has a graph.
        """
        within = limit_tokens if self.budget_tokens is None else min(limit_tokens, self.budget_tokens)
        most = min(self.cap_requests, within // query_len)
        if self.counts is None:
            return self.grid.sizes(Requests(min(most, widest)))
        reaching = min((n for n in self.counts if n >= widest), default=widest)
        return tuple(n for n in self.counts if n <= min(most, reaching))


def prefill_sizes(
    frame: GraphFrame, fields: CaptureFields, defaults: SizeDefaults, stock: TokenList
) -> tuple[Tokens, ...]:
    """Token counts of the mixed routines; `[]` gives none."""
    if fields.legacy:
        return stock.sizes
    step_tokens = frame.max_num_batched_tokens
    if fields.prefill_sizes_tokens is not None:
        return tuple(sorted({t for t in fields.prefill_sizes_tokens if t <= step_tokens}))
    grid = PrefillGrid(every_small_count=defaults.every_small_count)
    if fields.prefill_cap_tokens is not None:
        return grid.sizes(min(fields.prefill_cap_tokens, step_tokens))
    if defaults.wide:
        return grid.sizes(min(PREFILL_CAP.value, step_tokens))
    return stock.sizes


def decode_source(frame: GraphFrame, fields: CaptureFields, defaults: SizeDefaults, stock: TokenList) -> DecodeSource:
    """The target's request counts and the one decode cap of the spec."""
    budget = decode_budget(fields, defaults)
    if fields.decode_sizes_requests is not None:
        kept = tuple(sorted({n for n in fields.decode_sizes_requests if n <= frame.max_num_seqs}))
        return DecodeSource(cap_requests=max(kept, default=Requests(0)), counts=kept, budget_tokens=budget)
    if fields.decode_cap_requests is not None:
        cap = min(fields.decode_cap_requests, frame.max_num_seqs)
        return DecodeSource(cap_requests=cap, counts=None, budget_tokens=budget)
    if fields.legacy:
        return _legacy_source(frame, stock)
    if defaults.wide:
        return DecodeSource(cap_requests=frame.max_num_seqs, counts=None, budget_tokens=budget)
    counts = _stock_counts(frame, stock)
    cap = max(counts, default=Requests(0))
    return DecodeSource(
        cap_requests=cap, counts=None if defaults.decode_grid_off_wide else counts, budget_tokens=budget
    )


def split_sizes(
    frame: GraphFrame, fields: CaptureFields, defaults: SizeDefaults, stock: TokenList
) -> tuple[SizedManager, ...]:
    """Every manager with its own sizes, target first."""
    prefill = prefill_sizes(frame, fields, defaults, stock)
    source = decode_source(frame, fields, defaults, stock)
    later = _later_steps_source(frame, fields, source)
    target, *drafters = managers_of(frame)
    sized = [(target, _sizes(target, frame, prefill, source, fields.verification_grid))]
    recorded = widest_tokens(shapes_of(sized, frame.max_num_seqs))
    for manager in drafters:
        own = later if manager.decode is Routine.LATER_STEPS else _bounded(manager, source, recorded)
        sized.append((manager, _sizes(manager, frame, prefill, own)))
    return tuple(sized)


def split_shapes(
    frame: GraphFrame, fields: CaptureFields, defaults: SizeDefaults, stock: TokenList
) -> tuple[Shape, ...]:
    """Every graph of the plan under a lowering that gives each manager its own sizes."""
    return shapes_of(split_sizes(frame, fields, defaults, stock), frame.max_num_seqs)


def _sizes(
    manager: Manager,
    frame: GraphFrame,
    prefill: tuple[Tokens, ...],
    source: DecodeSource,
    verification: VerificationGrid = VerificationGrid.DENSE,
) -> ManagerSizes:
    mixed_limit = manager.mixed_limit_tokens
    return ManagerSizes(
        mixed_tokens=tuple(t for t in prefill if mixed_limit is None or t <= mixed_limit),
        varlen_tokens=_varlen_tokens(manager, frame, source, verification) if manager.varlen else (),
        decode_requests={
            query_len: source.counts_for(query_len, widest, frame.max_num_batched_tokens)
            for query_len, widest in (manager.fixed_reach if manager.varlen else manager.reach).items()
        },
    )


def _varlen_tokens(
    manager: Manager, frame: GraphFrame, source: DecodeSource, verification: VerificationGrid
) -> tuple[Tokens, ...]:
    """Adaptive verification has its own token grid, is exempt from the budget, and never verifies less than it has
    requests."""
    cap = Tokens(min(source.cap_requests * manager.query_len, frame.max_num_batched_tokens))
    is_sparse = verification is VerificationGrid.SPARSE
    sizes = sparse_verification_sizes(cap, manager.query_len) if is_sparse else adaptive_verification_sizes(cap)
    sizes = tuple(size for size in sizes if size >= frame.fixed_below_requests)
    return sizes if verification is VerificationGrid.DENSE else _up_to_reach(sizes, frame)


def _up_to_reach(sizes: tuple[Tokens, ...], frame: GraphFrame) -> tuple[Tokens, ...]:
    """None beyond the first size that covers what a step can verify."""
    reached = frame.most_verified_tokens
    if reached is None:
        return sizes
    return sizes[: 1 + sum(size < reached for size in sizes)]


def _bounded(manager: Manager, source: DecodeSource, recorded_tokens: Tokens) -> DecodeSource:
    """Block drafters are bounded by the widest graph the target records; the others follow the target's batch."""
    if manager.runner is Runner.TARGET or manager.mixed is not None:
        return source
    cap = min(source.cap_requests, recorded_tokens // manager.query_len)
    return replace(source, cap_requests=Requests(cap))


def _later_steps_source(frame: GraphFrame, fields: CaptureFields, source: DecodeSource) -> DecodeSource:
    """One-token draft decodes have their own grid to max_num_seqs; only `[]` and the budget touch it."""
    disabled = fields.decode_sizes_requests == ()
    cap = Requests(0) if disabled else frame.max_num_seqs
    return DecodeSource(cap_requests=cap, counts=None, budget_tokens=source.budget_tokens)


def decode_budget(fields: CaptureFields, defaults: SizeDefaults) -> Tokens | None:
    """The most tokens of one decode graph under the new fields; None where nothing bounds them."""
    if fields.unlimited_budget:
        return None
    if fields.decode_budget_tokens is not None:
        return fields.decode_budget_tokens
    return DECODE_BUDGET.value if defaults.wide else None


def _stock_counts(frame: GraphFrame, stock: TokenList) -> tuple[Requests, ...]:
    """The union of the request counts that the engine's list gives at each query length."""
    counts: set[Requests] = set()
    for query_len in frame.widest_batch:
        counts.update(rounded_up_requests(stock.sizes, query_len, stock.maximum, frame.max_num_seqs))
    return tuple(sorted(counts))


def _legacy_source(frame: GraphFrame, stock: TokenList) -> DecodeSource:
    """The engine's counts and the cap itself: what the list reaches, within max_num_seqs."""
    reach = max(
        (
            count
            for query_len in frame.widest_batch
            for count in rounded_up_requests(stock.sizes, query_len, stock.maximum, Requests(stock.maximum))
        ),
        default=Requests(0),
    )
    cap = min(reach, frame.max_num_seqs)
    counts = {*_stock_counts(frame, stock), cap} - {0}
    return DecodeSource(cap_requests=Requests(cap), counts=tuple(sorted(counts)), budget_tokens=None)


def resolved_kinds(mode: CudaGraphMode, fields: CaptureFields) -> CudaGraphMode:
    """The mode after `[]`: an empty list takes its kind out of the mode."""
    no_prefill = fields.prefill_sizes_tokens == ()
    no_decode = fields.decode_sizes_requests == ()
    decode = CudaGraphMode.NONE if no_decode else mode.decode_mode()
    mixed = CudaGraphMode.NONE if no_prefill else mode.mixed_mode()
    return _mode_of(decode, mixed, mode)


def _mode_of(decode: CudaGraphMode, mixed: CudaGraphMode, mode: CudaGraphMode) -> CudaGraphMode:
    if not mode.separate_routine():
        return mode if mixed is not CudaGraphMode.NONE else CudaGraphMode.NONE
    if decode is CudaGraphMode.FULL:
        both = mixed is not CudaGraphMode.NONE
        return CudaGraphMode.FULL_AND_PIECEWISE if both else CudaGraphMode.FULL_DECODE_ONLY
    return mixed

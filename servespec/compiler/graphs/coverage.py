"""Which batch runs from which graph: every decode batch, every prefill step, and the mixed steps between tiers.

Coverage follows dispatch, not maxima: a size that some graph exceeds can still run eagerly.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.dispatch import Batch, Dispatcher, uniform_batch
from servespec.compiler.graphs.managers import GraphFrame, Manager, managers_of, own_shapes
from servespec.compiler.graphs.shape import Routine, Runner, Shape, union_tokens
from servespec.units import Requests, Tokens, TokensPerRequest

DispatcherOf = Callable[[Iterable[Shape]], Dispatcher]
"""`engine_dispatcher` or `split_dispatcher`."""


class Ran(StrEnum):
    """How a step runs. UNSCHEDULED: the step budget never lets such a batch run in one step."""

    FULL = "FULL"
    PIECEWISE = "PIECEWISE"
    EAGER = "EAGER"
    UNSCHEDULED = "UNSCHEDULED"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRange:
    """Batches of ``from_requests`` to ``to_requests`` that run the same way, from the same graph.

    ``num_speculative_tokens`` is the K that such batches draft. ``padded_to_requests`` is set for
    FULL uniform graphs, ``padded_to_tokens`` for every graph.
    """

    runner: Runner
    routine: Routine
    from_requests: Requests
    to_requests: Requests
    query_len: TokensPerRequest
    num_speculative_tokens: int
    ran: Ran
    padded_to_requests: Requests | None
    padded_to_tokens: Tokens | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillRange:
    """Steps of ``from_tokens`` to ``to_tokens`` with a prefill or mixed query lengths in them."""

    from_tokens: Tokens
    to_tokens: Tokens
    ran: Ran
    padded_to_tokens: Tokens | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedStep:
    """A decode step at a tier edge whose requests have different query lengths.

    Its drafts were chosen for ``drafted_at_requests`` requests; one request has joined with a single token.
    """

    requests: Requests
    tokens: Tokens
    drafted_at_requests: Requests
    ran: Ran
    padded_to_tokens: Tokens | None


@dataclass(frozen=True, slots=True)
class Coverage:
    decode: tuple[DecodeRange, ...]
    prefill: tuple[PrefillRange, ...]
    mixed: tuple[MixedStep, ...]

    def eager(self, routine: Routine) -> tuple[DecodeRange, ...]:
        """The batch ranges of ``routine`` that would run eagerly."""
        return tuple(r for r in self.decode if r.routine is routine and r.ran is Ran.EAGER)


def coverage_of(frame: GraphFrame, shapes: Sequence[Shape], dispatcher_of: DispatcherOf) -> Coverage:
    """Coverage of every routine over all (n, k(n)) with 1 <= n <= max_num_seqs."""
    target, *drafters = managers_of(frame)
    target_shapes = own_shapes(target, shapes)
    dispatcher = dispatcher_of(target_shapes)
    decode: list[DecodeRange] = []
    for steps in _target_steps(frame, target, target_shapes):
        decode += _ranges(steps, dispatcher)
    for manager in drafters:
        own = own_shapes(manager, shapes)
        for steps in _drafter_steps(frame, manager, own, target_shapes, dispatcher):
            decode += _ranges(steps, dispatcher_of(own))
    return Coverage(
        decode=tuple(decode),
        prefill=tuple(_prefill(frame, target_shapes, dispatcher)),
        mixed=tuple(_mixed_steps(frame, dispatcher)),
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    """The decode steps of one manager: the batch for each number of requests, None where it does not run.

    ``edges`` are the numbers of requests after which dispatch may change; between two of them it does not, so that
    one look is enough.
    """

    frame: GraphFrame
    manager: Manager
    batch_of: Callable[[Requests], Batch | None]
    edges: tuple[Requests, ...]


def _target_steps(frame: GraphFrame, manager: Manager, shapes: Sequence[Shape]) -> Iterator[_Steps]:
    """Those that verify all drafts, then those that choose; some loads have both."""

    def fixed(requests: Requests) -> Batch | None:
        query_len = TokensPerRequest(1 + frame.k_of(requests))
        return uniform_batch(requests, query_len) if frame.can_verify_all(requests) else None

    def chosen(requests: Requests) -> Batch | None:
        query_len = TokensPerRequest(1 + frame.k_of(requests))
        can_choose = frame.can_choose(requests)
        return _verification_batch(requests, query_len, frame.verify_limit_tokens) if can_choose else None

    query_lens = {*manager.reach} if frame.verify_limit_tokens is None else {*manager.reach, TokensPerRequest(1)}
    edges = _edges(frame, shapes, query_lens)
    yield _Steps(frame, manager, fixed, edges)
    yield _Steps(frame, manager, chosen, edges)


def _verification_batch(requests: Requests, query_len: TokensPerRequest, limit: Tokens | None) -> Batch:
    """The widest step that adaptive verification can build for ``requests`` requests."""
    tokens = requests * query_len
    if limit is not None:
        tokens = min(tokens, max(requests, limit))
    return Batch(requests=requests, tokens=Tokens(tokens), max_query_len=query_len)


def _drafter_steps(
    frame: GraphFrame,
    manager: Manager,
    shapes: Sequence[Shape],
    target_shapes: Sequence[Shape],
    target: Dispatcher,
) -> Iterator[_Steps]:
    """A manager with a mixed routine takes the target's own batch, the others have a query length of their own."""
    least, follows = _least_drafts(manager), manager.mixed is not None

    def fixed(requests: Requests) -> Batch | None:
        k = frame.k_of(requests)
        if k < least or (follows and k and not frame.can_verify_all(requests)):
            return None
        query_len = TokensPerRequest(1 + k) if follows else manager.query_len
        return uniform_batch(requests, query_len, draft_steps=None if follows else k)

    def chosen(requests: Requests) -> Batch | None:
        k = frame.k_of(requests)
        if not k or not frame.can_choose(requests):
            return None
        return _batch_after_choice(frame, requests, TokensPerRequest(1 + k), target)

    query_lens = {*manager.reach, manager.query_len}
    yield _Steps(frame, manager, fixed, _edges(frame, shapes, query_lens))
    if follows:
        met = (*shapes, *target_shapes)
        yield _Steps(frame, manager, chosen, _edges(frame, met, {*query_lens, TokensPerRequest(1)}))


def _batch_after_choice(
    frame: GraphFrame, requests: Requests, query_len: TokensPerRequest, target: Dispatcher
) -> Batch:
    """The widest step after which a drafter follows requests of different lengths: all drafts but one were verified.

    It is as wide as the target padded it; one that no step holds stays too wide.  The drafter is told of no longest
    query, and of a common one only where every draft was verified.
    Source: vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py: propose;
    vllm/v1/worker/gpu/spec_decode/multi_module_mtp/speculator.py: propose.
    """
    verified = _verification_batch(requests, query_len, frame.verify_limit_tokens)
    if verified.tokens > frame.max_num_batched_tokens:
        return verified
    chosen = replace(verified, tokens=Tokens(min(verified.tokens, requests * query_len - 1)))
    shape = target.dispatch(chosen)
    return chosen if shape is None else replace(chosen, tokens=shape.tokens)


def _least_drafts(manager: Manager) -> int:
    """The K from which on a routine runs; step 0 runs without drafts too, to keep the drafter's KV cache in step.

    Source: vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py: propose.
    """
    return {Routine.STEP0_UNIFORM: 0, Routine.LATER_STEPS: 2}.get(manager.decode, 1)


def _edges(
    frame: GraphFrame,
    shapes: Sequence[Shape],
    query_lens: set[TokensPerRequest],
) -> tuple[Requests, ...]:
    """Where a token count, a request bound, a tier or the step budget ends, in requests, up to max_num_seqs."""
    tokens = {*union_tokens(shapes), frame.max_num_batched_tokens}
    # A step of all drafts but one ends a request later where a size is one short of a full one.
    counts = tokens | {Tokens(count + 1) for count in tokens} if frame.adaptive_verification else tokens
    edges = {count // query_len for count in counts for query_len in query_lens}
    edges.update(shape.requests for shape in shapes if shape.requests is not None)
    edges.update(tier.to_requests for tier in frame.tiers)
    edges.update((frame.adaptive_from_requests - 1, frame.fixed_below_requests - 1))
    edges.add(frame.max_num_seqs)
    return tuple(Requests(n) for n in sorted(edges) if 1 <= n <= frame.max_num_seqs)


def _ranges(steps: _Steps, dispatcher: Dispatcher) -> Iterator[DecodeRange]:
    """One range for each run of batch sizes that dispatch alike; sizes without a batch are left out."""
    first = Requests(1)
    held: tuple[Requests, _Run] | None = None
    for last in steps.edges:
        batch = steps.batch_of(first)
        run = None if batch is None else _run(steps, batch, steps.frame.k_of(first), dispatcher)
        if held is not None and held[1] != run:
            yield _decode_range(steps.manager, held[0], Requests(first - 1), held[1])
            held = None
        if run is not None and held is None:
            held = (first, run)
        first = Requests(last + 1)
    if held is not None:
        yield _decode_range(steps.manager, held[0], steps.frame.max_num_seqs, held[1])


_Run = tuple[Ran, Routine, TokensPerRequest, int, Shape | None]
"""How a step runs, its routine, its query length, its K, and the graph."""


def _run(steps: _Steps, batch: Batch, k: int, dispatcher: Dispatcher) -> _Run:
    manager = steps.manager
    routine = _routine(manager, batch)
    query_len = batch.query_len or batch.max_query_len
    assert query_len is not None
    if batch.tokens > steps.frame.max_num_batched_tokens:
        return (Ran.UNSCHEDULED, routine, query_len, k, None)
    shape = dispatcher.dispatch(batch)
    return (_ran(shape), routine, query_len, k, shape)


def _routine(manager: Manager, batch: Batch) -> Routine:
    """Of a manager that meets batches of two kinds, the one that this batch is of."""
    if manager.varlen:
        return manager.fixed if batch.query_len is not None and manager.fixed is not None else manager.decode
    return manager.mixed if batch.query_len is None and manager.mixed is not None else manager.decode


def _decode_range(manager: Manager, start: Requests, end: Requests, run: _Run) -> DecodeRange:
    ran, routine, query_len, k, shape = run
    full_uniform = shape is not None and ran is Ran.FULL and shape.query_len is not None
    return DecodeRange(
        runner=manager.runner,
        routine=routine,
        from_requests=start,
        to_requests=end,
        query_len=query_len,
        num_speculative_tokens=k,
        ran=ran,
        padded_to_requests=shape.requests if shape is not None and full_uniform else None,
        padded_to_tokens=shape.tokens if shape is not None else None,
    )


def _prefill(frame: GraphFrame, shapes: Sequence[Shape], dispatcher: Dispatcher) -> Iterator[PrefillRange]:
    """Dispatch of a step with a prefill changes only at captured sizes, so one look a range is enough."""
    step_tokens = frame.max_num_batched_tokens
    sizes = sorted({shape.tokens for shape in shapes if shape.tokens < step_tokens} | {step_tokens})
    first = Tokens(1)
    held: PrefillRange | None = None
    for last in sizes:
        shape = dispatcher.dispatch(Batch(requests=Requests(1), tokens=first))
        padded = shape.tokens if shape else None
        if held and held.padded_to_tokens == padded:
            first_of_range = held.from_tokens
        else:
            if held:
                yield held
            first_of_range = first
        held = PrefillRange(from_tokens=first_of_range, to_tokens=last, ran=_ran(shape), padded_to_tokens=padded)
        first = Tokens(last + 1)
    if held:
        yield held


def _mixed_steps(frame: GraphFrame, dispatcher: Dispatcher) -> Iterator[MixedStep]:
    for tier in frame.tiers[:-1]:
        requests = Requests(tier.to_requests + 1)
        tokens = Tokens(tier.to_requests * tier.query_len + 1)
        shape = dispatcher.dispatch(Batch(requests=requests, tokens=tokens, max_query_len=tier.query_len))
        yield MixedStep(
            requests=requests,
            tokens=tokens,
            drafted_at_requests=tier.to_requests,
            ran=_ran(shape),
            padded_to_tokens=shape.tokens if shape else None,
        )


def _ran(shape: Shape | None) -> Ran:
    if shape is None:
        return Ran.EAGER
    return Ran.FULL if shape.mode is CudaGraphMode.FULL else Ran.PIECEWISE

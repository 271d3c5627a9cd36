"""What every batch does, one number of requests at a time: what coverage says in ranges is held against it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.coverage import DecodeRange, DispatcherOf, Ran
from servespec.compiler.graphs.dispatch import Batch, Dispatcher, uniform_batch
from servespec.compiler.graphs.managers import DrafterKind, GraphFrame, Manager, managers_of
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.units import Requests, Tokens, TokensPerRequest


class Subject(NamedTuple):
    """A frame with graphs, and the rule by which they are dispatched."""

    frame: GraphFrame
    shapes: tuple[Shape, ...]
    dispatcher_of: DispatcherOf


Decode = dict[tuple[Routine, int], tuple[Ran, int, int | None, int | None]]
"""By routine and requests: how the batch runs, its query length, and the tokens and requests it is padded to."""


def every_decode(subject: Subject) -> Decode:
    found: Decode = {}
    for manager in managers_of(subject.frame):
        dispatcher = subject.dispatcher_of(own(manager, subject.shapes))
        for n in range(1, subject.frame.max_num_seqs + 1):
            for chooses in ways(subject.frame, n):
                batch = batch_of(subject, manager, Requests(n), chooses)
                if batch is not None:
                    found[routine_of(subject, manager, batch), n] = answer(subject.frame, batch, dispatcher)
    return found


def ways(frame: GraphFrame, n: int) -> set[bool]:
    """Whether drafts are chosen: below the start of the band not, from its end on always, within it either way."""
    if not frame.adaptive_verification:
        return {False}
    start, end = frame.adaptive_from_requests, frame.fixed_below_requests
    return {True} if n >= start else {False} if n < end else {True, False}


def routine_of(subject: Subject, manager: Manager, batch: Batch) -> Routine:
    """A manager that meets batches of two kinds has a routine for each."""
    is_uniform = batch.query_len is not None
    if manager.runner is Runner.DRAFTER:
        return manager.decode if is_uniform else manager.mixed or manager.decode
    return (manager.fixed or manager.decode) if is_uniform else manager.decode


def own(manager: Manager, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    routines = (manager.decode, manager.mixed, manager.fixed)
    return tuple(s for s in shapes if s.runner is manager.runner and s.routine in routines)


def batch_of(subject: Subject, manager: Manager, n: Requests, chooses: bool) -> Batch | None:
    """The widest decode batch of ``n`` requests that the manager meets, by its routine; None where it does not run."""
    k = subject.frame.k_of(n)
    match manager.decode:
        case Routine.ADAPTIVE_VERIFICATION if not chooses:
            return uniform_batch(n, TokensPerRequest(1 + k))
        case Routine.STEP0_UNIFORM if chooses and k:
            return after_choice(subject, n, k)
        case Routine.BLOCK if chooses and k and subject.frame.drafter.kind is DrafterKind.MULTI_MODULE_MTP:
            return after_choice(subject, n, k)
        case Routine.ADAPTIVE_VERIFICATION:
            return verification(n, k, subject.frame.verify_limit_tokens)
        case Routine.UNIFORM_DECODE | Routine.STEP0_UNIFORM:
            return uniform_batch(n, TokensPerRequest(1 + k))
        case Routine.LATER_STEPS:
            return uniform_batch(n, TokensPerRequest(1), draft_steps=k) if k > 1 else None
        case Routine.BLOCK if subject.frame.drafter.kind is DrafterKind.BLOCK:
            return uniform_batch(n, manager.query_len) if k else None
        case _:
            return uniform_batch(n, TokensPerRequest(1 + k)) if k else None


def verification(n: Requests, k: int, limit: Tokens | None) -> Batch:
    tokens = n * (1 + k) if limit is None else max(n, min(n * (1 + k), limit))
    return Batch(requests=n, tokens=Tokens(tokens), max_query_len=TokensPerRequest(1 + k))


def after_choice(subject: Subject, n: Requests, k: int) -> Batch:
    """The widest step with a draft left out, as wide as the target pads it."""
    frame, target = subject.frame, managers_of(subject.frame)[0]
    widest = verification(n, k, frame.verify_limit_tokens)
    if widest.tokens > frame.max_num_batched_tokens:
        return widest
    chosen = replace(widest, tokens=Tokens(min(widest.tokens, n * (1 + k) - 1)))
    shape = subject.dispatcher_of(own(target, subject.shapes)).dispatch(chosen)
    return chosen if shape is None else replace(chosen, tokens=shape.tokens)


def answer(frame: GraphFrame, batch: Batch, dispatcher: Dispatcher) -> tuple[Ran, int, int | None, int | None]:
    query_len = batch.query_len or batch.max_query_len or 0
    if batch.tokens > frame.max_num_batched_tokens:
        return Ran.UNSCHEDULED, query_len, None, None
    shape = dispatcher.dispatch(batch)
    if shape is None:
        return Ran.EAGER, query_len, None, None
    uniform = shape.mode is CudaGraphMode.FULL and shape.query_len is not None
    return Ran(shape.mode.value), query_len, shape.tokens, shape.requests if uniform else None


def unrolled(
    ranges: tuple[DecodeRange, ...],
) -> Iterator[tuple[tuple[Routine, int], tuple[Ran, int, int | None, int | None]]]:
    for covered in ranges:
        for n in range(covered.from_requests, covered.to_requests + 1):
            yield (
                (covered.routine, n),
                (covered.ran, covered.query_len, covered.padded_to_tokens, covered.padded_to_requests),
            )

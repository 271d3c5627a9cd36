"""Coverage looks at one batch between two edges; here every batch is looked at, and both must say the same."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.coverage import Coverage, DecodeRange, DispatcherOf, PrefillRange, Ran, coverage_of
from servespec.compiler.graphs.dispatch import Batch, engine_dispatcher, split_dispatcher
from servespec.compiler.graphs.inventory import shapes_of
from servespec.compiler.graphs.managers import Drafter, DrafterKind, GraphFrame, managers_of
from servespec.compiler.graphs.shape import Routine, Runner
from servespec.compiler.graphs.split import CaptureFields, SizeDefaults, split_shapes
from servespec.compiler.graphs.stock import TokenList, TokenListRequest, stock_sizes, stock_token_list
from servespec.compiler.graphs.tiers import Tier, tiers_up_to
from servespec.units import Requests, Tokens, TokensPerRequest
from tests.every_batch import Subject, every_decode, own, unrolled

many = settings(max_examples=800, suppress_health_check=[HealthCheck.too_slow])


# -- Random subjects --------------------------------------------------------------------------------------


@st.composite
def tiers(draw: st.DrawFn, max_num_seqs: int, k: int) -> tuple[Tier, ...]:
    starts = sorted({1, *draw(st.sets(st.integers(2, max_num_seqs + 2), max_size=4))})
    ends = [start - 1 for start in starts[1:]] + [max_num_seqs + 3]
    schedule = [(first, last, draw(st.integers(0, k))) for first, last in zip(starts, ends, strict=True)]
    return tiers_up_to(schedule, Requests(max_num_seqs), k)


@st.composite
def frames(draw: st.DrawFn) -> GraphFrame:
    max_num_seqs = draw(st.sampled_from([1, 3, 8, 17, 64, 100, 200, 333]) | st.integers(1, 120))
    k = draw(st.sampled_from([0, 1, 2, 3, 5, 7, 15]))
    mode = draw(st.sampled_from(list(CudaGraphMode)))
    verifies_adaptively = k > 0 and draw(st.integers(0, 3)) == 0
    limit = st.none() | st.integers(1, 2100).map(Tokens)
    return GraphFrame(
        max_num_seqs=Requests(max_num_seqs),
        max_num_batched_tokens=Tokens(draw(st.sampled_from([64, 128, 300, 512, 1024, 2048]) | st.integers(1, 3000))),
        num_speculative_tokens=k,
        mode=mode,
        drafter=draw(drafters(k, mode)),
        adaptive_verification=verifies_adaptively,
        verify_limit_tokens=draw(limit) if verifies_adaptively else None,
        adaptive_from_requests=Requests(draw(st.integers(1, max_num_seqs + 1)) if verifies_adaptively else 1),
        tiers=draw(st.just(()) | tiers(max_num_seqs, k)) if k else (),
    )


@st.composite
def drafters(draw: st.DrawFn, k: int, mode: CudaGraphMode) -> Drafter:
    if k == 0:
        return Drafter(kind=DrafterKind.NONE)
    kind = draw(st.sampled_from(list(DrafterKind)))
    full = mode.decode_mode() is CudaGraphMode.FULL
    block = CudaGraphMode.FULL_DECODE_ONLY if full else CudaGraphMode.NONE
    return Drafter(
        kind=kind,
        mode=draw(st.sampled_from([block, mode])) if kind is DrafterKind.MULTI_MODULE_MTP else block,
        query_len=TokensPerRequest(k + (draw(st.integers(0, 1)) if kind is DrafterKind.BLOCK else 1)),
        fused_later_steps=draw(st.booleans()),
    )


@st.composite
def fields(draw: st.DrawFn, frame: GraphFrame) -> CaptureFields:
    requests, tokens = int(frame.max_num_seqs), int(frame.max_num_batched_tokens)
    counts = st.lists(st.integers(1, requests), max_size=5)
    sizes = st.lists(st.integers(1, tokens), max_size=5)
    if draw(st.integers(0, 3)) == 0:
        return CaptureFields(legacy_max_tokens=Tokens(draw(st.integers(1, tokens))))
    return CaptureFields(
        prefill_cap_tokens=draw(st.none() | st.integers(1, tokens).map(Tokens)),
        prefill_sizes_tokens=draw(st.none() | sizes.map(lambda found: tuple(Tokens(t) for t in found))),
        decode_cap_requests=draw(st.none() | st.integers(1, requests).map(Requests)),
        decode_sizes_requests=draw(st.none() | counts.map(lambda found: tuple(Requests(n) for n in found))),
        decode_budget_tokens=draw(st.none() | st.integers(1, 4096).map(Tokens)),
    )


def token_list(frame: GraphFrame, asked: CaptureFields, wide: bool) -> TokenList:
    return stock_token_list(
        TokenListRequest(
            max_num_seqs=frame.max_num_seqs,
            max_num_batched_tokens=frame.max_num_batched_tokens,
            query_len=frame.query_len,
            widest_batch=frame.widest_batch,
            default_ceiling_tokens=Tokens(1024 if wide else 512),
            max_size=asked.legacy_max_tokens,
        )
    )


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    frame, wide = draw(frames()), draw(st.booleans())
    asked = draw(fields(frame))
    stock = token_list(frame, asked, wide)
    if draw(st.booleans()):
        return Subject(frame, split_shapes(frame, asked, SizeDefaults(wide=wide), stock), split_dispatcher)
    engine = shapes_of(stock_sizes(managers_of(frame), stock, frame.max_num_seqs), frame.max_num_seqs)
    return Subject(frame, engine, draw(st.sampled_from([engine_dispatcher, split_dispatcher])))


def coverage(subject: Subject) -> Coverage:
    return coverage_of(subject.frame, subject.shapes, subject.dispatcher_of)


# -- The properties -----------------------------------------------------------------------------------------


WITHOUT_DRAFTS_BY_LOAD = Subject(
    GraphFrame(
        max_num_seqs=Requests(100),
        max_num_batched_tokens=Tokens(64),
        num_speculative_tokens=1,
        mode=CudaGraphMode.NONE,
        tiers=(Tier(Requests(1), Requests(100), 0),),
        adaptive_verification=True,
        adaptive_from_requests=Requests(2),
        drafter=Drafter(kind=DrafterKind.AUTOREGRESSIVE, query_len=TokensPerRequest(2)),
    ),
    (),
    engine_dispatcher,
)
"""Its drafter meets no query length but that of its one tier."""


@given(subject=subjects())
@example(subject=WITHOUT_DRAFTS_BY_LOAD)
@many
def test_the_ranges_say_what_every_batch_does(subject: Subject) -> None:
    ranges = list(unrolled(coverage(subject).decode))

    assert dict(ranges) == every_decode(subject)
    assert len(ranges) == len(dict(ranges))


@given(frame=frames())
@many
def test_a_load_that_swings_by_an_eighth_does_not_switch(frame: GraphFrame) -> None:
    start, end = frame.adaptive_from_requests, frame.fixed_below_requests

    assert start > frame.max_num_seqs or 1 <= end <= start
    assert start <= 2 or start > frame.max_num_seqs or 2 <= end < start
    assert start < 16 or start > frame.max_num_seqs or end <= start - start // 8
    every = [
        (frame.can_verify_all(Requests(n)), frame.can_choose(Requests(n))) for n in range(1, frame.max_num_seqs + 1)
    ]
    assert (False, False) not in every


@given(subject=subjects())
@settings(many, max_examples=300)
def test_the_ranges_say_what_every_prefill_step_does(subject: Subject) -> None:
    target = managers_of(subject.frame)[0]
    dispatcher = subject.dispatcher_of(own(target, subject.shapes))
    steps = range(1, subject.frame.max_num_batched_tokens + 1)
    replays = [dispatcher.dispatch(Batch(requests=Requests(1), tokens=Tokens(t))) for t in steps]

    assert [answer for covered in coverage(subject).prefill for answer in prefill_answers(covered)] == [
        ("EAGER", None) if shape is None else (shape.mode.value, shape.tokens) for shape in replays
    ]


def prefill_answers(covered: PrefillRange) -> list[tuple[str, int | None]]:
    return [(covered.ran.value, covered.padded_to_tokens)] * (covered.to_tokens - covered.from_tokens + 1)


@given(subject=subjects())
@settings(many, max_examples=300)
def test_neighbouring_ranges_differ(subject: Subject) -> None:
    """A range that only continues the one before it would be noise in every report.

    Two ranges of the same graph sizes may still belong to two tiers: then their K differs.
    """
    found = coverage(subject)
    decode = [
        (a, b) for a, b in pairwise(found.decode) if a.routine is b.routine and a.to_requests + 1 == b.from_requests
    ]

    assert [pair for pair in decode if same_replay(*pair)] == []
    assert all(a.padded_to_tokens != b.padded_to_tokens for a, b in pairwise(found.prefill))


def same_replay(a: DecodeRange, b: DecodeRange) -> bool:
    return replay(a) == replay(b)


def replay(covered: DecodeRange) -> tuple[object, ...]:
    return (
        covered.ran,
        covered.query_len,
        covered.num_speculative_tokens,
        covered.padded_to_tokens,
    )


@given(subject=subjects())
@settings(many, max_examples=300)
def test_a_step_between_tiers_has_the_last_tiers_drafts_and_one_more_token(subject: Subject) -> None:
    frame = subject.frame
    steps = coverage(subject).mixed

    assert [(s.requests, s.tokens, s.drafted_at_requests) for s in steps] == [
        (tier.to_requests + 1, tier.to_requests * (1 + tier.num_speculative_tokens) + 1, tier.to_requests)
        for tier in frame.tiers[:-1]
    ]
    assert all(s.ran is not Ran.FULL or frame.adaptive_verification or frame.mode is CudaGraphMode.FULL for s in steps)


@pytest.mark.parametrize("dispatcher_of", [engine_dispatcher, split_dispatcher])
def test_every_routine_is_met(dispatcher_of: DispatcherOf) -> None:
    """The random subjects above would prove little if they never had some routine."""
    met = {
        row.routine
        for kind in DrafterKind
        for verifies in (False, True)
        for row in coverage(plain_subject(kind, verifies, dispatcher_of)).decode
    }

    assert met == {
        Routine.UNIFORM_DECODE,
        Routine.ADAPTIVE_VERIFICATION,
        Routine.STEP0_UNIFORM,
        Routine.STEP0_PIECEWISE,
        Routine.LATER_STEPS,
        Routine.BLOCK,
        Routine.BLOCK_PIECEWISE,
    }


def plain_subject(kind: DrafterKind, verifies: bool, dispatcher_of: DispatcherOf) -> Subject:
    frame = GraphFrame(
        max_num_seqs=Requests(16),
        max_num_batched_tokens=Tokens(2048),
        num_speculative_tokens=3,
        mode=CudaGraphMode.FULL_AND_PIECEWISE,
        adaptive_verification=verifies,
        drafter=Drafter(kind=kind, mode=CudaGraphMode.FULL_DECODE_ONLY, query_len=TokensPerRequest(4)),
    )
    asked = CaptureFields()
    shapes = split_shapes(frame, asked, SizeDefaults(wide=True), token_list(frame, asked, True))
    assert {shape.runner for shape in shapes} <= {Runner.TARGET, Runner.DRAFTER}
    return Subject(frame, shapes, dispatcher_of)

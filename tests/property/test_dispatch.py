"""Dispatch returns a captured graph that is large enough, or none."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.dispatch import Batch, Dispatcher, engine_dispatcher, split_dispatcher, uniform_batch
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.units import Requests, Tokens, TokensPerRequest

QUERY_LENS = (1, 2, 3, 4, 8)


@st.composite
def uniform_shapes(draw: st.DrawFn) -> Shape:
    query_len, requests = draw(st.sampled_from(QUERY_LENS)), draw(st.integers(1, 64))
    return Shape(
        runner=Runner.TARGET,
        routine=Routine.UNIFORM_DECODE,
        mode=CudaGraphMode.FULL,
        tokens=Tokens(requests * query_len),
        requests=Requests(requests),
        query_len=TokensPerRequest(query_len),
        active_loras=draw(st.sampled_from((0, 0, 3))),
    )


@st.composite
def piecewise_shapes(draw: st.DrawFn) -> Shape:
    return Shape(
        runner=Runner.TARGET,
        routine=Routine.PIECEWISE,
        mode=CudaGraphMode.PIECEWISE,
        tokens=Tokens(draw(st.integers(1, 512))),
        active_loras=draw(st.sampled_from((0, 0, 3))),
    )


@st.composite
def varlen_shapes(draw: st.DrawFn) -> Shape:
    tokens = draw(st.integers(1, 512))
    return Shape(
        runner=Runner.TARGET,
        routine=Routine.ADAPTIVE_VERIFICATION,
        mode=CudaGraphMode.FULL,
        tokens=Tokens(tokens),
        requests=Requests(min(tokens, draw(st.integers(1, 64)))),
        max_query_len=TokensPerRequest(draw(st.sampled_from(QUERY_LENS))),
    )


shapes = st.lists(uniform_shapes() | piecewise_shapes() | varlen_shapes(), max_size=30, unique=True)


@st.composite
def mixed_batches(draw: st.DrawFn) -> Batch:
    requests = draw(st.integers(1, 80))
    return Batch(
        requests=Requests(requests),
        tokens=Tokens(draw(st.integers(requests, 700))),
        max_query_len=draw(st.none() | st.sampled_from(QUERY_LENS).map(TokensPerRequest)),
        active_loras=draw(st.sampled_from((0, 3))),
    )


batches = mixed_batches() | st.builds(
    uniform_batch, st.integers(1, 80).map(Requests), st.sampled_from(QUERY_LENS).map(TokensPerRequest)
)
rules = pytest.mark.parametrize("rule", [engine_dispatcher, split_dispatcher])
Rule = Callable[[list[Shape]], Dispatcher]


@rules
@given(shapes, batches)
def test_a_found_graph_is_captured_and_holds_the_batch(rule: Rule, captured: list[Shape], batch: Batch) -> None:
    found = rule(captured).dispatch(batch)

    if found is None:
        return
    assert found in captured
    assert found.tokens >= batch.tokens
    assert found.requests is None or found.requests >= batch.requests
    assert found.active_loras == batch.active_loras
    assert found.query_len in (None, batch.query_len)
    assert found.max_query_len is None or (batch.max_query_len or 10**9) <= found.max_query_len


@rules
@given(shapes, mixed_batches())
def test_a_step_with_a_prefill_never_takes_a_decode_graph(rule: Rule, captured: list[Shape], batch: Batch) -> None:
    prefill = Batch(requests=batch.requests, tokens=batch.tokens, active_loras=batch.active_loras)

    found = rule(captured).dispatch(prefill)

    assert found is None or found.routine is Routine.PIECEWISE


@given(shapes, st.integers(1, 80), st.sampled_from(QUERY_LENS))
def test_our_rule_takes_the_smallest_graph_of_the_batchs_own_query_length(
    captured: list[Shape], requests: int, query_len: int
) -> None:
    """Whatever other tiers captured: FULL wherever such a graph exists."""
    own = [s for s in captured if s.query_len == query_len and s.active_loras == 0 and (s.requests or 0) >= requests]

    found = split_dispatcher(captured).dispatch(uniform_batch(Requests(requests), TokensPerRequest(query_len)))

    if own:
        assert found == min(own, key=lambda shape: shape.tokens)
    else:
        assert found is None or found.query_len is None


@given(st.lists(uniform_shapes() | piecewise_shapes(), max_size=30, unique=True), batches)
def test_our_rule_never_runs_eagerly_what_the_engines_runs_from_a_graph(captured: list[Shape], batch: Batch) -> None:
    engine, ours = engine_dispatcher(captured).dispatch(batch), split_dispatcher(captured).dispatch(batch)

    assert engine is None or ours is not None
    assert ours is None or engine is None or ours.mode is CudaGraphMode.FULL or engine.mode is not CudaGraphMode.FULL

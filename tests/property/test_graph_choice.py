"""The search for the best graphs within a bound: against every choice there is, and the laws that it rests on."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from servespec.compiler.captured import stock_list_of
from servespec.compiler.graph_choice import graph_bytes, graph_choice
from servespec.compiler.graphs.extents import Density, Extent, Space
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.caching_allocator import CachingAllocator, PerfectAllocator
from servespec.compiler.memory.compressed_pass import CompressedPass, Index
from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.forward_passes import ModelPass
from servespec.compiler.memory.indexer_logits import IndexerRow
from servespec.compiler.memory.line import Part
from servespec.compiler.memory.model_pass import Attention, ContextScores
from servespec.compiler.memory.within_bound import GraphChoice
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.compiler.resolve.resolution import Resolution, resolve
from servespec.diagnostics import Severity, SpecError
from servespec.runtime.gather import Options, compile_request
from tests.plans import Json, source_of, spec_of
from tests.strategies import drafting, new_fields, verification_grids, verifies_adaptively

pytestmark = pytest.mark.usefixtures("quiet_shell")

some = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
WHOLE = "1TiB"


@st.composite
def bounded_specs(draw: st.DrawFn, most_requests: int = 14) -> Json:
    """A spec with a bound that holds everything, small enough to try every choice; some fields may be written."""
    seqs = draw(st.integers(1, most_requests))
    tokens = draw(st.integers(max(seqs, 8), 160))
    lora = draw(st.sampled_from((None, None, {"max_loras": 2})))
    lowering = draw(st.sampled_from(("auto", "extension", "legacy")))
    can_follow_load = lora is None and lowering == "extension"
    model, speculative = draw(drafting(seqs, can_follow_load=can_follow_load, has_lora=lora is not None))
    written = new_fields(seqs, tokens, needs_decode=verifies_adaptively(speculative))
    return spec_of(
        model,
        draw(st.sampled_from(("gb200", "h200"))),
        scheduler={"max_num_seqs": seqs, "max_num_batched_tokens": tokens},
        speculative=speculative,
        compilation={**draw(st.just({}) | st.just({}) | written), **draw(verification_grids(speculative))},
        lora=lora,
        memory={"max_cudagraph_memory": WHOLE},
        engine={"version": "0.33.0", "lowering": lowering},
    )


def resolved(spec: Json) -> Resolution:
    return resolve(compile_request(source_of(spec), Options()))


def choice_of(resolution: Resolution) -> GraphChoice:
    found = graph_choice(resolution, resolution.fields, stock_list_of(resolution))
    assume(found is not None)
    assert found is not None
    return found


def bounded(resolution: Resolution, bound_bytes: int) -> Resolution:
    spec = resolution.request.spec
    memory = spec.memory.model_copy(update={"max_cudagraph_memory": bound_bytes})
    return replace(resolution, request=replace(resolution.request, spec=spec.model_copy(update={"memory": memory})))


def every_choice(resolution: Resolution, space: Space) -> dict[tuple[Extent, Density], int]:
    stock_list = stock_list_of(resolution)
    return {
        (extent, density): graph_bytes(
            replace(resolution, fields=space.fields_of(extent, density)), stock_list, CachingAllocator
        )
        for row in space.rows
        for extent in row
        for density in space.densities
    }


def worse(space: Space, extent: Extent, density: Density) -> tuple[int, ...]:
    """The documented order as numbers: the best choice has the least of them."""
    requests, tokens = space.stock
    own_requests = requests if extent.decode is None else extent.decode.covered_requests
    own_tokens = tokens if extent.prefill_tokens is None else extent.prefill_tokens
    halvings = next(n for n in range(20) if own_requests >= requests >> n and own_tokens >= tokens >> n)
    return halvings, -own_requests, density.decode, -own_tokens, density.prefill


@some
@given(bounded_specs(), st.data())
def test_the_choice_is_the_best_of_all(spec: Json, data: st.DataObject) -> None:
    resolution = resolved(spec)
    space = choice_of(resolution).space
    taken = every_choice(resolution, space)
    bound = data.draw(st.sampled_from(sorted(set(taken.values())))) - data.draw(st.sampled_from((0, 1)))

    choice = choice_of(bounded(resolution, bound))

    fitting = [chosen for chosen, size in taken.items() if size <= bound]
    assert choice.fits == bool(fitting)
    if fitting:
        assert (choice.extent, choice.density) == min(fitting, key=lambda chosen: worse(space, *chosen))
    else:
        assert taken[choice.extent, choice.density] == min(taken.values())


@some
@given(bounded_specs(), st.data())
def test_a_larger_bound_is_never_worse(spec: Json, data: st.DataObject) -> None:
    resolution = resolved(spec)
    space = choice_of(resolution).space
    most = graph_bytes(
        replace(resolution, fields=space.fields_of(space.widest, space.densities[0])),
        stock_list_of(resolution),
        CachingAllocator,
    )
    bounds = data.draw(st.tuples(st.integers(0, most), st.integers(0, most)))
    small, large = (choice_of(bounded(resolution, bound)) for bound in sorted(bounds))

    assert large.fits or not small.fits
    if small.fits:
        assert worse(space, large.extent, large.density) <= worse(space, small.extent, small.density)


@some
@given(bounded_specs(most_requests=60), st.data())
def test_what_is_alive_at_once_is_a_floor_that_only_grows(spec: Json, data: st.DataObject) -> None:
    """Along a row, which is what the search halves, and with denser prefill sizes."""
    resolution = resolved(spec)
    space, stock_list = choice_of(resolution).space, stock_list_of(resolution)

    def least(extent: Extent, density: Density) -> int:
        fields = space.fields_of(extent, density)
        floor = graph_bytes(replace(resolution, fields=fields), stock_list, PerfectAllocator)
        assert floor <= graph_bytes(replace(resolution, fields=fields), stock_list, CachingAllocator)
        return floor

    density = data.draw(st.sampled_from(space.densities))
    row = [least(extent, density) for extent in data.draw(st.sampled_from(space.rows))]
    assert row == sorted(row, reverse=True)
    finer = [least(space.widest, one) for one in space.densities if one.decode == density.decode]
    assert finer == sorted(finer, reverse=True)


def planned(spec: Json) -> Plan:
    try:
        return compile_spec(compile_request(source_of(spec), Options()))
    except SpecError as error:
        errors = {finding.code for finding in error.diagnostics if finding.severity is Severity.ERROR}
        assume(not errors <= {"R101", "P129"})
        raise


@some
@given(bounded_specs(most_requests=100), st.sampled_from(("40MiB", "120MiB", "400MiB", "1GiB", WHOLE)))
def test_the_plan_is_within_the_bound_and_writing_it_out_changes_nothing(spec: Json, bound: str) -> None:
    plan = planned(spec | {"memory": {"max_cudagraph_memory": bound}})
    found = [finding for finding in plan.diagnostics if finding.code == "P131"]
    assume(found)

    assert plan.ledger is not None
    limit = plan.resolution.request.spec.memory.max_cudagraph_memory
    assert limit is not None
    assert plan.ledger.of(Part.GRAPHS).size <= limit
    chosen = {
        path.removeprefix("compilation."): value.value
        for path, value in plan.resolution.values.items()
        if "within `memory.max_cudagraph_memory`" in value.because
    }
    explicit = planned(spec | {"memory": {}, "compilation": spec["compilation"] | chosen})
    assert explicit.graphs.shapes == plan.graphs.shapes
    assert explicit.lowered.lowering == plan.lowered.lowering


@some
@given(bounded_specs(most_requests=100), st.integers(20, 600))
def test_reaches_are_what_dispatch_makes_of_them(spec: Json, mebibytes: int) -> None:
    """One list gives graphs beside those asked for; of tiers the engine's own dispatch misses some, which P115 says."""
    bound = {"memory": {"max_cudagraph_memory": f"{mebibytes}MiB"}}
    plan = planned(spec | bound)
    resolution = resolved(spec | bound)
    choice = graph_choice(resolution, resolution.fields, stock_list_of(resolution))
    assume(choice is not None)
    assert choice is not None
    document = plan.to_json()
    covered = len(covered_either_way(document))
    prefill = max((one["to_tokens"] for one in document["coverage"]["prefill"] if one["mode"] != "EAGER"), default=0)

    exact = plan.lowered.lowering in (Lowering.EXTENSION, Lowering.NATIVE)
    misses_graphs = not exact and plan.resolution.frame.tiers
    if choice.extent.decode is not None and not misses_graphs:
        claimed = choice.extent.decode.covered_requests
        assert covered == claimed if exact else covered >= claimed
    if choice.extent.prefill_tokens is not None and plan.resolution.frame.mode.has_piecewise():
        assert prefill == choice.extent.prefill_tokens if exact else prefill >= choice.extent.prefill_tokens


def covered_either_way(document: Json) -> set[int]:
    """Batches that run from a FULL graph whether or not their drafts are chosen."""
    found: dict[str, set[int]] = {"FULL": set(), "others": set()}
    for one in document["coverage"]["decode"]:
        if one["runner"] == "target":
            batches = found["FULL" if one["mode"] == "FULL" else "others"]
            batches.update(range(one["from_requests"], one["to_requests"] + 1))
    return found["FULL"] - found["others"]


class _Unrepeated(CachingAllocator):
    """No two layouts are alike, so that every layer is played."""

    def layout(self, *_: Any) -> Any:
        return object()


_WIDTHS = st.integers(0, 40_000)
_SCORES = st.builds(
    ContextScores,
    layers=st.frozensets(st.integers(0, 39), max_size=40),
    row=st.builds(IndexerRow, positions=st.just(1), scored_bytes=_WIDTHS, converted_bytes=_WIDTHS),
    most_rows=st.none() | st.integers(1, 4096),
)
_DECODERS = st.builds(
    ForwardPass,
    layers=st.integers(1, 40),
    aux_layers=st.lists(st.integers(0, 40), max_size=3).map(tuple),
    hidden=_WIDTHS, stream=_WIDTHS, projected=_WIDTHS, query=_WIDTHS, key=_WIDTHS, output=_WIDTHS, wide=_WIDTHS,
    gated=_WIDTHS, router=_WIDTHS,
    accumulators=st.lists(_WIDTHS, max_size=3).map(tuple),
    scores=st.none() | _SCORES,
    is_compiled=st.booleans(), is_given_residual=st.booleans(), hands_on_residual=st.booleans(),
    sums_over_ranks=st.booleans(), scale_group=st.sampled_from([0, 64, 128]), first_operand=_WIDTHS, inputs=_WIDTHS,
)  # fmt: skip
_COMPRESSED = st.builds(
    CompressedPass,
    ratios=st.lists(st.sampled_from([0, 4, 128]), min_size=1, max_size=4).flatmap(
        lambda pattern: st.integers(1, 10).map(lambda times: (0, *pattern * times))
    ),
    aux_layers=st.lists(st.integers(1, 40), max_size=3).map(tuple),
    hidden=_WIDTHS, states=st.integers(1, 4), token_ranks=st.sampled_from([1, 4]), matrix_ranks=st.sampled_from([1, 4]),
    compressed_queries=_WIDTHS, latents=_WIDTHS, own_queries=_WIDTHS, queries=_WIDTHS, output=_WIDTHS, grouped=_WIDTHS,
    compressor=_WIDTHS,
    index=st.builds(
        Index, queries=_WIDTHS, packed_queries=st.tuples(_WIDTHS, _WIDTHS), weights=_WIDTHS, scaled_weights=_WIDTHS,
        compressor=_WIDTHS, chosen=_WIDTHS,
    ),
    scores=st.none() | _SCORES,
    router=_WIDTHS,
    scale_group=st.sampled_from([0, 128]),
    forks_up_to=st.sampled_from([None, 1024]),
    is_repeated=st.booleans(), is_given_states=st.booleans(), hands_on_states=st.booleans(),
)  # fmt: skip


@given(
    st.one_of(_DECODERS, _COMPRESSED),
    st.lists(st.tuples(st.integers(1, 4096), st.sampled_from(Attention)), min_size=1, max_size=3),
)
@settings(max_examples=200)
def test_layers_that_are_left_out_would_have_changed_nothing(
    forward: ModelPass, runs: list[tuple[int, Attention]]
) -> None:
    short, whole = CachingAllocator(), _Unrepeated()
    for tokens, attention in runs:
        kept = [(memory, forward.run(memory, tokens, attention)) for memory in (short, whole)]
        assert short.reserved_bytes == whole.reserved_bytes
        assert short.grown_bytes == whole.grown_bytes
        assert short.kept_bytes == whole.kept_bytes
        assert short.layout(*kept[0][1].all) == CachingAllocator.layout(whole, *kept[1][1].all)
        for memory, outputs in kept:
            memory.give(*outputs.all)
    assert short.kept_bytes == 0

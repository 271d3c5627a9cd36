"""What a bound on graph memory chooses: examples worked out by hand, and how the choice reaches the engine."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.extents import Space, space_of
from servespec.compiler.graphs.managers import GraphFrame
from servespec.compiler.graphs.split import CaptureFields, SizeDefaults
from servespec.compiler.graphs.stock import TokenList
from servespec.compiler.graphs.tiers import Tier
from servespec.compiler.lower import Lowering
from servespec.compiler.memory.line import Part
from servespec.compiler.memory.within_bound import best_within
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.provenance import Origin
from servespec.runtime.gather import Options, compile_request
from servespec.units import Bytes, Requests, Tokens
from tests.plans import Json, compiled, model_folder, source_of, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

Chosen = tuple[int | None, int | None, int | None]
NOTHING_WRITTEN = CaptureFields()


def frame(seqs: int = 8, tokens: int = 64, k: int = 1, *tiers: tuple[int, int, int]) -> GraphFrame:
    return GraphFrame(
        max_num_seqs=Requests(seqs),
        max_num_batched_tokens=Tokens(tokens),
        num_speculative_tokens=k,
        mode=CudaGraphMode.FULL_AND_PIECEWISE,
        tiers=tuple(Tier(Requests(first), Requests(last), drafts) for first, last, drafts in tiers),
    )


def space(
    subject: GraphFrame, fields: CaptureFields = NOTHING_WRITTEN, stock: tuple[int, ...] = (), *, one_list: bool = False
) -> Space:
    token_list = TokenList(tuple(map(Tokens, stock)))
    found = space_of(subject, fields, SizeDefaults(wide=False), token_list, one_list=one_list)
    assert found is not None
    return found


def chosen(subject: Space, bound: int, decode_byte: int = 1, prefill_byte: int = 1) -> Chosen:
    """Decode cap, token budget and prefill cap under a cost that is linear in both, whatever the density."""

    def cost(fields: CaptureFields) -> Bytes:
        cap = fields.decode_cap_requests or max(fields.decode_sizes_requests or (0,))
        tokens = fields.prefill_cap_tokens or max(fields.prefill_sizes_tokens or (0,))
        within = fields.decode_budget_tokens or cap * 2
        return Bytes(decode_byte * min(cap * 2, within) + prefill_byte * tokens)

    fields = best_within(subject, Bytes(bound), cost, cost).fields
    return fields.decode_cap_requests, fields.decode_budget_tokens, fields.prefill_cap_tokens


@pytest.mark.parametrize(
    ("budget", "limit", "expected"),
    [
        (None, None, 8),
        (4, None, 5),  # 1 and 2 with all drafts, 6 to 8 with chosen ones; 5 runs either way, and 3 to 5 are eager
        (4, 8, 5),
        (10, None, 8),
    ],
)
def test_where_the_load_decides_both_ways_need_a_graph(budget: int | None, limit: int | None, expected: int) -> None:
    """From 6 requests on of at most 8, drafts are chosen, and until the load is below 5."""
    follows_load = replace(
        frame(),
        adaptive_verification=True,
        adaptive_from_requests=Requests(6),
        verify_limit_tokens=None if limit is None else Tokens(limit),
    )
    written = CaptureFields(decode_budget_tokens=None if budget is None else Tokens(budget))

    widest = space(follows_load, written).widest.decode

    assert widest is not None
    assert widest.covered_requests == expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (80, (8, None, 64)),  # everything: 8 requests of 2 tokens, and 64
        (79, (8, None, 32)),  # the sizes below 64 are powers of two
        (48, (8, None, 32)),
        (17, (8, None, 1)),  # decode before prefill
        (16, (6, None, 4)),  # the size below 8 is 6, which leaves 4
        (3, (1, None, 1)),
    ],
)
def test_decode_comes_before_prefill(bound: int, expected: Chosen) -> None:
    assert chosen(space(frame()), bound) == expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (17, (4, None, 8)),  # 4 requests and 8 tokens are the engine's own, so 8 requests and 1 token are not taken
        (16, (4, None, 8)),
        (15, (5, None, 4)),  # half of both, 2 requests and 4 tokens, and then as many requests as there is room for
        (7, (2, None, 2)),  # a quarter
    ],
)
def test_neither_kind_falls_below_the_engines_own_share(bound: int, expected: Chosen) -> None:
    assert chosen(space(frame(), stock=(1, 2, 4, 8)), bound) == expected


def test_a_bound_that_nothing_is_within_gets_the_narrowest() -> None:
    choice = best_within(space(frame()), Bytes(2), lambda _: Bytes(3), lambda _: Bytes(3))

    assert not choice.fits
    assert (choice.fields.decode_sizes_requests, choice.fields.prefill_sizes_tokens) == ((1,), (1,))


def test_a_bound_that_nothing_is_within_gets_what_takes_least() -> None:
    """Which is not always the narrowest: a wider pool may have room for what a narrower one has not."""

    def taken(fields: CaptureFields) -> Bytes:
        return Bytes(90 - max(fields.prefill_sizes_tokens or (0,)) + max(fields.decode_sizes_requests or (0,)))

    choice = best_within(space(frame()), Bytes(2), taken, lambda _: Bytes(3))

    assert not choice.fits
    assert (choice.fields.decode_sizes_requests, max(choice.fields.prefill_sizes_tokens or ())) == ((1,), 64)


@pytest.mark.parametrize("written", [{}, {"max_decode_cudagraph_capture_requests": 512}])
def test_the_bound_that_is_proposed_is_the_least_that_something_is_within(written: Json) -> None:
    """Beside what is written, which a wider prefill graph can make cheaper: its blocks are there to be taken again."""
    with pytest.raises(SpecError) as caught:
        compiled(bounded("1MiB", compilation=written))
    (finding,) = caught.value.diagnostics
    proposed = re.search(r"write `memory.max_cudagraph_memory: (\d+)MiB`", finding.help)
    assert proposed is not None
    assert ("lower the caps" in finding.help) == bool(written)

    assert "within" in the_note(compiled(bounded(f"{proposed[1]}MiB", compilation=written)))
    narrower = compiled(bounded(f"{int(proposed[1]) - 1}MiB", compilation=written))
    assert [one.code for one in narrower.diagnostics if one.code in ("P130", "P131")] == ["P130"]


def test_written_sizes_are_held_to_a_bound_as_chosen_ones_are() -> None:
    """By the middle of the bars: what is chosen within a bound and written out is within it too."""
    chosen_fields = compiled(bounded("1200MiB")).resolution.values
    written = {
        path.removeprefix("compilation."): list(one.value) if isinstance(one.value, tuple) else one.value
        for path, one in chosen_fields.items()
        if "within `memory.max_cudagraph_memory`" in one.because
    }
    assert len(written) == 3
    plan = compiled(bounded("1200MiB", compilation=written))
    assert plan.ledger is not None
    assert plan.ledger.of(Part.GRAPHS).high > 1200 << 20
    assert not {"P129", "P130", "P131"} & {one.code for one in plan.diagnostics}

    less = plan.ledger.of(Part.GRAPHS).size // (1 << 20)
    found = compiled(bounded(f"{less}MiB", compilation=written)).diagnostics
    (finding,) = (one for one in found if one.code == "P130")
    assert finding.help.endswith(f"or `memory.max_cudagraph_memory: {less + 1}MiB`")


def test_what_is_written_is_held() -> None:
    capped = CaptureFields(decode_cap_requests=Requests(6))
    listed = CaptureFields(prefill_sizes_tokens=(Tokens(3), Tokens(5)), decode_budget_tokens=Tokens(10))

    assert chosen(space(frame(), capped), 12 + 20) == (6, None, 16)
    assert {extent.prefill_tokens for row in space(frame(), listed).rows for extent in row} == {None}
    reaches = [row[0].decode for row in space(frame(), listed).rows]
    assert [(one.cap_requests, one.budget_tokens, one.widest_tokens) for one in reaches if one is not None] == [
        (5, 10, 10), (4, 10, 8), (3, 10, 6), (2, 10, 4), (1, 10, 2),
    ]  # fmt: skip


def test_a_kind_that_is_switched_off_is_not_chosen() -> None:
    off = CaptureFields(decode_sizes_requests=())
    piecewise = replace(frame(), mode=CudaGraphMode.PIECEWISE)

    assert chosen(space(piecewise, off), 5) == (None, None, 4)
    assert space(piecewise, off).rows[0][0].decode is None
    both = replace(off, prefill_sizes_tokens=())
    none = replace(frame(), mode=CudaGraphMode.NONE)
    assert space_of(none, both, SizeDefaults(wide=False), TokenList(()), one_list=False) is None


def test_a_budget_covers_both_sides_of_a_wide_tier() -> None:
    """Batches of 5 to 8 requests hold one token each, so that 8 tokens cover 2 of 4 wide batches and all of those."""
    tiered = space(frame(8, 64, 3, (1, 4, 3), (5, 8, 0)))
    reaches = [row[0].decode for row in tiered.rows]

    assert [(one.covered_requests, one.widest_tokens, one.budget_tokens) for one in reaches if one is not None] == [
        (8, 16, None), (7, 12, 12), (6, 8, 8), (1, 4, None),
    ]  # fmt: skip


def test_one_list_reaches_equally_far_in_both_kinds() -> None:
    lists = space(frame(), one_list=True)

    extents = [extent for row in lists.rows for extent in row]
    assert [(one.prefill_tokens, one.decode and one.decode.covered_requests) for one in extents] == [
        (64, 8), (32, 8), (16, 8), (8, 4), (4, 2), (2, 1), (1, 0),
    ]  # fmt: skip


SECTIONS: Json = {
    "scheduler": {"max_num_seqs": 512, "max_num_batched_tokens": 8192},
    "speculative": {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3},
}


def bounded(bound: str, **sections: Any) -> Json:
    return spec_of("qwen3-8b", "h200", **SECTIONS, memory={"max_cudagraph_memory": bound}, **sections)


def the_note(plan: Plan) -> str:
    (found,) = (one for one in plan.diagnostics if one.code == "P131")
    return found.message


def test_a_bound_alone_gives_the_widest_graphs() -> None:
    plan = compiled(bounded("64GiB"))
    cap = plan.resolution.values["compilation.max_decode_cudagraph_capture_requests"]

    assert plan.lowered.lowering is Lowering.EXTENSION
    assert (cap.value, cap.origin) == (512, Origin.DERIVED)
    assert "within `memory.max_cudagraph_memory`, 64.0 GiB" in cap.because
    assert the_note(plan).endswith("nothing is given up")
    assert not {"P101", "P107"} & {one.code for one in plan.diagnostics}


def test_what_was_given_up_is_told_in_requests_and_tokens() -> None:
    note = the_note(compiled(bounded("1200MiB")))

    assert "within 1.2 GiB the graphs take about 1.2 GiB" in note
    assert "FULL graphs of 160 of 512 decode requests" in note
    assert "PIECEWISE graphs of 6656 of 8192 prefill tokens" in note


def test_steps_that_no_bound_would_cover_are_not_blamed_on_it() -> None:
    plan = compiled(bounded("64GiB") | {"scheduler": {"max_num_seqs": 512, "max_num_batched_tokens": 16384}})

    (eager,) = (one for one in plan.diagnostics if one.code in ("P106", "P107"))
    assert eager.code == "P106"
    assert eager.help == "write `compilation: {max_prefill_cudagraph_capture_tokens: 16384}`, for more memory"


def test_an_engine_that_has_the_fields_is_handed_the_choice() -> None:
    request = compile_request(source_of(bounded("1200MiB")), Options())
    plan = compile_spec(replace(request, engine=replace(request.engine, has_split_fields=True)))
    config = json.loads(plan.lowered.argv[plan.lowered.argv.index("--compilation-config") + 1])

    assert plan.lowered.lowering is Lowering.NATIVE
    assert config == {
        "max_prefill_cudagraph_capture_tokens": 256,
        "decode_cudagraph_capture_request_sizes": list(plan.resolution.fields.decode_sizes_requests or ()),
        "max_decode_cudagraph_capture_tokens": 512 * 4,
    }
    assert config["decode_cudagraph_capture_request_sizes"][-1] == max(
        shape.requests or 0 for shape in plan.graphs.shapes if shape.query_len == 4
    )


@pytest.mark.parametrize("lowering", ["none", "legacy"])
def test_the_engines_own_list_is_only_held_against_the_bound(lowering: str) -> None:
    sizes = {"cudagraph_capture_sizes": [1, 2, 4, 8, 16]} if lowering == "legacy" else {}
    plan = compiled(bounded("64GiB", compilation=sizes) | {"engine": {"version": "0.33.0", "lowering": lowering}})

    assert not {"P129", "P130", "P131"} & {one.code for one in plan.diagnostics}
    assert not any("max_cudagraph_memory" in value.because for value in plan.resolution.values.values())


def test_sizes_that_exceed_the_bound_get_those_that_do_not() -> None:
    written = {"max_prefill_cudagraph_capture_tokens": 8192, "decode_cudagraph_capture_request_sizes": [64, 512]}
    with pytest.raises(SpecError) as caught:
        compiled(bounded("1GiB", compilation=written))
    (finding,) = caught.value.diagnostics
    assert finding.code == "P129"
    words = finding.help.removeprefix("under `compilation`, write ").split(" in place of")[0]
    advised = dict(field.strip("`").split(": ", 1) for field in words.split(", `"))
    section = {name: value if value == "unlimited" else json.loads(value) for name, value in advised.items()}
    followed = compiled(bounded("1GiB", compilation=section))
    assert followed.ledger is not None
    assert followed.ledger.of(Part.GRAPHS).size <= 1 << 30

"""servespec's model of what the engine captures and replays, against the engine's own code.

Left: ``servespec.compiler.graphs``. Right: ``engine_oracle``, which runs the engine's text.  Both get the
same random configs; ``test_the_sides_are_two`` shows where each comes from.
"""

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs import dispatch, inventory, managers, stock, tiers
from servespec.compiler.graphs.dispatch import Batch, engine_dispatcher
from servespec.compiler.graphs.managers import Drafter, DrafterKind, GraphFrame, Microbatching, managers_of
from servespec.compiler.graphs.shape import Routine, Shape
from servespec.compiler.graphs.stock import TokenListRequest, stock_sizes, stock_token_list
from servespec.units import Requests, Tokens, TokensPerRequest
from tests.differential import engine_oracle as oracle
from tests.differential.engine_oracle import Graph, Sizes
from tests.differential.sides import Case, as_graph, engine_sizes, in_order
from tests.differential.stand_ins import Speculation

pytestmark = pytest.mark.engine

every_root = pytest.mark.parametrize(
    "root",
    oracle.available_roots() or [pytest.param(None, marks=pytest.mark.skip(reason="no engine under .engines"))],
    ids=lambda root: root.name if root else "none",
)
many = settings(
    max_examples=250,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # explaining a failure takes minutes
)
several = settings(many, max_examples=100)

MODES = [mode.value for mode in CudaGraphMode]


@st.composite
def schedules(draw: st.DrawFn, k: int, max_num_seqs: int) -> list[tuple[int, int, int]]:
    """Ranges from 1 on, with gaps, tails, Ks above the maximum and more ranges than batches."""
    starts = draw(st.sets(st.integers(2, max_num_seqs + 8), max_size=4))
    ordered = sorted({1, *starts})
    entries = []
    for start, following in zip(ordered, [*ordered[1:], max_num_seqs + 20], strict=True):
        end = draw(st.one_of(st.just(following - 1), st.integers(start, following - 1)))
        entries.append((start, end, draw(st.sampled_from([0, 1, 2, k]) | st.integers(0, k + 1))))
    return entries


@st.composite
def configs(draw: st.DrawFn, most_requests: int = 1100, most_tokens: int = 3000) -> Case:
    k = draw(st.sampled_from([0, 1, 2, 3, 5, 6, 7, 15, 16]))
    max_num_seqs = draw(st.integers(1, most_requests))
    sizes = draw(st.none() | st.lists(st.integers(1, most_tokens), min_size=1, max_size=20).map(tuple))
    return Case(
        sm100=draw(st.booleans()),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=draw(st.integers(1, 2 * most_tokens) | st.just(16384)),
        k=k,
        schedule=draw(st.none() | schedules(k, max_num_seqs)) if k else None,
        performance_mode=draw(st.sampled_from(["balanced", "interactivity"])),
        sizes=sizes,
        max_size=None if sizes else draw(st.none() | st.integers(1, most_tokens)),
    )


def tiers_of(config: Case) -> tuple[tiers.Tier, ...]:
    if config.schedule is None:
        return ()
    return tiers.tiers_up_to(config.schedule, Requests(config.max_num_seqs), config.k)


def frame_of(config: Case, mode: str, **rest: Any) -> GraphFrame:
    return GraphFrame(
        max_num_seqs=Requests(config.max_num_seqs),
        max_num_batched_tokens=Tokens(config.max_num_batched_tokens),
        num_speculative_tokens=config.k,
        mode=CudaGraphMode(mode),
        tiers=tiers_of(config),
        **rest,
    )


def our_sizes(config: Case) -> stock.TokenList:
    frame = frame_of(config, "FULL_AND_PIECEWISE")
    return stock_token_list(
        TokenListRequest(
            max_num_seqs=frame.max_num_seqs,
            max_num_batched_tokens=frame.max_num_batched_tokens,
            query_len=frame.query_len,
            widest_batch=frame.widest_batch,
            default_ceiling_tokens=Tokens(1024 if config.sm100 else 512),
            every_small_count=config.performance_mode == "interactivity",
            sizes=None if config.sizes is None else tuple(Tokens(size) for size in config.sizes),
            max_size=None if config.max_size is None else Tokens(config.max_size),
        )
    )


def as_graphs(shapes: Iterable[Shape]) -> tuple[Graph, ...]:
    """Our shapes in the oracle's form, in one order."""
    return in_order(map(as_graph, shapes))


def our_shapes(frame: GraphFrame, sizes: Sizes) -> tuple[Shape, ...]:
    token_list = stock.TokenList(tuple(Tokens(size) for size in sizes.capture_sizes))
    sized = stock_sizes(managers_of(frame), token_list, frame.max_num_seqs)
    return inventory.shapes_of(sized, frame.max_num_seqs)


# -- The list and the tiers -------------------------------------------------------------------------------


@every_root
@given(config=configs())
@many
def test_the_token_list(root: Path, config: Case) -> None:
    ours, engine = our_sizes(config), engine_sizes(root, config)

    assert (ours.sizes, ours.maximum) == (engine.capture_sizes, engine.max_capture_size)


@every_root
@given(config=configs(most_requests=300).filter(lambda config: config.schedule is not None))
@many
def test_the_tiers(root: Path, config: Case) -> None:
    frame = frame_of(config, "FULL_AND_PIECEWISE")
    ours = tuple(frame.k_of(Requests(n)) for n in range(1, config.max_num_seqs + 1))
    dense = oracle.dense_schedule(
        root, config.schedule, max_num_seqs=config.max_num_seqs, num_speculative_tokens=config.k
    )

    assert isinstance(dense, tuple)
    assert ours == dense[1:]


# -- The target -------------------------------------------------------------------------------------------

# The engine refuses microbatches together with drafting, and adaptive verification drafts.
targets = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(MODES),
        "lora_cases": st.sampled_from([(0,), (0, 5), (0, 1, 2, 4, 5)]),
        "varlen": st.booleans(),
        "ubatches": st.booleans(),
        "within_decode_width": st.booleans(),
    }
).filter(lambda settings: not (settings["varlen"] and settings["ubatches"]))


def our_target(config: Case, settings: dict[str, Any], sizes: Sizes) -> tuple[Shape, ...]:
    return our_shapes(
        frame_of(
            config,
            settings["mode"],
            adaptive_verification=settings["varlen"],
            lora_cases=settings["lora_cases"],
            microbatching=Microbatching(2, Tokens(32)) if settings["ubatches"] else None,
            mixed_within_decode_width=settings["within_decode_width"],
        ),
        sizes,
    )


def engine_target(root: Path, config: Case, settings: dict[str, Any], sizes: Sizes) -> oracle.Manager:
    return oracle.stock_manager(
        root,
        sizes=sizes.capture_sizes,
        max_size=sizes.max_capture_size,
        max_num_seqs=config.max_num_seqs,
        mode=settings["mode"],
        decode_query_len=1 + config.k,
        num_speculative_tokens=config.k,
        schedule=config.schedule,
        lora_cases=settings["lora_cases"],
        varlen_decode=settings["varlen"],
        ubatches=settings["ubatches"],
        use_kda_recoverssm=settings["within_decode_width"],
    )


@every_root
@given(config=configs(most_requests=200, most_tokens=400), settings=targets)
@many
def test_the_targets_graphs(root: Path, config: Case, settings: dict[str, Any]) -> None:
    sizes = engine_sizes(root, config)

    assert as_graphs(our_target(config, settings, sizes)) == in_order(
        engine_target(root, config, settings, sizes).descs
    )


@every_root
@given(config=configs(most_requests=200, most_tokens=400), settings=targets, data=st.data())
@many
def test_the_targets_dispatch(root: Path, config: Case, settings: dict[str, Any], data: st.DataObject) -> None:
    sizes = engine_sizes(root, config)
    engine = engine_target(root, config, settings, sizes)
    ours = engine_dispatcher(our_target(config, settings, sizes))
    batches = data.draw(st.lists(batches_of(config, settings), min_size=10, max_size=20))

    assert [replayed(ours.dispatch(batch)) for batch in batches] == [
        graph_or_none(
            engine.dispatch(
                batch.requests,
                batch.tokens,
                batch.query_len,
                batch.active_loras,
                batch.max_query_len,
                batch.ubatches,
            )
        )
        for batch in batches
    ]


@st.composite
def batches_of(draw: st.DrawFn, config: Case, settings: dict[str, Any]) -> Batch:
    requests = draw(st.integers(1, config.max_num_seqs + 2))
    query_len = draw(st.integers(1, config.k + 2))
    active_loras = draw(st.sampled_from(settings["lora_cases"]))
    ubatches = draw(st.sampled_from([1, 1, 2])) if settings["ubatches"] else 1
    if draw(st.booleans()):
        return Batch(
            requests=Requests(requests),
            tokens=Tokens(requests * query_len),
            query_len=TokensPerRequest(query_len),
            max_query_len=TokensPerRequest(query_len),
            active_loras=active_loras,
            ubatches=ubatches,
        )
    widest = draw(st.none() | st.just(TokensPerRequest(query_len)))
    return Batch(
        requests=Requests(requests),
        tokens=Tokens(draw(st.integers(requests, requests * query_len))),
        max_query_len=widest,
        active_loras=active_loras,
        ubatches=ubatches,
    )


def replayed(shape: Shape | None) -> Graph | None:
    return None if shape is None else as_graphs([shape])[0]


def graph_or_none(graph: Graph) -> Graph | None:
    return None if graph.mode == "NONE" else graph


# -- Drafters ---------------------------------------------------------------------------------------------

drafters = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["FULL_AND_PIECEWISE", *MODES]),
        "draft_support": st.sampled_from(["ALWAYS", "UNIFORM_BATCH", "UNIFORM_SINGLE_TOKEN_DECODE"]),
        "in_place_metadata": st.booleans(),
        "breakable_graphs": st.booleans(),
    }
)
speculating = configs(most_requests=150, most_tokens=400).filter(lambda config: config.k > 0)

_KINDS = {
    "eagle3": DrafterKind.AUTOREGRESSIVE,
    "mtp": DrafterKind.AUTOREGRESSIVE,
    "dflash": DrafterKind.BLOCK,
    "dspark": DrafterKind.BLOCK,
    "fill_in_dspark": DrafterKind.BLOCK,
    "multi_module": DrafterKind.MULTI_MODULE_MTP,
    "ngram": DrafterKind.EAGER,
}
_METHODS = {"fill_in_dspark": "dspark", "multi_module": "mtp"}


def engine_drafter(
    root: Path, config: Case, settings: dict[str, Any], sizes: Sizes
) -> dict[str, oracle.DrafterManager]:
    kind = settings["method"]
    speculation = Speculation(
        num_speculative_tokens=config.k,
        method=_METHODS.get(kind, kind),
        schedule=config.schedule,
        draft_config={
            "sample_from_anchor": kind == "dspark",
            "num_nextn_predict_layers": config.k if kind == "multi_module" else 1,
        },
    )
    return oracle.drafter_managers(
        root,
        speculation,
        sizes=sizes.capture_sizes,
        max_size=sizes.max_capture_size,
        max_num_seqs=config.max_num_seqs,
        mode=settings["mode"],
        breakable_graphs=settings["breakable_graphs"],
        draft_support=settings["draft_support"],
        in_place_metadata=settings["in_place_metadata"],
    )


def our_drafter(
    config: Case, settings: dict[str, Any], engine: dict[str, oracle.DrafterManager], sizes: Sizes
) -> dict[str, tuple[Shape, ...]]:
    """Shapes by the engine's name of their manager.

    The mode of a block manager is another part's decision, so it is taken from the engine here.
    """
    kind, method = _KINDS[settings["method"]], settings["method"]
    block = engine.get("query_cudagraph_manager") or engine.get("cudagraph_manager")
    drafter = Drafter(
        kind=kind,
        mode=CudaGraphMode(block.mode) if block else CudaGraphMode.NONE,
        query_len=TokensPerRequest(config.k if method == "dspark" else config.k + 1),
        fused_later_steps=settings["in_place_metadata"],
    )
    shapes = our_shapes(frame_of(config, settings["mode"], drafter=drafter), sizes)
    step0, later, block_routines = (
        {Routine.STEP0_PIECEWISE, Routine.STEP0_UNIFORM},
        {Routine.LATER_STEPS},
        {Routine.BLOCK, Routine.BLOCK_PIECEWISE},
    )
    names = {
        "prefill_cudagraph_manager": step0,
        "decode_cudagraph_manager": later,
        "query_cudagraph_manager": block_routines,
        "cudagraph_manager": block_routines,
    }
    return {name: tuple(s for s in shapes if s.routine in names[name]) for name in engine}


@every_root
@pytest.mark.parametrize("method", _KINDS)
@given(config=speculating, settings=drafters)
@several
def test_a_drafters_graphs(root: Path, method: str, config: Case, settings: dict[str, Any]) -> None:
    # The engine takes the plain MTP speculator where only one module would be used.
    assume(method != "multi_module" or config.k > 1)
    settings = {**settings, "method": method}
    sizes = engine_sizes(root, config)
    engine = engine_drafter(root, config, settings, sizes)
    ours = our_drafter(config, settings, engine, sizes)

    assert {name: as_graphs(shapes) for name, shapes in ours.items()} == {
        name: in_order(manager.captured) for name, manager in engine.items()
    }


@every_root
@given(config=speculating, settings=drafters)
@several
def test_a_drafters_later_steps_dispatch(root: Path, config: Case, settings: dict[str, Any]) -> None:
    settings = {**settings, "method": "eagle3"}
    sizes = engine_sizes(root, config)
    engine = engine_drafter(root, config, settings, sizes)
    later = engine["decode_cudagraph_manager"]
    ours = engine_dispatcher(our_drafter(config, settings, engine, sizes)["decode_cudagraph_manager"])
    frame = frame_of(config, settings["mode"])
    drafting = [(n, frame.k_of(Requests(n))) for n in range(1, config.max_num_seqs + 1) if frame.k_of(Requests(n)) > 1]

    actual = [
        replayed(ours.dispatch(dispatch.uniform_batch(Requests(n), TokensPerRequest(1), draft_steps=k)))
        for n, k in drafting
    ]

    assert actual == [graph_or_none(later.dispatch_later_steps(n, k)) for n, k in drafting]


# -- The two sides ----------------------------------------------------------------------------------------


@every_root
def test_the_sides_are_two(root: Path) -> None:
    config = Case(sm100=True, max_num_seqs=64, max_num_batched_tokens=8192, k=3)
    sizes = engine_sizes(root, config)
    engine_target(
        root,
        config,
        {
            "mode": "FULL_AND_PIECEWISE",
            "lora_cases": (0,),
            "varlen": False,
            "ubatches": False,
            "within_decode_width": False,
        },
        sizes,
    )
    ours = {Path(inspect.getfile(module)) for module in (stock, tiers, inventory, managers, dispatch)}
    engine = {Path(taken.file) for taken in oracle.provenance(root)}
    print("servespec:", *sorted(map(str, ours)), oracle.provenance_report(root), sep="\n")

    assert all("servespec" in file.parts and "vllm" not in file.parts for file in ours)
    assert all(file.is_relative_to(root) for file in engine)
    assert not any("servespec" in module for module in vars(oracle) if inspect.ismodule(vars(oracle)[module]))

"""The published matrices: 2,880 configurations, and the 480 of adaptive verification.

First, for each: what servespec says the engine captures and replays is what the engine does.  Then, for each: the
split settings against the engine as the pull request's review states it, with the review's own counts where it gives
them.  Source: vLLM pull request "separate prefill/decode graph sizes", review.

Everywhere all lists are compared; the graphs of one configuration in eight, and of all where ``CI`` is set.
"""

import inspect
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.differential import engine_oracle as oracle
from tests.differential.sides import (
    DRAFTERS,
    Case,
    Ranges,
    differences,
    drafters_of,
    engine_answers,
    engine_sizes,
    frame_of,
    k_of_each,
    our_answers,
    real_graphs,
    stock_shapes,
    token_list,
)
from tests.differential.split_rules import (
    Fields,
    Rows,
    Stock,
    expected_rows,
    rows_of,
    widest_batches,
    with_uniform_decode,
)

pytestmark = pytest.mark.engine

every_root = pytest.mark.parametrize(
    "root",
    oracle.available_roots() or [pytest.param(None, marks=pytest.mark.skip(reason="no engine under .engines"))],
    ids=lambda root: root.name if root else "none",
)

ONE_IN = 1 if os.environ.get("CI") else 8
GRAPHS = real_graphs()

MODES = ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "PIECEWISE")
REQUESTS = (1, 8, 72, 128, 256, 512)
TOKENS = (2048, 8192)
POWERS_OF_TWO = tuple(1 << exponent for exponent in range(10))


class Sizing(NamedTuple):
    sizes: tuple[int, ...] | None = None
    max_size: int | None = None


SIZINGS = (Sizing(), Sizing(max_size=1024), Sizing(max_size=8192), Sizing(sizes=POWERS_OF_TWO))


def three_tiers(k: int) -> Ranges:
    """Three tiers, of which 8 requests meet one and 72 all; they need K of at least 3 to differ."""
    return ((1, 8, k), (9, 64, (k + 1) // 2), (65, 512, 1))


DRAFTS: tuple[tuple[int, Ranges | None], ...] = (
    *((k, None) for k in (0, 1, 3, 5, 7, 16)),
    *((k, three_tiers(k)) for k in (3, 5, 7, 16)),
)


def matrix() -> Iterator[Case]:
    for sm100, requests, (k, schedule), tokens, sizing, mode in product(
        (True, False), REQUESTS, DRAFTS, TOKENS, SIZINGS, MODES
    ):
        yield Case(sm100, requests, tokens, k, schedule, *sizing, mode=mode)


def verification_matrix(mode: str = "FULL_AND_PIECEWISE") -> Iterator[Case]:
    for sm100, requests, k, tokens, sizing in product((True, False), REQUESTS, (1, 3, 5, 7, 16), TOKENS, SIZINGS):
        yield Case(sm100, requests, tokens, k, None, *sizing, mode=mode, adaptive_verification=True)


def test_the_matrices_have_the_published_sizes() -> None:
    assert (len(set(matrix())), len(set(verification_matrix()))) == (2880, 480)


# -- The engine and what servespec says of it --------------------------------------------------------------


class Seen(NamedTuple):
    """All that the graphs of a case depend on once its list is made."""

    sizes: oracle.Sizes
    max_num_seqs: int
    k: int
    schedule: Ranges | None
    mode: str
    adaptive_verification: bool


def distinct(root: Path, cases: Iterator[Case]) -> dict[Seen, Case]:
    """One case for each different list and limits: the others give the same graphs by construction."""
    return {
        Seen(
            engine_sizes(root, case), case.max_num_seqs, case.k, case.schedule, case.mode, case.adaptive_verification
        ): case
        for case in cases
    }


def compared(root: Path, cases: Iterator[Case]) -> dict[Case, list[str]]:
    """The cases whose graphs or dispatch differ."""
    chosen = list(distinct(root, cases).values())[oracle.VERSIONS.index(root.name.partition("-")[2]) :: ONE_IN]
    found = {case: differences(our_answers(GRAPHS, case), engine_answers(root, case)) for case in chosen}
    print(f"{root.name}: {len(chosen)} cases with graphs of their own compared, {len(DRAFTERS)} drafters")
    return {case: names for case, names in found.items() if names}


@every_root
def test_every_list_of_the_matrices_is_the_engines(root: Path) -> None:
    differing = [
        case
        for case in (*matrix(), *verification_matrix())
        if token_list(GRAPHS, case).sizes != engine_sizes(root, case).capture_sizes
    ]

    assert differing == []


@every_root
def test_graphs_and_dispatch_of_the_matrix_are_the_engines(root: Path) -> None:
    assert compared(root, matrix()) == {}


@every_root
def test_graphs_and_dispatch_under_adaptive_verification_are_the_engines(root: Path) -> None:
    cases = (case for mode in MODES[:2] for case in verification_matrix(mode))

    assert compared(root, cases) == {}


@every_root
def test_the_sides_are_two(root: Path) -> None:
    case = Case(False, 8, 2048, 3)
    engine_answers(root, case)
    ours = {Path(inspect.getfile(module)) for module in vars(GRAPHS).values()}
    engine = {Path(taken.file) for taken in oracle.provenance(root)}
    print("servespec:", *sorted(map(str, ours)), oracle.provenance_report(root), sep="\n")

    assert all(file.is_relative_to(root) for file in engine)
    assert {"cudagraph_utils.py", "vllm.py"} <= {file.name for file in engine}
    assert not ours & engine
    assert all(file.parent.parent.name == "compiler" and not file.is_relative_to(root) for file in ours)


# -- The split settings against the engine -----------------------------------------------------------------


def split_shapes(case: Case, drafter: str | None, wide: bool) -> tuple[Any, ...]:
    frame = frame_of(GRAPHS, case, DRAFTERS[drafter] if drafter else None)
    legacy = GRAPHS.split.CaptureFields(legacy_sizes_tokens=case.sizes, legacy_max_tokens=case.max_size)
    defaults = GRAPHS.split.SizeDefaults(wide=wide)
    shapes: tuple[Any, ...] = GRAPHS.split.split_shapes(frame, legacy, defaults, token_list(GRAPHS, case))
    return shapes


def engine_shapes(case: Case, drafter: str | None = None) -> tuple[Any, ...]:
    """The engine's graphs as servespec knows them; the tests above compare these with the engine itself."""
    frame = frame_of(GRAPHS, case, DRAFTERS[drafter] if drafter else None)
    return stock_shapes(GRAPHS, frame, token_list(GRAPHS, case))


def split_rows(case: Case, drafter: str | None = None) -> Rows:
    return _split_rows(case, drafter, case.sm100)


@cache
def _split_rows(case: Case, drafter: str | None, wide: bool) -> Rows:
    return rows_of(GRAPHS.shape.rows_of(split_shapes(case, drafter, wide)))


def first_commits_rows(case: Case) -> Rows:
    """Ours where compute capability 10.x has no defaults of its own yet: the reviewed pull request's first commit."""
    return _split_rows(case, None, False)


@cache
def engine_rows(case: Case, drafter: str | None = None) -> Rows:
    return rows_of(GRAPHS.shape.rows_of(engine_shapes(case, drafter)))


def of(rows: Rows, routine: str) -> Rows:
    return {key: sizes for key, sizes in rows.items() if key[0] == routine}


def decode_rows(*, tiers: bool) -> list[tuple[Case, Rows, Rows]]:
    return [
        (case, of(engine_rows(case), "uniform_decode"), of(first_commits_rows(case), "uniform_decode"))
        for case in matrix()
        if bool(case.schedule) is tiers
    ]


def test_piecewise_graphs_are_the_engines_in_all_2880() -> None:
    same = [of(engine_rows(case), "piecewise") == of(first_commits_rows(case), "piecewise") for case in matrix()]

    assert (sum(same), len(same)) == (2880, 2880)


def test_static_target_decode_differs_only_for_explicit_lists_and_only_gains() -> None:
    differing = [(case, engine, split) for case, engine, split in decode_rows(tiers=False) if engine != split]

    assert all(case.sizes is not None for case, _, _ in differing)
    assert all(set(split[key]) > set(sizes) for _, engine, split in differing for key, sizes in engine.items())
    # A power of two rounds up to the full batch of every other (requests, K), or the list does not reach it.
    assert {(case.max_num_seqs, case.k) for case, _, _ in differing} == {(8, 5), (72, 0), (72, 1), (72, 3)}
    assert len(differing) == 4 * 8  # times 2 GPUs, 2 step limits and the 2 modes with decode graphs


def test_the_reviews_example_of_a_gain() -> None:
    case = Case(False, 8, 2048, 5, None, POWERS_OF_TWO)
    key = ("uniform_decode", 6, None)

    assert (engine_rows(case)[key], split_rows(case)[key]) == ((1, 2, 3, 6), (1, 2, 3, 6, 8))


def full_requests(case: Case, shapes: tuple[Any, ...], dispatcher_of: Any) -> frozenset[int]:
    """The decode batches that replay a FULL graph of the target."""
    dispatcher = dispatcher_of(shapes)
    uniform = GRAPHS.dispatch.uniform_batch
    replays = ((n, dispatcher.dispatch(uniform(n, 1 + k))) for n, k in enumerate(k_of_each(case), 1))
    return frozenset(n for n, shape in replays if shape is not None and shape.mode == "FULL")


def test_tiers_lose_no_full_coverage() -> None:
    lost, gained = {}, 0
    dynamic = [case for case in matrix() if case.schedule and case.mode == "FULL_AND_PIECEWISE"]
    for case in dynamic:
        engine = full_requests(case, engine_shapes(case), GRAPHS.dispatch.engine_dispatcher)
        for wide in {False, case.sm100}:
            split = full_requests(case, split_shapes(case, None, wide), GRAPHS.dispatch.split_dispatcher)
            lost[case, wide] = sorted(engine - split)
            gained += split > engine
    print(f"{gained} of {len(lost)} tiered configurations gain FULL coverage")

    assert {key: requests for key, requests in lost.items() if requests} == {}
    assert gained > 0


def test_the_512_configurations_that_meet_tiers_capture_nothing_that_no_batch_reaches() -> None:
    differing = [(case, split) for case, engine, split in decode_rows(tiers=True) if engine != split]
    beyond = [
        (case, key, n)
        for case, split in differing
        for key, sizes in split.items()
        for n in sizes[:-1]
        if n > widest_batches(case)[key[1] or 0]
    ]

    # 768 have decode graphs and tiers; 512 of them meet more than one. 8 requests with K = 5 gain the cap of the list.
    assert [case for case, _ in differing if case.max_num_seqs == 1] == []
    assert {(case.k, case.sizes) for case, _ in differing if case.max_num_seqs == 8} == {(5, POWERS_OF_TWO)}
    assert Counter(case.max_num_seqs > 8 for case, _ in differing) == {True: 512, False: 8}
    assert beyond == []


def test_only_compute_capability_10_with_nothing_set_has_defaults_of_its_own() -> None:
    cases = {"matrix": [*matrix()], "verification": [c for mode in MODES[:2] for c in verification_matrix(mode)]}
    own = {name: [c for c in every if c.sm100 and c.nothing_set] for name, every in cases.items()}
    changed = {name: [c for c in every if split_rows(c) != first_commits_rows(c)] for name, every in cases.items()}
    print({name: f"{len(changed[name])} of {len(own[name])} change" for name in cases})

    assert all(set(changed[name]) <= set(own[name]) for name in cases)
    assert {name: len(cases[name]) - len(own[name]) for name in cases} == {"matrix": 2520, "verification": 840}


def test_one_token_draft_decodes_reach_every_request() -> None:
    """The reviewed tree had 348 narrower ones, the final rule gives these routines a grid of their own."""
    wider = Counter[bool]()
    for case in matrix():
        if case.k > 1 and case.mode == "FULL_AND_PIECEWISE":
            engine, split = (of(rows(case, "eagle3"), "later_steps") for rows in (engine_rows, split_rows))
            assert {key: sizes[-1] for key, sizes in split.items()} == dict.fromkeys(engine, case.max_num_seqs)
            wider[min(sizes[-1] for sizes in engine.values()) < case.max_num_seqs] += 1

    assert wider == {True: 32, False: 736}


def test_every_row_follows_the_rules_in_their_own_words() -> None:
    differing = []
    for case in [*matrix(), *verification_matrix()][::ONE_IN]:
        counts = of(engine_rows(with_uniform_decode(case)), "uniform_decode")
        stock = Stock(token_list(GRAPHS, case).sizes, {q or 0: sizes for (_, q, _), sizes in counts.items()})
        for name in (None, *drafters_of(case)):
            expected = expected_rows(case, Fields(), DRAFTERS[name] if name else None, stock, case.sm100)
            if split_rows(case, name) != expected:
                differing.append((case, name))

    assert differing == []


# -- Adaptive verification against the engine ---------------------------------------------------------------


class Verdict(NamedTuple):
    """How many of the 480 differ from the engine, by what happens to the widest graph."""

    identical: int
    narrower: int
    wider: int
    same_reach: int


def verdict(ours_of: Any, mode: str = "FULL_AND_PIECEWISE") -> Verdict:
    found = Counter[str]()
    for case in verification_matrix(mode):
        key = ("adaptive_verification", 1 + case.k, None)
        ours, engine = ours_of(case), engine_rows(case)[key]
        reach = (ours[-1] > engine[-1]) - (ours[-1] < engine[-1])
        found["identical" if ours == engine else ("same_reach", "wider", "narrower")[reach]] += 1
    return Verdict(**{name: found[name] for name in Verdict._fields})


def ours(case: Case) -> tuple[int, ...]:
    return split_rows(case)["adaptive_verification", 1 + case.k, None]


def with_the_reviewed_grid(case: Case) -> tuple[int, ...]:
    """Our cap, with the grid that the reviewed tree had: the engine's strides to 1024, then 256, and 512 from 4096."""
    cap = ours(case)[-1]
    every = [1, 2, 4, *range(8, 256, 8), *range(256, 1024, 16), *range(1024, 4096, 256), *range(4096, cap, 512)]
    return (*(t for t in every if t < cap), cap)


def test_the_review_of_adaptive_verification_is_reproduced() -> None:
    assert verdict(with_the_reviewed_grid) == Verdict(identical=254, narrower=76, wider=66, same_reach=84)


def test_adaptive_verification_against_the_engine() -> None:
    """The caps are those of the review; the final grid has four sizes a doubling, so fewer sets are equal."""
    found = {mode: verdict(ours, mode) for mode in MODES[:2]}

    assert found == dict.fromkeys(MODES[:2], Verdict(identical=52, narrower=76, wider=66, same_reach=286))

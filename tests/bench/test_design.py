"""What a bench measures, in which order, and what keeps it from being run."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.runtime.bench.design import BenchDesign, arms_in, design_findings, labels_of, rounds_of

DESIGN = BenchDesign(
    arms=("stock", "legacy", "extension"),
    concurrencies=(1, 64),
    input_tokens=256,
    output_tokens=128,
    prompts_per_request=4,
    rounds=5,
    seed=0,
    side_by_side_kv_bytes=None,
)
designs = st.builds(
    BenchDesign,
    arms=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=4, unique=True).map(tuple),
    concurrencies=st.lists(st.integers(1, 512), min_size=1, max_size=4, unique=True).map(tuple),
    input_tokens=st.just(8),
    output_tokens=st.just(8),
    prompts_per_request=st.just(1),
    rounds=st.integers(1, 6),
    seed=st.just(0),
    side_by_side_kv_bytes=st.sampled_from([None, 1 << 30]),
)


@given(designs)
def test_every_cell_is_measured_once_and_its_round_holds_it(design: BenchDesign) -> None:
    rounds = list(rounds_of(design))
    counts = Counter(cell for cells in rounds for cell in cells)

    assert set(counts.values()) == {1}
    assert len(counts) == len(design.arms) * len(design.concurrencies) * design.rounds
    assert [{cell.round for cell in cells} for cells in rounds] == [{number} for number in range(1, design.rounds + 1)]


@given(designs)
def test_arms_that_take_turns_are_launched_once_a_round_and_arms_side_by_side_alternate(design: BenchDesign) -> None:
    for cells in rounds_of(design):
        order = tuple(cell.arm for cell in cells)
        if design.side_by_side_kv_bytes is None:
            assert order == tuple(arm for arm in arms_in(design, cells[0].round) for _ in design.concurrencies)
        else:
            assert order == arms_in(design, cells[0].round) * len(design.concurrencies)


def test_every_other_round_runs_backwards() -> None:
    assert [arms_in(DESIGN, number)[0] for number in (1, 2, 3)] == ["stock", "extension", "stock"]


def test_every_load_of_every_round_has_prompts_of_its_own() -> None:
    """Also another bench on a server that is still up, with a seed of its own."""
    seeds = [
        replace(DESIGN, seed=seed).prompts_seed(number, load)
        for seed in (0, 1, (1 << 32) - 1)
        for number in range(21)
        for load in (1, 2, 16, 64, 100, 128, 256, 512, 1024)
    ]

    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 1 << 32 for seed in seeds)


def test_an_arm_that_is_named_again_gets_a_number() -> None:
    assert labels_of(("stock", "stock", "legacy", "stock")) == ("stock", "stock-2", "legacy", "stock-3")
    assert labels_of(("stock", "specs/k3.yaml", "other/k3.yaml")) == ("stock", "k3", "k3-2")
    assert labels_of(("stock", "stock", "specs/stock-2.yaml")) == ("stock", "stock-2", "stock-2-2")


def test_a_preset_keeps_the_whole_of_its_name() -> None:
    names = ("preset:deepseek-v3.2__h200x8__balanced", "preset:deepseek-v3.2__b200x8__balanced")
    assert labels_of(names) == names


def test_a_design_that_fits_is_not_refused() -> None:
    assert list(design_findings(DESIGN, 384, 64)) == []
    assert list(design_findings(DESIGN, None, 64)) == []


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"rounds": 0}, "--rounds", "`--rounds` is `0`"),
        ({"prompts_per_request": 0}, "--prompts", "`--prompts` is `0`"),
        ({"seed": -1}, "--seed", "`--seed` is `-1`"),
        ({"seed": 1 << 32}, "--seed", "`--seed` is `4294967296`"),
        ({"input_tokens": -1}, "--input-tokens", "`--input-tokens` is `-1`"),
        ({"output_tokens": 0}, "--output-tokens", "`--output-tokens` is `0`"),
        ({"concurrencies": (0, 1)}, "--concurrency 0", "`--concurrency 0` is `0`"),
        ({"concurrencies": (4, 4)}, "--concurrency", "a concurrency is named twice"),
        ({"input_tokens": 257}, "--input-tokens", "requests of 385 tokens are longer than `model.max_model_len` 384"),
        ({"concurrencies": (65,)}, "--concurrency", "concurrency 65 is above `scheduler.max_num_seqs` 64"),
    ],
)
def test_a_design_that_measures_nothing_is_refused(changes: dict[str, object], place: str, said: str) -> None:
    findings = list(design_findings(replace(DESIGN, **changes), 384, 64))

    assert [(one.place.file, one.message) for one in findings] == [(place, said)]

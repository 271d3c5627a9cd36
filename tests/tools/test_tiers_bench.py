"""What the page of curves says of tiers served beside fixed K: what is beyond an interval, and beyond twins."""

from typing import Any

import pytest
from doc_pages.tiers_bench import TiersBench, verdict

from servespec.runtime.bench.ratios import RATIO_METRICS, paired_ratios

LOADS = (1, 64)
ROUNDS = (1, 2, 3)
APART = 0.03
FIXED = {3: "k3", 7: "k7"}


def spec(drafts: int, further: str = "") -> str:
    return (
        "servespec: 1\n"
        "model: {id: models/target}\n"
        "hardware: {gpu: h200}\n"
        "speculative:\n"
        "  model: models/draft\n"
        f"  num_speculative_tokens: {drafts}\n"
        f"{further}"
    )


def served(speeds: dict[tuple[str, int], float], *, fresh: bool = True, tpot: float = 1.0) -> TiersBench:
    """Tiers of 7 and then 3 that serve about 100 tokens a second; an arm's own speed is ``speeds`` by arm and load.

    ``tpot`` is the time per output token of K = 7.
    """
    texts = {"spec": spec(7, "  dynamic: {from_curve: curve.json}\n"), "k3": spec(3), "k7": spec(7)}
    wobble = {1: 1.0, 2: 1.001, 3: 0.999}
    cells = [
        {"arm": arm, "round": number, "concurrency": load, "prompts": 1, "completed": 1}
        | dict.fromkeys(RATIO_METRICS, 1.0)
        | {"output_tokens_per_second": speeds.get((arm, load), 80.0 if arm in FIXED.values() else 100.0)}
        | {"mean_tpot_ms": (tpot if arm == "k7" else 1.0) * (wobble[number] if arm == "spec" else 1.0)}
        for arm in texts
        for load in LOADS
        for number in ROUNDS
    ]
    bench: dict[str, Any] = {
        "design": {"concurrencies": list(LOADS), **({"fresh_prompts": True} if fresh else {})},
        "arms": {arm: {"texts": {f"{arm}.yaml": text}, "lowering": "extension"} for arm, text in texts.items()},
        "cells": cells,
        "ratios": [one.to_json() for one in paired_ratios(tuple(texts), cells)],
    }
    chosen = [{"num_speculative_tokens": 7, "to_requests": 20}, {"num_speculative_tokens": 3, "to_requests": 64}]
    choice = {"chosen": chosen}
    return TiersBench(
        file="bench-tiers-x.json",
        bench=bench,
        tiers="spec",
        fixed=FIXED,
        load_aware=None,
        choice=choice,
        played={},
        played_at_once={},
    )


def test_tiers_that_nothing_is_ahead_of_have_one_sentence_of_loads_and_one_of_all() -> None:
    assert verdict(served({}), APART).splitlines() == [
        "At 2 of 2 loads none of these fixed K served more beyond the interval.",
        "Over all loads tiers served more than K = 3 and 7, beyond the interval and by more than twins differ.",
    ]


@pytest.mark.parametrize(("tpot", "by_first_tokens"), [(0.99, False), (1.01, True)])
def test_a_fixed_k_of_the_same_steps_is_a_twin_however_far_ahead(tpot: float, by_first_tokens: bool) -> None:
    said = verdict(served({("k7", 1): 110.0}, tpot=tpot), APART)

    assert "At 1 request K = 7 did, by 10.0%, but there it is a [twin](#twins) of the tiers." in said
    assert f"Its time per output token is {tpot:.3f} (" in said
    assert ("by its first tokens alone" in said) == by_first_tokens


@pytest.mark.parametrize(("speed", "said"), [(102.0, "no more than"), (110.0, "more than")])
def test_a_fixed_k_of_other_steps_is_held_against_how_far_twins_differ(speed: float, said: str) -> None:
    """At one request too, where it drafts another number of tokens."""
    ahead = f"{speed / 100 - 1:.1%}"
    few, many = (verdict(served({("k3", load): speed}), APART) for load in LOADS)

    assert f"At 1 request K = 3 did, by {ahead}, which is {said} [twins](#twins) differ by" in few
    assert f"At 64 requests K = 3 did, by {ahead}, which is {said} [twins](#twins) differ by" in many
    assert few.startswith("At 1 of 2 loads")
    assert "crosses a tier's edge" not in few, "one request is in one tier"
    assert ("crosses a tier's edge" in many) == (said == "more than")


def test_a_fixed_k_of_as_many_drafts_is_no_twin_at_more_than_one_request() -> None:
    assert "At 64 requests K = 7 did, by 10.0%, which is more than" in verdict(served({("k7", 64): 110.0}), APART)


def test_what_cached_prompts_cost_tiers_is_said_where_prompts_were_cached() -> None:
    fresh, cached = (verdict(served({}, fresh=fresh), APART) for fresh in (True, False))

    assert "PIECEWISE" not in fresh
    assert "PIECEWISE" in cached


def test_no_gain_over_all_loads_is_told_as_none() -> None:
    behind = {(arm, load): 101.0 for arm in FIXED.values() for load in LOADS}

    assert "Over all loads tiers served more than no fixed K" in verdict(served(behind), APART)


def test_a_gain_over_all_loads_that_twins_could_have_is_left_open() -> None:
    near = {("k3", load): 98.0 for load in LOADS}

    assert verdict(served(near), APART).splitlines()[-1] == (
        "Over all loads tiers served more than K = 7, beyond the interval and by more than twins differ; "
        "of K = 3 that cannot be said."
    )
    assert verdict(served(near), 0.01).splitlines()[-1] == (
        "Over all loads tiers served more than K = 3 and 7, beyond the interval and by more than twins differ."
    )

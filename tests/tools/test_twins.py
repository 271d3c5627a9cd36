"""Twins of a bench: arms whose servers run the same steps for one request."""

from collections.abc import Mapping
from typing import Any

import pytest
from doc_pages.twins import TPOT, Twins, distance_of, twins_of, twins_section

from servespec.runtime.bench.ratios import RATIO_METRICS, paired_ratios

RATES = [0.8, 0.6, 0.4, 0.3, 0.2, 0.2, 0.1]
BY_CURVE = "  dynamic: {from_curve: curve.json}\n"
WRITTEN = "  dynamic: [{up_to: 8, num_speculative_tokens: 3}, {num_speculative_tokens: 1}]\n"


def spec(drafts: int, further: str = "", *, port: int = 8000, caps: str = "max_num_seqs: 512") -> str:
    return (
        "servespec: 1\n"
        "model: {id: models/target, load_format: dummy}\n"
        "hardware: {gpu: h200}\n"
        f"scheduler: {{{caps}}}\n"
        "speculative:\n"
        "  method: eagle3\n"
        "  model: models/draft\n"
        f"  num_speculative_tokens: {drafts}\n"
        "  rejection_sample_method: synthetic\n"
        f"  synthetic_acceptance_rates: {RATES[:drafts]}\n"
        f"{further}"
        f"serve: {{port: {port}}}\n"
    )


PLAIN = "servespec: 1\nmodel: {id: models/target, load_format: dummy}\nhardware: {gpu: h200}\n"


def bench(texts: Mapping[str, str], *, lowerings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Arms at one and at eight requests; each is a percent slower than the one before it."""
    slow = {arm: 1.01**at for at, arm in enumerate(texts)}
    cells = [
        {"arm": arm, "round": number, "concurrency": load, "prompts": 1, "completed": 1}
        | dict.fromkeys(RATIO_METRICS, slow[arm] * number)
        for arm in texts
        for load in (1, 8)
        for number in (1, 2)
    ]
    lowering = lowerings or {}
    return {
        "arms": {
            arm: {"texts": {f"{arm}.yaml": text}, "lowering": lowering.get(arm, "extension")}
            for arm, text in texts.items()
        },
        "ratios": [one.to_json() for one in paired_ratios(tuple(texts), cells)],
    }


def found(texts: Mapping[str, str], by_curve: int = 7, **further: Any) -> list[tuple[str, str, int]]:
    return [(one.arm, one.over, one.num_speculative_tokens) for one in twins_of("x", bench(texts, **further), by_curve)]


@pytest.mark.parametrize("drafts", [1, 3, 7])
def test_tiers_by_a_curve_are_the_twin_of_the_fixed_k_that_they_draft_for_one_request(drafts: int) -> None:
    texts = {"spec": spec(7, BY_CURVE), **{f"k{k}": spec(k, port=8000 + k) for k in (1, 3, 7)}, "k0": PLAIN}

    assert found(texts, drafts) == [(f"k{drafts}", "spec", drafts)]


def test_written_tiers_are_the_twin_of_their_first_k() -> None:
    assert found({"tiers": spec(7, WRITTEN), "k3": spec(3), "k1": spec(1), "k7": spec(7)}) == [("k3", "tiers", 3)]


def test_an_arm_that_is_named_twice_is_its_own_twin() -> None:
    assert found({"spec": spec(3), "spec-2": spec(3)}) == [("spec-2", "spec", 3)]
    assert found({"plain": PLAIN, "plain-2": PLAIN}) == [("plain-2", "plain", 0)]


@pytest.mark.parametrize(("start", "is_twin"), [("auto", True), ("64", True), ("1", False)])
def test_a_load_aware_arm_is_a_twin_below_its_knee_alone(start: str, is_twin: bool) -> None:
    curve = ", from_curve: curve.json" if start == "auto" else ""
    load = spec(7, f"  load_aware: {{from_requests: {start}{curve}}}\n") + (
        "compilation: {adaptive_verification_grid: reachable}\n"
    )
    document = bench({"k7": spec(7), "load": load, "k3": spec(3)})
    twins = list(twins_of("x", document, 7))

    assert [(one.arm, one.over, one.has_load_aware) for one in twins] == ([("load", "k7", True)] if is_twin else [])


def test_chosen_drafts_have_no_twin() -> None:
    chosen = spec(7, "  enable_adaptive_verification: true\n")

    assert found({"k7": spec(7), "chosen": chosen, "chosen-2": chosen}) == []


def test_what_else_differs_parts_twins() -> None:
    assert found({"one": spec(7), "other": spec(7, caps="max_num_seqs: 256")}) == []
    assert found({"one": spec(7), "other": spec(7)}, lowerings={"other": "legacy"}) == []
    assert found({"plain": PLAIN, "none": spec(7, "  dynamic: [{num_speculative_tokens: 0}]\n")}) == []
    assert found({"one": spec(7), "other": spec(7).replace("0.8", "0.9")}) == []


def test_a_pair_of_twins_has_the_ratios_of_one_request_and_of_time_per_output_token() -> None:
    document = bench({"spec": spec(3), "spec-2": spec(3)})
    for one in document["ratios"]:
        is_it = one["metric"] == TPOT and one["concurrency"] == 1
        one["ratios"] = [1.02, 1.03] if is_it else [9.0, 9.0]
    (one,) = twins_of("x", document, 7)

    assert one.ratios == (1.02, 1.03)
    assert one.file == "x"


def twins(*ratios: float, load_aware: bool = False) -> Twins:
    return Twins(file="x", arm="a", over="b", num_speculative_tokens=7, ratios=ratios, has_load_aware=load_aware)


def test_twins_are_as_far_apart_whichever_is_named_first() -> None:
    assert twins(1.25, 1.25).distance == pytest.approx(0.25)
    assert twins(0.8, 0.8).distance == pytest.approx(0.25)
    assert distance_of([twins(1.01), twins(0.98), twins(1.015)]) == pytest.approx(1 / 0.98 - 1)


def test_the_section_says_how_many_intervals_hold_equality() -> None:
    apart, equal, load = twins(1.02, 1.021, 1.02), twins(0.99, 1.01, 1.0), twins(1.06, 1.062, load_aware=True)
    text = "\n".join(twins_section([apart, equal, load]))

    assert [one.interval_holds_one for one in (apart, equal, load)] == [False, True, False]
    assert "1 of the 3 intervals holds 1" in text
    assert "up to 6.1%, by up to 2.0% where none is load-aware" in text
    assert "none of the 1 intervals hold 1" in "\n".join(twins_section([apart]))

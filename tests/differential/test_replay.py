"""The replay in a whole engine of the version that it is made for: on the CPU, with stand-ins for its graphs."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.differential.stepped_engine_process import answers_to

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SCENARIOS = ["as captured", "stale", "noisy", "fault"]
TARGET_OUTPUTS = "hidden states", "auxiliary hidden states 0", "sampled tokens", "accepted drafts"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Each scenario's result, from one engine."""
    return answers_to(SCENARIOS, tmp_path_factory.mktemp("replay"))


def steps_of(result: Json) -> Iterator[Json]:
    return (step for batch in result["batches"] for step in batch["steps"])


def outputs_of(result: Json, side: str) -> Iterator[tuple[str, Json]]:
    return ((name, one) for step in steps_of(result) for name, one in step[side].items())


def test_every_captured_graph_is_reached(results: Json) -> None:
    result = results["as captured"]
    reached = {tuple(shape) for step in steps_of(result) for shape in step["shapes"]}

    assert (result["complete"], result["refused"]) == (True, None)
    assert [batch["error"] or batch["because"] for batch in result["batches"]] == [None] * len(result["batches"])
    assert reached == {tuple(shape) for shape in result["shapes"]}
    assert len(reached) == 10


def test_graphs_are_equal_bit_for_bit_in_padded_and_mixed_batches(results: Json) -> None:
    result = results["as captured"]
    asked = {(batch["requests"], batch["tokens"], bool(batch["prompts"])) for batch in result["batches"]}

    assert {(2, 6, False), (3, 9, False), (4, 11, True), (4, 12, True)} <= asked
    for side, names in (("target", TARGET_OUTPUTS), ("drafter", ("draft tokens", "draft hidden states"))):
        compared = list(outputs_of(result, side))
        assert {name for name, _ in compared} >= set(names)
        assert [name for name, one in compared if not (one["equal"] and one["eager_reproduces"])] == []


def test_accepted_counts_differ_between_consecutive_steps_and_agree_with_eager(results: Json) -> None:
    result = results["as captured"]
    decoding = [batch for batch in result["batches"] if not batch["prompts"] and batch["requests"] == 2]

    assert [step["accepted"]["graphs"] for batch in decoding for step in batch["steps"]] == [1, 3]
    assert all(step["accepted"]["graphs"] == step["accepted"]["eager"] for step in steps_of(result))
    assert result["speculation"]["equal"] == result["speculation"]["requests"] > 0


def test_a_graph_that_reads_the_lengths_of_the_step_before_is_found(results: Json) -> None:
    """The first step of all has none before it; both eager runs agree in each."""
    decoding = [batch for batch in results["stale"]["batches"] if batch["decodes"] and not batch["prompts"]]
    hidden = [step["target"]["hidden states"] for batch in decoding for step in batch["steps"] if is_full(step)]

    assert hidden[0]["equal"]
    assert [one["equal"] for one in hidden[1::2]] == [False] * 3
    assert all(one["eager_reproduces"] for one in hidden)
    assert min(one["largest_absolute"] for one in hidden[1::2]) > 0


def is_full(step: Json) -> bool:
    return bool(step["shapes"][0][2] == "FULL")


def test_a_kernel_that_does_not_reproduce_is_told_from_a_graph_that_differs(results: Json) -> None:
    hidden = [one for name, one in outputs_of(results["noisy"], "target") if name == "hidden states"]

    assert hidden
    assert not any(one["equal"] or one["eager_reproduces"] for one in hidden)


def test_what_cannot_be_replayed_is_given_up_and_the_rest_goes_on(results: Json) -> None:
    result = results["fault"]
    failed = [(batch["requests"], batch["tokens"], batch["error"]) for batch in result["batches"] if batch["error"]]

    assert failed == [(2, 6, "RuntimeError: a graph is broken"), (3, 9, "RuntimeError: a graph is broken")]
    assert result["complete"]
    assert all(one["equal"] for side in ("target", "drafter") for _, one in outputs_of(result, side))

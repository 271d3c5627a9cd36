"""Adaptive verification from a number of requests on, in a whole engine on the CPU, with its own manager of it."""

from typing import Any

import pytest

from tests.differential.stepped_engine_process import answers_to

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

FROM_REQUESTS = 3


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return answers_to(["load aware"], tmp_path_factory.mktemp("load"))["load aware"]


def by_load(seen: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """What the manager was asked, for each load in turn."""
    found: list[list[tuple[str, int]]] = []
    for what, requests in seen:
        if what == "load":
            found.append([])
        else:
            found[-1].append((what, requests))
    return found


@pytest.mark.parametrize("worth_verifying", ["all", "none"])
def test_what_is_said_is_what_a_fixed_k_says(result: Any, worth_verifying: str) -> None:
    """One, four and one requests at temperature 0; verifying no drafts says the same, a token at a time."""
    assert result[worth_verifying]["same"]


@pytest.mark.parametrize("worth_verifying", ["all", "none"])
def test_below_the_knee_the_manager_is_asked_nothing_and_a_load_that_falls_returns_there(
    result: Any, worth_verifying: str
) -> None:
    few, many, few_again = by_load(result[worth_verifying]["seen"])

    assert (few, few_again) == ([], [])
    assert {requests for _, requests in many} == {4}
    assert many[0] == ("records", 4)  # the prompts, whose drafts the next step chooses among
    assert [what for what, _ in many[1:]].count("chooses") == len(many) // 2
    assert all(requests >= FROM_REQUESTS for _, requests in many)


def test_every_scheduled_step_was_of_one_kind(result: Any) -> None:
    adaptive = sum(len(by_load(result[one]["seen"])[1]) // 2 + 1 for one in ("all", "none"))

    assert result["steps"][1] == adaptive
    assert result["steps"][0] > 0


def test_costs_are_of_the_graphs_that_an_adaptive_step_can_take(result: Any) -> None:
    """Sizes of 3 and 12 tokens and those beyond graphs, five times each; then 3 with a long context, as four requests
    can be that many tokens.  The engine timed every one, with the requests that the prices count on."""
    priced = result["priced"]
    sizes = [3, 12, 18, 24, 32]

    assert priced["asked"] == [[size, 1] for size in sizes for _ in range(5)] + [[3, 8192]] * 5
    assert priced["timed"] == len(priced["asked"])
    assert priced["requests"] == [min(size, 4) for size, _ in priced["asked"]]
    assert priced["costs"] == [4 + 1, 32 + 1]
    assert priced["ms_per_cached_token"] == 0.0, "every step took as long"

"""Timed steps in a whole engine of the version that they are made for: on the CPU, with stand-ins for its graphs.

What is found here is which steps run in which mode and on what; how long they take says nothing of graphs.
"""

from itertools import chain
from typing import Any

import jsonschema
import pytest

from servespec.compiler.curves.profile import Profile, profile_of
from servespec.runtime.step_times_document import STEP_TIMES_SCHEMA, sizes_of
from tests.differential.stepped_engine_process import answers_to

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Json = dict[str, Any]
TARGET_QUERY_LEN, REPEATS = 3, 3


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Json:
    return answers_to(["timed", "timed fault", "profiled"], tmp_path_factory.mktemp("steps"))


def batches_of(result: Json) -> dict[tuple[int, bool], Json]:
    """By tokens, and whether there are prompts."""
    return {(batch["tokens"], bool(batch["prompts"])): batch for batch in result["batches"]}


def padded(batch: Json) -> dict[str, int]:
    return {mode["mode"]: mode["padded_tokens"] for mode in batch["modes"]}


def drafter_modes(batch: Json, mode: str) -> list[tuple[int, str]]:
    """Query length of each manager of the drafter, and the mode that it chose."""
    (chosen,) = (one for one in batch["modes"] if one["mode"] == mode)
    return [(query_len, ran) for _, query_len, ran, *_ in chosen["drafter"]]


def test_each_size_runs_as_the_engine_dispatches_it_with_what_is_left(results: Json) -> None:
    """Without graphs nothing is padded; two requests have no FULL graph of their own, and are padded to three."""
    batches = batches_of(results["timed"])

    assert (results["timed"]["complete"], results["timed"]["refused"]) == (True, None)
    assert [batch["error"] or batch["because"] for batch in batches.values()] == [None] * 5 + ["no graph takes it"]
    assert {size: padded(batch) for size, batch in batches.items()} == {
        (3, False): {"FULL": 3, "PIECEWISE": 12, "NONE": 3},
        (6, False): {"FULL": 9, "PIECEWISE": 12, "NONE": 6},
        (9, False): {"FULL": 9, "PIECEWISE": 12, "NONE": 9},
        (2, True): {"PIECEWISE": 2, "NONE": 2},
        (12, True): {"PIECEWISE": 12, "NONE": 12},
        (20, True): {},
    }


def test_the_drafter_has_the_same_modes_left_as_the_target(results: Json) -> None:
    batches = batches_of(results["timed"])
    decode, mixed = batches[9, False], batches[12, True]

    assert drafter_modes(decode, "FULL") == [(3, "FULL"), (1, "FULL")]
    assert drafter_modes(decode, "PIECEWISE") == [(3, "PIECEWISE"), (1, "NONE")]
    assert drafter_modes(decode, "NONE") == [(3, "NONE"), (1, "NONE")]
    assert drafter_modes(mixed, "PIECEWISE") == [(3, "PIECEWISE"), (1, "FULL")]


def test_each_mode_is_repeated_with_consecutive_steps_of_all_parts(results: Json) -> None:
    timed = [batch for batch in results["timed"]["batches"] if batch["modes"]]
    assert len(timed) == 5
    for batch in timed:
        steps = 1 if batch["prompts"] else 2
        runs = [run for mode in batch["modes"] for run in mode["repeats"]]
        assert len(runs) == REPEATS * len(batch["modes"])
        assert {len(run) for run in runs} == {steps}
        assert min(chain.from_iterable(chain.from_iterable(runs))) > 0
        # On a CPU nothing runs ahead.
        assert {mode["lead_seconds"] for mode in batch["modes"]} == {0.0}


def test_a_size_that_cannot_run_is_given_up_and_the_rest_goes_on(results: Json) -> None:
    result = results["timed fault"]
    failed = {batch["requests"]: batch["error"] for batch in result["batches"] if batch["error"]}

    assert failed == dict.fromkeys((2, 3), "RuntimeError: a graph is broken")
    assert result["complete"]
    assert sum(bool(batch["modes"]) for batch in result["batches"]) == 3


def test_they_make_a_document(results: Json) -> None:
    sizes = list(sizes_of([results["timed"]]))

    jsonschema.validate(sizes, STEP_TIMES_SCHEMA["properties"]["sizes"])
    assert [size["query_len"] for size in sizes] == [TARGET_QUERY_LEN] * 3 + [None] * 3
    assert all(mode["verdict"] is not None for size in sizes for mode in size["modes"][:-1])


def test_a_profile_times_each_k_as_the_engine_serves_it(results: Json) -> None:
    """Graphs are of K = 2 alone here: other query lengths run on PIECEWISE graphs, and what no graph takes, eagerly."""
    result = results["profiled"]
    served = {
        (batch["requests"], batch["decodes"][0][0], batch["next_drafts"]): [mode["mode"] for mode in batch["modes"]]
        for batch in result["batches"]
        if not batch["prompts"]
    }

    assert (result["complete"], [batch["error"] for batch in result["batches"]]) == (True, [None] * 11)
    assert served == {
        **{(n, 1, 0): ["PIECEWISE"] for n in (1, 2, 3)},
        **{(n, 2, 1): ["PIECEWISE"] for n in (1, 2, 3)},
        **{(n, 3, 2): ["FULL"] for n in (1, 2, 3)},
    }
    assert {batch["tokens"]: batch["modes"][0]["mode"] for batch in result["batches"] if batch["prompts"]} == {
        12: "PIECEWISE",
        20: "NONE",
    }


def test_drafting_less_takes_fewer_steps_of_the_drafter(results: Json) -> None:
    """Two drafts take a later step, of one token a request; with none the drafter only keeps up with the target."""
    decodes = [batch for batch in results["profiled"]["batches"] if not batch["prompts"]]
    steps = {
        (batch["requests"], batch["next_drafts"]): [query_len for _, query_len, *_ in batch["modes"][0]["drafter"]]
        for batch in decodes
    }

    assert steps == {(n, drafts): later for n in (1, 2, 3) for drafts, later in [(0, [3]), (1, [3]), (2, [3, 1])]}
    assert all(size["modes"][0]["parts"]["drafter"] > 0 for size in sizes_of([results["profiled"]]))


def test_a_profile_makes_a_curve(results: Json) -> None:
    sizes = list(sizes_of([results["profiled"]]))
    jsonschema.validate(sizes, STEP_TIMES_SCHEMA["properties"]["sizes"])

    found = profile_of({"curve.json": {"identity": {}, "sizes": sizes}})

    assert isinstance(found, Profile)
    assert {k: curve.sizes for k, curve in found.by_drafts.items()} == dict.fromkeys((0, 1, 2), (1, 2, 3))
    assert found.without is not None
    assert found.without.seconds_at(3) < found.by_drafts[0].seconds_at(3)
    assert found.mixed is not None
    assert found.mixed.sizes == (12, 20)

"""What remedies save: differences of the ledger's own graph lines, and what is said of each."""

from typing import Any

import pytest

from servespec.compiler.memory.line import Part
from servespec.compiler.plan import Plan
from servespec.compiler.remedy_savings import RemedyState
from servespec.render.remedy_text import savings_text
from tests.plans import compiled, preset_model

MODELS = {
    "minimax": ("nvidia/MiniMax-M3-NVFP4", {"method": "eagle3", "model": preset_model("Inferact/M3-EAGLE3-GQA-V2")}, 3),
    "deepseek": ("deepseek-ai/DeepSeek-V4-Flash-DSpark", {"method": "dspark"}, 7),
}


def planned(name: str, **sections: Any) -> Plan:
    model, speculative, drafts = MODELS[name]
    return compiled(
        {
            "servespec": 1,
            "model": {"id": preset_model(model), "load_format": "dummy"},
            "hardware": {"gpu": "gb200", "count": 4},
            "parallel": {"tensor_parallel_size": 4},
            "speculative": {**speculative, "num_speculative_tokens": drafts},
            "engine": {"version": "0.33.0"},
            **sections,
        }
    )


def graph_bytes(plan: Plan) -> int:
    assert plan.ledger is not None
    return plan.ledger.of(Part.GRAPHS).size


def states(plan: Plan) -> dict[str, RemedyState]:
    return {str(saving.remedy): saving.state for saving in plan.savings}


@pytest.mark.parametrize("remedy", ["weak_aux_outputs", "one_capture_stream"])
@pytest.mark.parametrize("name", MODELS)
def test_a_saving_is_what_the_graphs_take_less_once_it_is_in_force(name: str, remedy: str) -> None:
    off, on = planned(name), planned(name, remedies={remedy: True})
    (before,) = (saving for saving in off.savings if saving.remedy == remedy)
    (after,) = (saving for saving in on.savings if saving.remedy == remedy)

    assert before.size == after.size == graph_bytes(off) - graph_bytes(on)
    assert (before.state, after.state) == (RemedyState.OFF, RemedyState.IN_FORCE)
    assert before.low <= before.size <= before.high


def test_remedies_that_cannot_be_switched_on_yet_are_named_as_such() -> None:
    found = states(planned("deepseek"))

    assert found["stepwise_draft_logits"] is found["indexer_row_chunks"] is RemedyState.NOT_THERE
    assert states(planned("minimax")).keys() == {"weak_aux_outputs", "one_capture_stream"}


def test_where_the_extension_cannot_come_there_is_nothing_to_save() -> None:
    assert planned("minimax", engine={"version": "0.32.0"}).savings == ()
    assert planned("minimax", compilation={"cudagraph_mode": "NONE"}).savings == ()


def test_they_are_told_with_their_state() -> None:
    plan = planned("minimax", remedies={"weak_aux_outputs": True}).to_json()
    lines = savings_text(plan["remedy_savings"]).splitlines()

    assert [line.split()[0] for line in lines[1:]] == ["weak_aux_outputs", "one_capture_stream"]
    assert lines[1].endswith("in force")
    assert lines[2].endswith("  off")

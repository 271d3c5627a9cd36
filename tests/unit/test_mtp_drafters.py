"""An MTP drafter that torch.compile takes no part of: its PIECEWISE graphs hold nothing, and the plan says so."""

from typing import Any

import pytest

from servespec.diagnostics import Diagnostic
from tests.plans import compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

UNCOMPILED = "glm-4.5-air"
ONE_DRAFT = {"method": "mtp", "num_speculative_tokens": 1}


def said(model: str, /, **sections: Any) -> list[Diagnostic]:
    plan = compiled(spec_of(model, "h200", **{"speculative": ONE_DRAFT, **sections}))
    return [one for one in plan.diagnostics if one.code == "P155"]


def test_it_names_the_drafter_and_the_graphs_that_hold_nothing() -> None:
    plan = compiled(spec_of(UNCOMPILED, "h200", speculative=ONE_DRAFT))
    pieces = [one for one in plan.graphs.shapes if one.routine == "step0_piecewise"]
    (warning,) = (one for one in plan.diagnostics if one.code == "P155")

    assert pieces
    assert f"the {len(pieces)} PIECEWISE graphs of draft step 0 capture nothing" in warning.message
    assert "`Glm4MoeMTPModel`" in warning.message


def test_what_it_says_to_write_ends_it() -> None:
    (warning,) = said(UNCOMPILED)

    assert "write `compilation: {breakable_cudagraph: true}`" in warning.help
    assert said(UNCOMPILED, compilation={"breakable_cudagraph": True}) == []


@pytest.mark.parametrize("mode", ["FULL", "FULL_DECODE_ONLY", "NONE"])
def test_no_graph_without_pieces_is_meant(mode: str) -> None:
    assert said(UNCOMPILED, compilation={"cudagraph_mode": mode}) == []


@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-next-80b-a3b"])
def test_a_drafter_that_is_compiled_is_not_told(model: str) -> None:
    assert said(model) == []


def test_a_drafter_of_another_method_is_not_told() -> None:
    drafter = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 1}

    assert said(UNCOMPILED, speculative=drafter) == []


def test_graphs_that_are_breakable_by_default_are_not_told_until_they_are_switched_off() -> None:
    assert said("deepseek-v3.2") == []
    assert len(said("deepseek-v3.2", compilation={"breakable_cudagraph": False})) == 1


def test_a_model_of_transformers_drafts_with_another_class() -> None:
    model = {"id": model_folder(UNCOMPILED), "model_impl": "transformers"}

    assert said(UNCOMPILED, model=model) == []

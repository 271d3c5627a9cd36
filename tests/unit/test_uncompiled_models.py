"""A model that torch.compile takes no part of: the engine takes PIECEWISE out of its mode, and so does the plan."""

from typing import Any

import pytest

from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.forward_passes import target_pass
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic
from tests.plans import compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

UNBROKEN = {"breakable_cudagraph": False}
WITHOUT_PIECES = {
    None: "FULL_DECODE_ONLY",
    "FULL_AND_PIECEWISE": "FULL_DECODE_ONLY",
    "PIECEWISE": "NONE",
    "FULL_DECODE_ONLY": "FULL_DECODE_ONLY",
}


def unbroken(mode: str | None = None, model: str = "deepseek-v3.2", **sections: Any) -> Plan:
    compilation = UNBROKEN if mode is None else {**UNBROKEN, "cudagraph_mode": mode}
    return compiled(spec_of(model, "h200", compilation=compilation, **sections))


def dbrx(**sections: Any) -> Plan:
    """Not breakable by default, and never compiled."""
    model = {"id": model_folder("llama-3.1-8b"), "hf_overrides": {"architectures": ["DbrxForCausalLM"]}}
    return compiled(spec_of("llama-3.1-8b", "h200", model=model, **sections))


def said(plan: Plan) -> list[Diagnostic]:
    return [one for one in plan.diagnostics if one.code == "R104"]


@pytest.mark.parametrize("mode", WITHOUT_PIECES)
def test_its_mode_is_without_pieces(mode: str | None) -> None:
    plan = unbroken(mode)

    assert str(plan.graphs.mode) == WITHOUT_PIECES[mode]
    assert {str(shape.mode) for shape in plan.graphs.shapes} <= {"FULL"}


def test_its_drafter_has_the_same_mode() -> None:
    plan = unbroken(speculative={"method": "mtp", "num_speculative_tokens": 1})

    assert {str(row.routine) for row in plan.graphs.rows} == {"uniform_decode", "step0_uniform"}
    assert [one for one in plan.diagnostics if one.code == "P155"] == []


@pytest.mark.parametrize("breakable", [False, True])
def test_its_activations_are_those_of_an_eager_pass(breakable: bool) -> None:
    forward = target_pass(dbrx(compilation={"breakable_cudagraph": breakable}).resolution, splits=1)

    assert isinstance(forward, ForwardPass)
    assert not forward.is_compiled


def test_a_default_that_is_lost_is_told_with_the_way_back() -> None:
    (lost,) = said(dbrx())

    assert lost.message == "PIECEWISE graphs are lost: torch.compile takes no part of `DbrxForCausalLM`"
    assert "write `compilation: {breakable_cudagraph: true}`" in lost.help
    assert said(dbrx(compilation={"breakable_cudagraph": True})) == []


def test_a_mode_that_was_asked_for_is_told_with_both_ways() -> None:
    (changed,) = said(unbroken("PIECEWISE"))

    assert changed.message.startswith("`cudagraph_mode: PIECEWISE` becomes `NONE`: the model has neither")
    assert changed.help.startswith("write `breakable_cudagraph: true`")
    assert changed.help.endswith("or write `NONE` to say so yourself")


@pytest.mark.parametrize("mode", [None, "FULL_AND_PIECEWISE"])
def test_graphs_that_are_breakable_keep_it(mode: str | None) -> None:
    compilation = {} if mode is None else {"cudagraph_mode": mode}
    plan = compiled(spec_of("deepseek-v3.2", "h200", compilation=compilation))

    assert str(plan.graphs.mode) == "FULL_AND_PIECEWISE"


def test_a_language_part_decides_where_the_config_names_it() -> None:
    parts = {"architectures": ["SomeForConditionalGeneration"], "text_config": {"architectures": ["Step5ForCausalLM"]}}
    model = {"id": model_folder("llama-3.1-8b"), "hf_overrides": parts}

    assert str(compiled(spec_of("llama-3.1-8b", "h200", model=model)).graphs.mode) == "FULL_DECODE_ONLY"


def test_transformers_has_a_class_of_its_own() -> None:
    model = {
        "id": model_folder("llama-3.1-8b"),
        "model_impl": "transformers",
        "hf_overrides": {"architectures": ["DbrxForCausalLM"]},
    }

    assert str(compiled(spec_of("llama-3.1-8b", "h200", model=model)).graphs.mode) == "FULL_AND_PIECEWISE"


@pytest.mark.parametrize("mode", [None, "FULL_AND_PIECEWISE"])
def test_full_graphs_that_the_backend_takes_are_told_apart_from_pieces(mode: str | None) -> None:
    plan = compiled(
        spec_of(
            "kimi-linear-48b-a3b-instruct",
            "b200",
            attention={"backend": "CUTLASS_MLA"},
            speculative={"method": "ngram", "num_speculative_tokens": 3},
            compilation=UNBROKEN if mode is None else {**UNBROKEN, "cudagraph_mode": mode},
        )
    )
    by_backend, by_compiler = "`CUTLASS_MLA` captures decode of one token a request only", "the model has neither"

    assert str(plan.graphs.mode) == "NONE"
    if mode is None:
        pieces, full = said(plan)
        assert pieces.message.startswith("PIECEWISE graphs are lost: torch.compile takes no part of")
        assert full.message == f"FULL decode graphs are lost: {by_backend}"
        return
    (changed,) = said(plan)
    assert changed.message.startswith(f"`cudagraph_mode: {mode}` becomes `NONE`: {by_backend}, and {by_compiler}")

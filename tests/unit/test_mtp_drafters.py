"""An MTP drafter that torch.compile takes no part of: it has no PIECEWISE graphs, and the plan says why."""

from typing import Any

import pytest

from servespec.compiler.graphs.coverage import DecodeRange, Ran
from servespec.compiler.graphs.hand_off import hand_off
from servespec.compiler.graphs.shape import Routine
from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.forward_passes import draft_pass, target_pass
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

UNCOMPILED = "glm-4.5-air"
ONE_DRAFT = {"method": "mtp", "num_speculative_tokens": 1}
BREAKABLE = {"compilation": {"breakable_cudagraph": True}}


def drafted(model: str, /, **sections: Any) -> Plan:
    return compiled(spec_of(model, "h200", **{"speculative": ONE_DRAFT, **sections}))


def said(model: str, /, **sections: Any) -> list[Diagnostic]:
    return [one for one in drafted(model, **sections).diagnostics if one.code == "P155"]


def drafter_rows(plan: Plan) -> set[str]:
    return {str(row.routine) for row in plan.graphs.rows if row.runner == "drafter"}


def first_steps(plan: Plan) -> list[DecodeRange]:
    return [one for one in plan.graphs.coverage.decode if one.routine is Routine.STEP0_UNIFORM]


def memory_owners(plan: Plan) -> set[str]:
    assert plan.ledger is not None
    return {line.owner for line in plan.ledger.lines}


def handed(plan: Plan) -> list[Json]:
    entries: list[Json] = hand_off(plan.resolution.frame, plan.graphs.shapes, "0.33.0")["managers"]
    return entries


def test_it_has_no_piecewise_graphs_and_no_memory_for_them() -> None:
    plan, cut = drafted(UNCOMPILED), drafted(UNCOMPILED, **BREAKABLE)
    objects = "step 0: objects of PIECEWISE graphs"

    assert drafter_rows(plan) == {"step0_uniform"}
    assert drafter_rows(cut) == {"step0_uniform", "step0_piecewise"}
    assert objects not in memory_owners(plan)
    assert objects in memory_owners(cut)


def test_its_own_activations_are_those_of_an_eager_pass() -> None:
    resolution = drafted(UNCOMPILED).resolution
    target, drafter = target_pass(resolution, splits=1), draft_pass(resolution, splits=1)

    assert isinstance(target, ForwardPass)
    assert isinstance(drafter, ForwardPass)
    assert (target.is_compiled, drafter.is_compiled) == (True, False)


def test_batches_beyond_its_full_graphs_run_eagerly() -> None:
    sections: Any = {"scheduler": {"max_num_seqs": 64}, "compilation": {"max_decode_cudagraph_capture_requests": 32}}
    wider = first_steps(drafted(UNCOMPILED, **sections))

    assert [(one.to_requests, one.ran) for one in wider][-1] == (64, Ran.EAGER)
    assert {one.ran for one in wider} == {Ran.FULL, Ran.EAGER}


def test_its_manager_keeps_the_engines_mode() -> None:
    plan = drafted(UNCOMPILED)
    target, drafter = handed(plan)

    assert (drafter["mode"], drafter["piecewise"]) == (target["mode"], [])
    assert target["piecewise"]
    assert drafter["full"]


def test_it_names_the_drafter() -> None:
    (warning,) = said(UNCOMPILED)

    assert warning.message.startswith("draft step 0 has no PIECEWISE graphs: torch.compile takes no part of")
    assert "`Glm4MoeMTPModel`" in warning.message


def test_what_it_says_to_write_ends_it() -> None:
    (warning,) = said(UNCOMPILED)

    assert "write `compilation: {breakable_cudagraph: true}`" in warning.help
    assert said(UNCOMPILED, **BREAKABLE) == []


@pytest.mark.parametrize("mode", ["FULL", "FULL_DECODE_ONLY", "NONE"])
def test_no_graph_without_pieces_is_meant(mode: str) -> None:
    assert said(UNCOMPILED, compilation={"cudagraph_mode": mode}) == []


@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-next-80b-a3b"])
def test_a_drafter_that_is_compiled_has_them(model: str) -> None:
    plan = drafted(model)

    assert "step0_piecewise" in drafter_rows(plan)
    assert said(model) == []


def test_a_drafter_of_another_method_has_them() -> None:
    drafter = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 1}

    assert "step0_piecewise" in drafter_rows(drafted(UNCOMPILED, speculative=drafter))
    assert said(UNCOMPILED, speculative=drafter) == []


@pytest.mark.parametrize(("implementation", "warnings"), [("vllm", 1), ("transformers", 0)])
def test_a_model_of_transformers_drafts_with_another_class(implementation: str, warnings: int) -> None:
    model = {"id": model_folder(UNCOMPILED), "model_impl": implementation}

    assert len(said(UNCOMPILED, model=model)) == warnings

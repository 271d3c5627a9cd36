"""How many MTP modules a plan drafts with: as many as the engine takes, which may be fewer than a config names."""

from typing import Any

import pytest

from servespec.compiler.facts.mtp_layers import MtpLayers, mtp_layers
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from tests.plans import compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

THREE = {"num_nextn_predict_layers": 3}


def drafted(architecture: str, /, model_type: str = "unnamed", **config: Any) -> Plan:
    overrides = {"architectures": [architecture], "model_type": model_type, **config}
    model = {"id": model_folder("three-mtp-modules"), "hf_overrides": overrides}
    return compiled(spec_of("three-mtp-modules", "h200", model=model, speculative={"method": "mtp"}))


def k_of(plan: Plan) -> int:
    return plan.resolution.frame.num_speculative_tokens


@pytest.mark.parametrize("architecture", ["MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM"])
def test_of_mimo_v2_the_engine_takes_the_first_module(architecture: str) -> None:
    plan = drafted(architecture, **THREE)

    assert k_of(plan) == 1
    assert {str(row.routine) for row in plan.graphs.rows if row.runner == "drafter"} == {"step0_uniform"}


def test_modules_of_others_run_in_turn() -> None:
    plan = drafted("Step3p5ForCausalLM", **THREE)

    assert k_of(plan) == 3
    assert {str(row.routine) for row in plan.graphs.rows if row.runner == "drafter"} == {"block"}


def test_layers_that_the_language_part_names_predict_and_do_not_run_in_turn() -> None:
    """Of Kimi K3 the drafter's config stays the outer one, which names no modules."""
    plan = drafted("KimiK3ForConditionalGeneration", "kimi_k3", num_nextn_predict_layers=None, text_config=THREE)

    assert k_of(plan) == 3
    assert {str(row.routine) for row in plan.graphs.rows if row.runner == "drafter"} >= {"step0_uniform", "later_steps"}


@pytest.mark.parametrize(("count", "predicted"), [({}, 1), ({"num_mtp_modules": 2}, 2)])
def test_a_model_counts_its_modules_by_a_name_of_its_own(count: dict[str, int], predicted: int) -> None:
    assert k_of(drafted("MiniMaxM3SparseForConditionalGeneration", num_nextn_predict_layers=None, **count)) == predicted


def test_k_is_a_multiple_of_what_the_engine_takes() -> None:
    model = {"id": model_folder("three-mtp-modules"), "hf_overrides": {"architectures": ["MiMoV2FlashForCausalLM"]}}
    given = spec_of(
        "three-mtp-modules", "h200", model=model, speculative={"method": "mtp", "num_speculative_tokens": 5}
    )

    assert k_of(compiled(given)) == 5

    with pytest.raises(SpecError, match="not a multiple of the 3 MTP modules"):
        compiled(spec_of("three-mtp-modules", "h200", speculative={"method": "mtp", "num_speculative_tokens": 5}))


@pytest.mark.parametrize("count", [10**9, -1, True, "3", [3]])
@pytest.mark.parametrize("model_type", ["deepseek_v3", "unnamed"])
def test_a_count_that_no_model_has_is_none(model_type: str, count: object) -> None:
    """Layers are planned one by one, so that a mistyped count would have no end."""
    config = {"model_type": model_type, "architectures": ["Unnamed"], "num_nextn_predict_layers": count}

    assert mtp_layers(config) == MtpLayers(predicted_tokens=None, modules=1)

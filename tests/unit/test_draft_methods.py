"""The method that the engine takes a draft model for, where the spec names none."""

from typing import Any

import pytest

from servespec.compiler.facts.draft_methods import METHOD_ARCHITECTURES
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.model import model_of
from servespec.compiler.resolve.drafting import Drafting, resolve_drafting
from servespec.schema.spec import SpeculativeSection
from tests.plans import source_of


def drafted(architecture: str, model_type: str, /, **config: Any) -> Drafting:
    """With a draft model whose name tells nothing."""
    section = SpeculativeSection(model="org/draft", num_speculative_tokens=3)
    draft = model_of({"architectures": [architecture], "model_type": model_type, **config}, "0.33.0")
    return resolve_drafting(section, draft, source_of({}))


@pytest.mark.parametrize(
    ("method", "architecture"), [(m, name) for m, names in METHOD_ARCHITECTURES.items() for name in sorted(names.value)]
)
def test_an_architecture_tells_it(method: str, architecture: str) -> None:
    found = drafted(architecture, "unnamed")

    assert (found.method.value, found.kind) == (method, DrafterKind.BLOCK)


@pytest.mark.parametrize("model_type", ["gemma4_assistant", "gemma4_unified_assistant", "gemma4_mtp"])
def test_an_assistant_of_gemma_4_drafts_by_mtp(model_type: str) -> None:
    found = drafted("Gemma4ForCausalLM", model_type, num_nextn_predict_layers=2)

    assert (found.method.value, found.kind) == ("mtp", DrafterKind.AUTOREGRESSIVE)


@pytest.mark.parametrize(
    ("architecture", "model_type"), [("DeepseekV3ForCausalLM", "deepseek_v3"), ("Glm4MoeForCausalLM", "glm4_moe")]
)
def test_a_target_with_mtp_layers_drafts_with_them(architecture: str, model_type: str) -> None:
    assert drafted(architecture, model_type, num_nextn_predict_layers=1).method.value == "mtp"


@pytest.mark.parametrize(("config", "method"), [({}, "draft_model"), ({"num_nextn_predict_layers": 1}, "mtp")])
def test_a_model_that_needs_a_count_is_else_a_draft_model(config: dict[str, int], method: str) -> None:
    assert drafted("NemotronHForCausalLM", "nemotron_h", **config).method.value == method


def test_any_other_is_a_draft_model() -> None:
    assert drafted("LlamaForCausalLM", "llama").method.value == "draft_model"

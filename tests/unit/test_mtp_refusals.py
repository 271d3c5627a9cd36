"""Models that the engine refuses to draft for by MTP."""

from typing import Any

import pytest

from servespec.diagnostics import SpecError
from tests.plans import Json, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")


def spec(model: str, k: int, /, **overrides: Any) -> Json:
    section = {"id": model_folder(model), "hf_overrides": overrides}
    return spec_of(model, "h200", model=section, speculative={"method": "mtp", "num_speculative_tokens": k})


def refusal(model: str, k: int, /, **overrides: Any) -> tuple[str, str]:
    with pytest.raises(SpecError) as refused:
        compiled(spec(model, k, **overrides))
    (one,) = (finding for finding in refused.value.diagnostics if finding.code == "R101")
    return one.message, one.help


def test_deepseek_v41_has_stages_of_dspark_instead() -> None:
    message, help_text = refusal("deepseek-v3", 1, model_type="deepseek_v41")

    assert message == "`speculative.method`: the checkpoints of `deepseek_v41` have DSpark stages and no MTP layers"
    assert help_text.startswith("write `method: dspark`")


def test_a_model_of_one_trained_step_takes_one_draft() -> None:
    architecture = {"architectures": ["RadioMBartPrefixForCausalLM"]}
    message, help_text = refusal("llama-3.1-8b", 2, **architecture)

    assert "has one trained MTP step, and K is `2`" in message
    assert help_text.startswith("write `num_speculative_tokens: 1`")
    assert compiled(spec("llama-3.1-8b", 1, **architecture)).ok

"""Which of the engine's drafters say how likely a draft is, read off their sources."""

import pytest

from servespec.diagnostics import SpecError
from tests.differential import engine_oracle as oracle
from tests.plans import Json, compiled, model_folder, spec_of

ROOT = oracle.engine_root("0.33.0")
DRAFTERS = "vllm/v1/worker/gpu/spec_decode"
FILES = {
    "eagle3": "target_dependent_ar/speculator.py",
    "mtp": "multi_module_mtp/speculator.py",
    "dflash": "dflash/speculator.py",
    "dspark": "dspark/speculator.py",
    "draft_model": "standalone_ar/speculator.py",
    "ngram": "ngram/speculator.py",
    "ngram_gpu": "ngram/speculator.py",
    "extract_hidden_states": "extract_hidden_states.py",
}
SAY_SO = ("self.sample_draft(", "self._maybe_predict_acceptance(")
"""Calls that leave a likelihood of each draft. Source: DraftModelSpeculator.sample_draft."""


@pytest.mark.usefixtures("quiet_shell")
@pytest.mark.skipif(ROOT is None, reason="needs the engine's source (tools/fetch_engines.py)")
@pytest.mark.parametrize("method", FILES)
def test_adaptive_verification_is_refused_where_the_drafter_does_not(method: str) -> None:
    assert ROOT is not None
    text = (ROOT / DRAFTERS / FILES[method]).read_text(encoding="utf-8")
    speculative = {"method": method, "num_speculative_tokens": 1, "model": model_folder("eagle3-draft")}
    spec = spec_of("qwen3-8b", "h200", speculative={**speculative, "enable_adaptive_verification": True})

    assert ("S232" in refused_with(spec)) is not any(call in text for call in SAY_SO)


def refused_with(spec: Json) -> set[str]:
    try:
        compiled(spec)
    except SpecError as error:
        return {finding.code for finding in error.diagnostics}
    return set()

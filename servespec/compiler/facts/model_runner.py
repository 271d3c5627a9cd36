"""What each of the engine's two model runners cannot do, per version.

Source: vllm/config/vllm.py, VllmConfig._get_v1_model_runner_unsupported_features and
VllmConfig._get_v2_model_runner_unsupported_features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from servespec.provenance import Sourced

_VLLM_CONFIG = "vllm/config/vllm.py"
_SPECULATIVE = "vllm/config/speculative.py"

_NO_ARCHITECTURES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerFacts:
    """Names that one version's runners refuse; empty where a version does not know of them.

    ``knows_draft_lm_head_quantization``: the engine has the option, and Model Runner V1 refuses it.
    """

    v2_unsupported_methods: Sourced[tuple[str, ...]]
    v1_candidate_drafts: Sourced[frozenset[str]]
    v1_xpress_drafts: Sourced[frozenset[str]] | None
    v1_attention_free_drafts: Sourced[frozenset[str]] | None
    v1_unsupported_architectures: Sourced[frozenset[str]] | None
    knows_draft_lm_head_quantization: bool


def _candidates(version: str, names: frozenset[str], quote: str) -> Sourced[frozenset[str]]:
    return Sourced(names, "draft architectures", "vllm", version, _VLLM_CONFIG, quote)


_CANDIDATES_0_32 = frozenset({"DFlash2DraftModel", "LiLiCorrDraftModel"})

RUNNER_FACTS: Mapping[str, RunnerFacts] = MappingProxyType(
    {
        "0.33.0": RunnerFacts(
            v2_unsupported_methods=Sourced(
                ("suffix", "custom_class"),
                "methods",
                "vllm",
                "0.33.0",
                _VLLM_CONFIG,
                'if speculative_config.method in ("suffix", "custom_class"):',
            ),
            v1_candidate_drafts=_candidates(
                "0.33.0",
                _CANDIDATES_0_32 | {"DFlash2BeamDraftModel"},
                '"DFlash2DraftModel", "DFlash2BeamDraftModel", "LiLiCorrDraftModel",',
            ),
            v1_xpress_drafts=Sourced(
                frozenset({"Qwen3XPressModel", "DFlashQwen3XPressModel"}),
                "draft architectures",
                "vllm",
                "0.33.0",
                _SPECULATIVE,
                'XPRESS_ARCHITECTURES = frozenset({"Qwen3XPressModel", "DFlashQwen3XPressModel"})',
            ),
            v1_attention_free_drafts=Sourced(
                frozenset({"ParseAuxMTPModel"}),
                "draft architectures",
                "vllm",
                "0.33.0",
                _VLLM_CONFIG,
                'draft_config is not None and "ParseAuxMTPModel" in',
            ),
            v1_unsupported_architectures=Sourced(
                frozenset({"Step5ForCausalLM", "Step5ForConditionalGeneration"}),
                "architectures",
                "vllm",
                "0.33.0",
                _VLLM_CONFIG,
                'self.model_config.architecture in ( "Step5ForCausalLM", "Step5ForConditionalGeneration", )',
            ),
            knows_draft_lm_head_quantization=True,
        ),
        "0.32.0": RunnerFacts(
            v2_unsupported_methods=Sourced(
                ("suffix", "medusa", "mlp_speculator", "custom_class"),
                "methods",
                "vllm",
                "0.32.0",
                _VLLM_CONFIG,
                'if speculative_config.method in ( "suffix", "medusa", "mlp_speculator", "custom_class", ):',
            ),
            v1_candidate_drafts=_candidates(
                "0.32.0", _CANDIDATES_0_32, '{"DFlash2DraftModel", "LiLiCorrDraftModel"}.intersection('
            ),
            v1_xpress_drafts=None,
            v1_attention_free_drafts=None,
            v1_unsupported_architectures=None,
            knows_draft_lm_head_quantization=False,
        ),
    }
)


def names_of(fact: Sourced[frozenset[str]] | None) -> frozenset[str]:
    return _NO_ARCHITECTURES if fact is None else fact.value

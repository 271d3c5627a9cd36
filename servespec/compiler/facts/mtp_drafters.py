"""The engine's own MTP drafters that no torch.compile cuts, each with the targets that it drafts for.

No class that such a drafter builds on an NVIDIA GPU has `support_torch_compile`, and so it has PIECEWISE graphs only
where graphs are breakable.  A test reads both from the engine: the drafters from its model files, the targets by
running `SpeculativeConfig.hf_config_override`.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from servespec.compiler.facts.engine_file import in_engine
from servespec.provenance import Sourced


def _drafts_for(targets: str, quote: str, note: str = "") -> Sourced[frozenset[str]]:
    names = frozenset(targets.split())
    return in_engine(names, "architectures and model types", "vllm/config/speculative.py", quote, note)


UNCOMPILED_MTP_DRAFTERS: Mapping[str, Sourced[frozenset[str]]] = MappingProxyType(
    {
        "DeepSeekV4MTPModel": _drafts_for("deepseek_v4", 'overrides["architectures"] = ["DeepSeekV4MTPModel"]'),
        "DeepseekV32MTPModel": _drafts_for(
            "deepseek_v32 glm_moe_dsa",
            'use_v32_mtp = hf_config.model_type in ("deepseek_v32", "glm_moe_dsa")',
        ),
        "Dots3NoteMTPModel": _drafts_for("dots3_note", 'if hf_config.model_type == "dots3_note":'),
        "ErnieMTPModel": _drafts_for("ernie4_5_moe ernie_mtp", 'if hf_config.model_type == "ernie4_5_moe":'),
        "Glm4MoeLiteMTPModel": _drafts_for(
            "Glm4MoeLiteForCausalLM", 'if hf_config.architectures[0] == "Glm4MoeLiteForCausalLM":'
        ),
        "Glm4MoeMTPModel": _drafts_for("Glm4MoeForCausalLM", 'if hf_config.architectures[0] == "Glm4MoeForCausalLM":'),
        "Glm5NextMTPModel": _drafts_for("glm5_next", 'if hf_config.model_type == "glm5_next":'),
        "GlmOcrMTPModel": _drafts_for(
            "GlmOcrForConditionalGeneration", 'if hf_config.architectures[0] == "GlmOcrForConditionalGeneration":'
        ),
        "HYV3MTPModel": _drafts_for("hy_v3", 'if hf_config.model_type == "hy_v3":'),
        "HYV4MTPModel": _drafts_for("hy_v4", 'if hf_config.model_type == "hy_v4":'),
        "InklingMTPModel": _drafts_for(
            "inkling_mm_model inkling_model", 'if hf_config.model_type in ("inkling_mm_model", "inkling_model"):'
        ),
        "KimiK3MTPModel": _drafts_for("kimi_k3", 'if hf_config.model_type == "kimi_k3":'),
        "LongCatFlashMTPModel": _drafts_for("longcat_flash", 'if hf_config.model_type == "longcat_flash":'),
        "MiMoMTPModel": _drafts_for("MiMoForCausalLM", 'if hf_config.architectures[0] == "MiMoForCausalLM":'),
        "MiMoV2MTPModel": _drafts_for(
            "MiMoV2FlashForCausalLM MiMoV2ForCausalLM",
            '"MiMoV2ForCausalLM": "MiMoV2MTPModel",',
            "the branch of `MiMoV2FlashForCausalLM` follows",
        ),
        "MiMoV2OmniMTPModel": _drafts_for("MiMoV2OmniForCausalLM", '"MiMoV2OmniForCausalLM": "MiMoV2OmniMTPModel",'),
        "MiniMaxM3MTP": _drafts_for(
            "MiniMaxM3SparseForConditionalGeneration minimax_m3_mtp minimax_m3_vl",
            'or initial_architecture == "MiniMaxM3SparseForConditionalGeneration"',
        ),
        "ParseAuxMTPModel": _drafts_for(
            "RadioMBartPrefixForCausalLM",
            'if initial_architecture == "RadioMBartPrefixForCausalLM" and getattr(',
            "where its decoder has `causal_vision_prefix`",
        ),
        "Qwen4ExpMTP": _drafts_for(
            "qwen4_exp qwen4_exp_mtp qwen4_exp_text", 'if hf_config.model_type in {"qwen4_exp", "qwen4_exp_text"}:'
        ),
        "Step3p5MTP": _drafts_for(
            "Step3p5ForCausalLM Step3p7ForConditionalGeneration step3p5 step3p7",
            'in ("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"):',
        ),
        "Step5MTP": _drafts_for(
            "Step5ForCausalLM Step5ForConditionalGeneration step5 step5_vl",
            'if hf_config.model_type in ("step5", "step5_vl") or {',
        ),
    }
)
"""By the drafter's name in the engine's registry. vLLM 0.32.0 lacks the last models and differs in nothing else."""


def uncompiled_mtp_drafter(names: Iterable[str]) -> str | None:
    """Of a config with these architectures and this model type: its drafter, if nothing compiles it."""
    own = frozenset(names)
    drafters = UNCOMPILED_MTP_DRAFTERS.items()
    return next((drafter for drafter, targets in drafters if own & {drafter, *targets.value}), None)

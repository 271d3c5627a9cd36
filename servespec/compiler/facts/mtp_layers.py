"""How many tokens a model's own MTP layers predict and how many of them run in turn, as the engine reads a config.

The engine rewrites the target's config into the drafter's, of a multimodal model sometimes from its language part, and
counts the layers of each model where its authors put them.  A test runs `SpeculativeConfig.hf_config_override`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from servespec.compiler.facts.engine_file import in_engine
from servespec.compiler.facts.model_traits import MOST_LAYERS, text_config
from servespec.provenance import Sourced

_SPECULATIVE: Final = "vllm/config/speculative.py"
_MODULES: Final = "num_nextn_predict_layers"


class Part(StrEnum):
    """Of a config; the language part of one that has no parts is all of it."""

    WHOLE = "whole"
    LANGUAGE = "language"
    MTP = "mtp_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLayers:
    """``predicted_tokens`` is the engine's `n_predict`, None where it has none; ``modules`` are those that run in turn.

    Source: vllm/config/speculative.py: SpeculativeConfig.use_multi_module_mtp.
    """

    predicted_tokens: int | None
    modules: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The first of ``names`` that one of ``parts`` has is how many tokens are predicted, ``otherwise`` where none has.

    ``drafter`` is the part that becomes the drafter's config, whose modules run in turn.  ``only`` is the one count
    that the engine takes whatever the config says.  ``needs_count`` says that a config without a count is no drafter's.
    """

    names: tuple[str, ...] = (_MODULES,)
    parts: tuple[Part, ...] = (Part.WHOLE,)
    otherwise: int | None = None
    drafter: Part = Part.WHOLE
    only: int | None = None
    needs_count: bool = False


def _of(targets: str, quote: str, **reading: Any) -> Mapping[str, Sourced[Reading]]:
    """One reading of every target, by its architecture or model type."""
    read = in_engine(Reading(**reading), "reading of a config", _SPECULATIVE, quote)
    return dict.fromkeys(targets.split(), read)


_GEMMA4_ASSISTANTS: Final = ("gemma4_assistant", "gemma4_unified_assistant")
GEMMA4_DRAFTERS: Final = in_engine(
    frozenset({"gemma4_mtp", *_GEMMA4_ASSISTANTS}),
    "model types",
    _SPECULATIVE,
    'if hf_config.model_type in ("gemma4_assistant", "gemma4_unified_assistant"): hf_config.model_type = "gemma4_mtp"',
)
"""Draft models that read the target's KV cache and have none of their own."""

WITHOUT_MTP_LAYERS: Final = in_engine(
    frozenset({"deepseek_v41"}),
    "model types",
    _SPECULATIVE,
    '"DeepSeek V4.1 has no classic-MTP draft: its " "checkpoints ship DSpark stages under mtp.* "',
)
"""Targets that the engine refuses to draft for by MTP, whatever their config counts."""

_COUNT: Final = 'n_predict = getattr(hf_config, "num_nextn_predict_layers", None)'
_COUNT_OR_ONE: Final = 'n_predict = getattr(hf_config, "num_nextn_predict_layers", 1)'
_HIDDEN: Final = "mtp_num_hidden_layers"

MTP_READINGS: Mapping[str, Sourced[Reading]] = MappingProxyType(
    {
        **_of(
            "deepseek_v3 deepseek_v32 glm_moe_dsa deepseek_mtp deepseek_v41 pangu_ultra_moe "
            "pangu_ultra_moe_mtp MiMoForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM "
            "GlmOcrForConditionalGeneration ernie4_5_moe ernie_mtp qwen3_next qwen3_next_mtp BailingMoeV3ForCausalLM "
            "bailing_hybrid bailing_hybrid_mtp bailing_hybrid_v3_mtp BailingMoeV2_5ForCausalLM exaone_moe "
            "exaone_moe_mtp exaone4_5 exaone4_5_mtp hy_v3 hy_v4",
            _COUNT,
        ),
        # The config's class counts one where config.json has none.
        **_of("deepseek_v4", _COUNT, otherwise=1),
        **_of("dots3_note nemotron_h_mtp longcat_flash", _COUNT_OR_ONE, otherwise=1),
        **_of("nemotron_h nemotron_h_puzzle", "and hf_config.num_nextn_predict_layers > 0", needs_count=True),
        **_of(
            "NemotronH_Super_Omni_Reasoning_V3 NemotronH_Omni_Reasoning_V3",
            "hf_config = hf_config.text_config",
            parts=(Part.LANGUAGE,),
            drafter=Part.LANGUAGE,
            needs_count=True,
        ),
        **_of(
            "step3p5 step3p7 Step3p5ForCausalLM Step3p7ForConditionalGeneration step5 step5_vl Step5ForCausalLM "
            "Step5ForConditionalGeneration",
            _COUNT_OR_ONE,
            parts=(Part.LANGUAGE,),
            otherwise=1,
            drafter=Part.LANGUAGE,
        ),
        **_of(
            "BailingMoeV3VLForConditionalGeneration",
            "hf_config = copy.deepcopy(hf_config.text_config)",
            parts=(Part.LANGUAGE,),
            drafter=Part.LANGUAGE,
        ),
        **_of(
            "minimax_m3_vl MiniMaxM3SparseForConditionalGeneration",
            'n_predict = getattr(hf_config, "num_mtp_modules", 1)',
            names=("num_mtp_modules",),
            parts=(Part.LANGUAGE,),
            otherwise=1,
            drafter=Part.LANGUAGE,
        ),
        **_of(
            "minimax_m3_mtp MiniMaxM3MTP",
            'n_predict = getattr(hf_config, "num_mtp_modules", 1)',
            names=("num_mtp_modules",),
            otherwise=1,
        ),
        **_of("kimi_k3", 'n_predict = getattr(text_config, "num_nextn_predict_layers", None)', parts=(Part.LANGUAGE,)),
        **_of("glm5_next", '"n_predict": text_config.num_nextn_predict_layers,', parts=(Part.LANGUAGE,)),
        **_of(
            "qwen4_exp qwen4_exp_text qwen4_exp_mtp",
            '"mtp_num_hidden_layers", getattr(text_config, "num_nextn_predict_layers", None),',
            names=(_HIDDEN, _MODULES),
            parts=(Part.LANGUAGE,),
        ),
        **_of(
            "qwen3_5 qwen3_5_moe qwen3_5_text qwen3_5_moe_text",
            'n_predict = getattr(hf_config, "mtp_num_hidden_layers", None)',
            names=(_HIDDEN,),
            parts=(Part.WHOLE, Part.LANGUAGE),
        ),
        **_of(
            "intern_s2_preview interns2_mobius",
            'n_predict = getattr(text_config, "mtp_num_hidden_layers", None)',
            names=(_HIDDEN,),
            parts=(Part.LANGUAGE,),
        ),
        **_of(
            "inkling_mm_model inkling_model",
            'checkpoint_depths = mtp_config.get("num_nextn_predict_layers", 0)',
            parts=(Part.MTP,),
            drafter=Part.MTP,
        ),
        **_of(
            "MiMoV2ForCausalLM MiMoV2OmniForCausalLM MiMoV2FlashForCausalLM",
            "# vLLM currently supports only the first MiMo-V2 MTP layer.",
            only=1,
        ),
        **_of("RadioMBartPrefixForCausalLM", '"architectures": ["ParseAuxMTPModel"], "n_predict": 1,', only=1),
        **_of(
            " ".join(_GEMMA4_ASSISTANTS),
            'hf_config.update({"n_predict": 1, "architectures": ["Gemma4MTPModel"]})',
            names=(),
            otherwise=1,
        ),
    }
)


def mtp_layers(config: Mapping[str, Any]) -> MtpLayers:
    """Of a config that the engine does not rewrite, what it says itself."""
    found = _reading(config)
    return _read(config, _AS_WRITTEN if found is None else found)


def is_mtp_drafter(config: Mapping[str, Any]) -> bool:
    """Whether the engine makes an MTP drafter of a draft model's config without being told the method."""
    found = _reading(config)
    if found is None or config.get("model_type") in WITHOUT_MTP_LAYERS.value:
        return False
    return not found.needs_count or bool(_read(config, found).predicted_tokens)


def _reading(config: Mapping[str, Any]) -> Reading | None:
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    names = (name for name in (first, config.get("model_type")) if isinstance(name, str))
    return next((MTP_READINGS[name].value for name in names if name in MTP_READINGS), None)


_AS_WRITTEN: Final = Reading(names=("n_predict", _MODULES, _HIDDEN), parts=(Part.WHOLE, Part.LANGUAGE))


def _read(config: Mapping[str, Any], reading: Reading) -> MtpLayers:
    if reading.only is not None:
        return MtpLayers(predicted_tokens=reading.only, modules=reading.only)
    counts = (_count(_part(config, part), name) for part in reading.parts for name in reading.names)
    predicted = next((count for count in counts if count is not None), reading.otherwise)
    modules = _count(_part(config, reading.drafter), _MODULES)
    return MtpLayers(predicted_tokens=predicted, modules=1 if modules is None else modules)


def _part(config: Mapping[str, Any], part: Part) -> Mapping[str, Any]:
    if part is Part.LANGUAGE:
        return text_config(config)
    found = config.get(part) if part is Part.MTP else config
    return found if isinstance(found, Mapping) else {}


def _count(part: Mapping[str, Any], name: str) -> int | None:
    """None beyond any model, and below none: layers are planned one by one."""
    value = part.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_LAYERS else None

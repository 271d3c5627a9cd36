"""What the engine does for particular model architectures.

Sources: vllm/config/vllm.py (DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES), vllm/model_executor/models/config.py and
the layers under vllm/model_executor/layers/mamba.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from servespec.provenance import Sourced
from servespec.units import Tokens

_VLLM_CONFIG = "vllm/config/vllm.py"
_BREAKABLE_QUOTE = "DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES = frozenset("

_BREAKABLE_0_32 = frozenset(
    {
        "DeepSeekV4MTPModel",
        "DeepseekV32ForCausalLM",
        "DeepseekV32MTPModel",
        "DeepseekV41ForCausalLM",
        "DeepseekV4ForCausalLM",
        "DeepseekV4ForConditionalGeneration",
        "Dots3NoteForCausalLM",
        "Dots3NoteMTPModel",
        "Glm5NextForCausalLM",
        "Glm5NextForConditionalGeneration",
        "Glm5NextMTPModel",
        "GlmMoeDsaForCausalLM",
        "HYV4ForCausalLM",
        "HYV4MTPModel",
        "InklingForCausalLM",
        "InklingForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiK3MTPModel",
        "KimiLinearForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
        "Qwen4ExpForCausalLM",
        "Qwen4ExpForConditionalGeneration",
        "Qwen4ExpMTP",
    }
)
_BREAKABLE_SINCE_0_33 = frozenset(
    {
        "AliceAIForCausalLM",
        "BeamForCausalLM",
        "MuseSpark1xForCausalLM",
        "MuseSparkForConditionalGeneration",
        "Step5ForCausalLM",
        "Step5ForConditionalGeneration",
    }
)

BREAKABLE_ARCHITECTURES: Mapping[str, Sourced[frozenset[str]]] = MappingProxyType(
    {
        "0.33.0": Sourced(
            _BREAKABLE_0_32 | _BREAKABLE_SINCE_0_33,
            "architectures",
            "vllm",
            "0.33.0",
            _VLLM_CONFIG,
            _BREAKABLE_QUOTE,
        ),
        "0.32.0": Sourced(_BREAKABLE_0_32, "architectures", "vllm", "0.32.0", _VLLM_CONFIG, _BREAKABLE_QUOTE),
    }
)
"""Architectures whose graphs the engine cuts at run time unless told otherwise (on NVIDIA GPUs)."""


def uses_breakable_by_default(architectures: Iterable[str], version: str) -> bool:
    """Source: vllm/config/vllm.py, VllmConfig._uses_breakable_cudagraph_by_default."""
    return not BREAKABLE_ARCHITECTURES[version].value.isdisjoint(architectures)


LIST_READING_ARCHITECTURES: Sourced[frozenset[str]] = Sourced(
    frozenset({"DeepseekV41ForCausalLM"}),
    "architectures",
    "vllm",
    "0.33.0",
    "vllm/models/deepseek_v41/nvidia/specialized_decode/runtime/metadata_graphs.py",
    "round_up(size, query_len) // query_len for size in config.cudagraph_capture_sizes or ()",
)
"""Architectures that capture graphs of their own for each size of the engine's one list, beside the managers'."""

_MODEL_HOOKS = "vllm/model_executor/models/config.py"


def _largest_graph(version: str) -> Sourced[Tokens]:
    quote = "compilation_config.max_cudagraph_capture_size = 1024"
    return Sourced(Tokens(1024), "tokens", "vllm", version, _MODEL_HOOKS, quote)


LARGEST_GRAPH_HOOKS: Mapping[str, Mapping[str, Sourced[Tokens]]] = MappingProxyType(
    {
        "0.33.0": MappingProxyType({"GptOssForCausalLM": _largest_graph("0.33.0")}),
        "0.32.0": MappingProxyType({"GptOssForCausalLM": _largest_graph("0.32.0")}),
    }
)
"""Architectures for which the engine fills in ``max_cudagraph_capture_size`` where nothing is set."""


def largest_graph_hook(architectures: Iterable[str], version: str) -> Sourced[Tokens] | None:
    """Source: vllm/model_executor/models/config.py, GptOssForCausalLMConfig.verify_and_update_config."""
    hooks = LARGEST_GRAPH_HOOKS[version]
    return next((hooks[name] for name in architectures if name in hooks), None)


_MAMBA2 = ("MAMBA2_ATTN",)
_MAMBA1 = ("MAMBA1_ATTN",)
_SHORT_CONV = ("SHORT_CONV_ATTN",)
_GATED_DELTA = ("GDN_ATTN",)
_KIMI_DELTA = ("KIMI_K3_KDA",)

STATE_BACKENDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "AliceAIForCausalLM": _GATED_DELTA,
        "BailingMoeV2_5ForCausalLM": ("BAILING_LINEAR_ATTN",),
        "BailingMoeV3ForCausalLM": _GATED_DELTA,
        "BailingMoeV3VLForConditionalGeneration": _GATED_DELTA,
        "ColBERTLfm2Model": _SHORT_CONV,
        "ColQwen3_5": _GATED_DELTA,
        "FalconH1ForCausalLM": _MAMBA2,
        "FalconMambaForCausalLM": _MAMBA1,
        "Glm5NextForCausalLM": _GATED_DELTA,
        "Glm5NextForConditionalGeneration": _GATED_DELTA,
        "GraniteMoeHybridForCausalLM": _MAMBA2,
        "JambaForCausalLM": _MAMBA1,
        "JambaForSequenceClassification": _MAMBA1,
        "KimiK3ForConditionalGeneration": _KIMI_DELTA,
        "KimiLinearForCausalLM": _KIMI_DELTA,
        "Lfm2ForCausalLM": _SHORT_CONV,
        "Lfm2MoeForCausalLM": _SHORT_CONV,
        "Lfm2VlForConditionalGeneration": _SHORT_CONV,
        "Mamba2ForCausalLM": _MAMBA2,
        "MambaForCausalLM": _MAMBA1,
        "MiniCPMV4_6ForConditionalGeneration": _GATED_DELTA,
        "NemotronHForCausalLM": _MAMBA2,
        "NemotronHPuzzleForCausalLM": _MAMBA2,
        "NemotronH_Nano_Omni_Reasoning_V3": _MAMBA2,
        "NemotronH_Nano_VL_V2": _MAMBA2,
        "NemotronH_Omni_Reasoning_V3": _MAMBA2,
        "NemotronH_Super_Omni_Reasoning_V3": _MAMBA2,
        "OlmoHybridForCausalLM": _GATED_DELTA,
        "Qwen3NextForCausalLM": _GATED_DELTA,
        "Qwen3_5ForCausalLM": _GATED_DELTA,
        "Qwen3_5ForConditionalGeneration": _GATED_DELTA,
        "Qwen3_5MoeForCausalLM": _GATED_DELTA,
        "Qwen3_5MoeForConditionalGeneration": _GATED_DELTA,
        "Qwen4ExpForCausalLM": _SHORT_CONV,
        "Qwen4ExpForConditionalGeneration": _SHORT_CONV,
        "Zamba2ForCausalLM": _MAMBA2,
    }
)
"""The recurrent layers' attention backends of each architecture, from the layers its model file builds.

Source: mamba_type and get_attn_backend of the layers under vllm/model_executor/layers/mamba and
vllm/models/kimi_k3/nvidia/kda.py.  A recurrent architecture that is missing here is unknown.
"""


def _blackwell_kv(version: str, dtype: str = "fp8_e4m3") -> Sourced[str]:
    return Sourced(dtype, "KV cache dtype", "vllm", version, _MODEL_HOOKS, f'cache_config.cache_dtype = "{dtype}"')


BFLOAT16_CACHE_IS_AUTO: Final = Sourced(
    ("DeepseekV32ForCausalLM",),
    "architectures",
    "vllm",
    "0.33.0",
    "vllm/model_executor/models/config.py",
    'if cache_config.cache_dtype == "bfloat16": cache_config.cache_dtype = "auto"',
)
"""Models that read a cache type of `bfloat16` as `auto`, which a backend may still pack."""

BLACKWELL_KV_CACHE_HOOKS: Mapping[str, Mapping[str, Sourced[str]]] = MappingProxyType(
    {
        "0.33.0": MappingProxyType(
            {
                "GlmMoeDsaForCausalLM": _blackwell_kv("0.33.0"),
                "Glm5NextForCausalLM": _blackwell_kv("0.33.0", "fp8"),
                "Glm5NextForConditionalGeneration": _blackwell_kv("0.33.0", "fp8"),
            }
        ),
        "0.32.0": MappingProxyType({"GlmMoeDsaForCausalLM": _blackwell_kv("0.32.0")}),
    }
)
"""KV cache dtypes that the engine takes for `auto` on compute capability 10.x, by architecture."""


def kv_cache_dtype_hook(
    architectures: Iterable[str], is_blackwell: bool, version: str, *, has_index: bool = True
) -> str | None:
    """``has_index`` says that the config names the sparse index that some of the hooks ask for.

    Source: vllm/model_executor/models/config.py: GlmMoeDsaForCausalLM and Glm5NextModelConfig.
    """
    if not is_blackwell:
        return None
    hooks = BLACKWELL_KV_CACHE_HOOKS[version]
    named = (name for name in architectures if name in hooks and (has_index or not name.startswith("Glm5Next")))
    return next((hooks[name].value for name in named), None)

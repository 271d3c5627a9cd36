"""Which layers of a model have a sliding window, where its config.json does not list every layer's type."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from servespec.compiler.facts.engine_file import in_engine, in_model_file
from servespec.provenance import Sourced

_CONFIG_CLASSES: Final = ("transformers", "5.19.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPattern:
    """Every layer has the window but one of every ``period``: the last of them, or the first where ``full_first``.

    ``key`` is what config.json may name another period by.
    """

    period: int
    key: str | None = None
    full_first: bool = False


def _keyed(period: int, key: str = "sliding_window_pattern") -> WindowPattern:
    return WindowPattern(period=period, key=key)


WINDOW_PATTERNS: Final[Sourced[Mapping[str, WindowPattern]]] = Sourced(
    MappingProxyType(
        {
            "afmoe": _keyed(4, "global_attn_every_n_layers"),
            "cohere2": _keyed(4),
            "cohere2_moe": _keyed(4),
            "cwm": WindowPattern(period=4, full_first=True),
            "exaone4": _keyed(4),
            "exaone_moe": _keyed(4),
            "gemma2": WindowPattern(period=2),
            "gemma3_text": _keyed(6),
            "granite_swa": WindowPattern(period=4, full_first=True),
            "granitemoe_swa": WindowPattern(period=4, full_first=True),
            "olmo3": WindowPattern(period=4),
            "qwen2_moe": WindowPattern(period=2),
            "vaultgemma": WindowPattern(period=2),
        }
    ),
    "layers, by model type",
    *_CONFIG_CLASSES,
    "transformers/models/gemma3/configuration_gemma3.py",
    '"sliding_attention" if bool((i + 1) % self._sliding_window_pattern) else "full_attention"',
    "their configs make `layer_types` where config.json has none",
)
DEFAULT_WINDOWS: Final[Sourced[Mapping[str, int]]] = Sourced(
    MappingProxyType(
        {
            "afmoe": 1024, "cohere2": 4096, "cohere2_moe": 4096, "cwm": 8192, "exaone4": 4096, "exaone_moe": 4096,
            "gemma2": 4096, "gemma3_text": 4096, "gpt_oss": 128, "granite_swa": 128, "granitemoe_swa": 128,
            "ministral": 4096, "mistral": 4096, "olmo3": 4096, "qwen2": 4096, "qwen2_5_omni_text": 32768,
            "qwen2_5_vl_text": 4096, "qwen2_moe": 4096, "qwen2_vl_text": 4096, "qwen3": 4096, "qwen3_moe": 4096,
            "vaultgemma": 4096,
        }
    ),
    "tokens, by model type",
    *_CONFIG_CLASSES,
    "transformers/models/gemma3/configuration_gemma3.py",
    "sliding_window: int | None = 4096",
    "their windows where config.json has no `sliding_window`, and asks for one where they have none unasked",
)  # fmt: skip
LAYERS_BEFORE_WINDOWS: Final[Sourced[Mapping[str, int]]] = Sourced(
    MappingProxyType({"qwen2": 28, "qwen2_5_omni_text": 28, "qwen2_5_vl_text": 80, "qwen2_vl_text": 80, "qwen3": 28}),
    "layers, by model type",
    *_CONFIG_CLASSES,
    "transformers/models/qwen3/configuration_qwen3.py",
    "if self.sliding_window is not None and i >= self.max_window_layers",
    "their first `max_window_layers` layers have no window; so many where config.json does not say",
)
ASKED_FOR_WINDOWS: Final = Sourced(
    frozenset(
        {
            "qwen2", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl_text", "qwen3", "qwen3_moe",
            "smollm3",
        }
    ),
    "model types",
    *_CONFIG_CLASSES,
    "transformers/models/qwen3/configuration_qwen3.py",
    "self.sliding_window = self.sliding_window if self.use_sliding_window else None",
    "they have a window only where `use_sliding_window` is true",
)  # fmt: skip
ALTERNATING_WINDOWS: Final = in_model_file(
    ("GptOssForCausalLM",),
    "architectures",
    "gpt_oss.py",
    "sliding_window = config.sliding_window if self.layer_idx % 2 == 0 else None",
)
"""Every other layer has the window, whatever the config's `layer_types`."""
WHOLE_WINDOWS: Final = in_engine(
    (
        "Glm4MoeForCausalLM",
        "MiniMaxM2ForCausalLM",
        "MixtralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
    ),
    "architectures",
    "vllm/engine/arg_utils.py",
    'if layer_types is None or all(lt == "sliding_attention" for lt in layer_types):',
    "their layers do not read `layer_types`, so that they have a window in all layers or in none",
)
WIDER_WINDOWS: Final = in_model_file(
    ("Cohere2ForCausalLM", "Cohere2MoeForCausalLM"),
    "architectures",
    "commandr.py",
    "self.sliding_window = config.sliding_window + 1",
)
"""Their windows hold one token more than the config says."""

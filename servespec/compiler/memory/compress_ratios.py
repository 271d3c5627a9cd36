"""How much each layer of a model compresses its context, from its config.json."""

from collections.abc import Mapping
from typing import Any

from servespec.compiler.facts.memory import BLOCK_DRAFT_LAYERS, COMPRESSED_STATE_BLOCK_TOKENS
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.memory.config_sizes import is_size
from servespec.compiler.model import Model


def compresses_context(model: Model) -> bool:
    """Whether the model is such, and not one of another generation that also names ratios."""
    return model.traits.model_type == "deepseek_v4" and bool(compress_ratios(model))


def compress_ratios(model: Model) -> tuple[int, ...]:
    """The ratio of each of the target's layers; 0 keeps a window alone.

    Source: vllm/transformers_utils/deepseek_v4_utils.py: get_compress_ratios.
    """
    text, layers = text_config(model.config), model.traits.num_hidden_layers or 0
    written = text.get("compress_ratios")
    if isinstance(written, list):
        return _known_ratios(written[:layers])
    rates, types = text.get("compress_rates"), model.traits.layer_types
    if not isinstance(rates, Mapping) or types is None:
        return ()
    return _known_ratios([rates.get(kind, 0) for kind in types[:layers]])


def _known_ratios(ratios: list[Any]) -> tuple[int, ...]:
    """Empty where the engine has no such layer."""
    return tuple(ratios) if all(ratio in (0, 1, *COMPRESSED_STATE_BLOCK_TOKENS) for ratio in ratios) else ()


def block_draft_layers(model: Model) -> int:
    """Layers of the block drafter that such a target brings along.

    Source: vllm/models/deepseek_v4/nvidia/dspark.py: DSparkDeepseekV4Model.
    """
    named = model.config.get("n_mtp_layers")
    return named if is_size(named) else BLOCK_DRAFT_LAYERS.value

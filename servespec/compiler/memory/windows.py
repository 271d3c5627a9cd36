"""The sliding window of each layer, as the engine's model asks for it."""

from collections.abc import Mapping, Sequence
from typing import Any

from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.facts.windows import (
    ALTERNATING_WINDOWS,
    LAYERS_BEFORE_WINDOWS,
    WHOLE_WINDOWS,
    WIDER_WINDOWS,
    WINDOW_PATTERNS,
    WindowPattern,
)
from servespec.compiler.memory.config_sizes import is_size
from servespec.compiler.model import Model
from servespec.units import Tokens

Windows = tuple[Tokens | None, ...]
"""Tokens of the window of each layer, None where it keeps every token."""


def windows_of(model: Model, layers: int) -> Windows | str:
    """The windows of all layers, or why they cannot be told; without types of layers a window is in all of them.

    An override of `num_hidden_layers` may leave more types than layers, of which the last are not read.

    Source: vllm/engine/arg_utils.py: EngineArgs.create_engine_config.
    """
    written = model.traits.sliding_window
    if not is_size(written):
        return (None,) * layers
    slides = _slides(model, layers)
    if _is_one_of(WHOLE_WINDOWS.value, model):
        slides = (all(slides),) * layers
    if len(slides) < layers:
        return f"config.json names `layer_types` for {len(slides)} of {layers} layers"
    window = Tokens(written + 1 if _is_one_of(WIDER_WINDOWS.value, model) else written)
    return tuple(window if has_window else None for has_window in slides[:layers])


def _is_one_of(architectures: Sequence[str], model: Model) -> bool:
    return not set(architectures).isdisjoint(model.traits.architectures)


def _slides(model: Model, layers: int) -> tuple[bool, ...]:
    """Whether each layer has a window."""
    traits = model.traits
    if _is_one_of(ALTERNATING_WINDOWS.value, model):
        return tuple(index % 2 == 0 for index in range(layers))
    if traits.layer_types is not None:
        return tuple(kind == "sliding_attention" for kind in traits.layer_types)
    text, kind = text_config(model.config), traits.text_model_type or ""
    if kind in LAYERS_BEFORE_WINDOWS.value:
        first = text.get("max_window_layers", LAYERS_BEFORE_WINDOWS.value[kind])
        return tuple(isinstance(first, int) and index >= first for index in range(layers))
    pattern = WINDOW_PATTERNS.value.get(kind)
    return (True,) * layers if pattern is None else _by_pattern(pattern, text, layers)


def _by_pattern(pattern: WindowPattern, text: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    written = text.get(pattern.key) if pattern.key else None
    period = written if is_size(written) else pattern.period
    full = 0 if pattern.full_first else period - 1
    return tuple(index % period != full for index in range(layers))

"""Which layers of DeepSeek sparse attention score positions themselves; the others take what one before them chose."""

from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.memory.config_sizes import is_size, size_of
from servespec.compiler.model import Model

_SKIPS = "S"
_OFFSET = 2


def layers_with_index(model: Model, layers: int) -> tuple[bool, ...]:
    """Source: vllm/models/deepseek_v32/attention.py: DeepseekV32Attention.__init__."""
    if not model.traits.uses_sparse_index:
        return (False,) * layers
    text = text_config(model.config)
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str | list):
        return tuple(index >= len(pattern) or pattern[index] != _SKIPS for index in range(layers))
    every, written = size_of(text, "index_topk_freq") or 1, text.get("index_skip_topk_offset", _OFFSET)
    offset = written if is_size(written) or written == 0 else _OFFSET
    return tuple(max(index - offset + 1, 0) % every == 0 for index in range(layers))

"""Numbers about memory that the engine's budget does not hold."""

from typing import Final

from servespec.provenance import Sourced
from servespec.units import Bytes, Tokens

PROFILED_LOGITS_VARIABLE: Final = "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB"
PROFILED_LOGITS: Final = Sourced(
    Bytes(512 << 20),
    "bytes",
    "vllm",
    "0.33.0",
    "vllm/envs.py",
    "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB: int = 512",
    "what the profile run allocates in place of the indexer's logits",
)

_COMPRESSED = "vllm/models/deepseek_v4/sparse_mla.py"

TOPK_RATIO: Final = Sourced(
    128,
    "tokens per compressed position",
    "vllm",
    "0.33.0",
    _COMPRESSED,
    "if self.compress_ratio == 128:",
    "layers of this ratio keep two buffers of indices",
)
TOPK_ALIGNMENT: Final = Sourced(128, "positions", "vllm", "0.33.0", _COMPRESSED, "_C128A_TOPK_ALIGNMENT = 128")
COMPRESSED_BUFFERS: Final = Sourced(
    Bytes(int(4.6 * (1 << 30))),
    "bytes",
    "vLLM, measurements of separate prefill and decode graphs",
    "",
    "total memory budget error after initialization, DeepSeek-V4-Flash",
    "",
    "runner buffers that are made with the KV cache and that the budget never counts",
)
COMPRESSED_BUFFERS_AT: Final = (Tokens(16384), Tokens(1 << 20))
"""Tokens of a step and context of that launch."""

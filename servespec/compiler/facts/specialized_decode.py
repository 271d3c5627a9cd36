"""What the engine's specialised decode of a model needs: an executor of its own for few requests.

Asked for by `decode_backend: latency_specialized` in the additional config; the engine ends at start-up where something
is missing.
"""

from typing import Final

from servespec.compiler.facts.engine_file import in_engine
from servespec.units import Tokens

DECODE_BACKEND_KEY: Final = "decode_backend"
LATENCY_SPECIALIZED: Final = in_engine(
    "latency_specialized",
    "value of `decode_backend`",
    "vllm/models/deepseek_v41/nvidia/specialized_decode/__init__.py",
    'raise ValueError("Supported decode_backend values are auto/latency_specialized")',
)

_DEEPSEEK = "vllm/models/deepseek_v41/nvidia/specialized_decode/__init__.py"
_KIMI = "vllm/models/kimi_k3/nvidia/specialized_decode/runtime/__init__.py"

DEEPSEEK_ARCHITECTURE: Final = "DeepseekV41ForCausalLM"
DEEPSEEK_CAPABILITY: Final = in_engine(
    (10, 3), "compute capability", _DEEPSEEK, "current_platform.is_device_capability(103)"
)
DEEPSEEK_RANKS: Final = in_engine(4, "tensor-parallel ranks", _DEEPSEEK, "parallel.tensor_parallel_size == 4")
DEEPSEEK_BACKEND: Final = in_engine(
    "FLASHINFER_MLA_SPARSE_DSV41",
    "attention backend",
    _DEEPSEEK,
    "attention.backend == AttentionBackendEnum.FLASHINFER_MLA_SPARSE_DSV41",
)
DEEPSEEK_CACHE_TYPES: Final = in_engine(
    ("fp8", "fp8_e4m3"),
    "types of the KV cache",
    _DEEPSEEK,
    'vllm_config.cache_config.cache_dtype in ("fp8", "fp8_e4m3")',
)
DEEPSEEK_INDEXER_TYPE: Final = in_engine(
    "mxfp4", "type of the indexer's cache", _DEEPSEEK, 'attention.indexer_kv_dtype == "mxfp4"'
)
DEEPSEEK_ROWS: Final = in_engine(
    Tokens(384), "tokens", _DEEPSEEK, "FUSED_MHC_MAX_ROWS = 384", "wider decode graphs run the stock layers"
)
DEEPSEEK_LOW_BATCH_ROWS: Final = in_engine(
    Tokens(8), "tokens", _DEEPSEEK, "LOW_BATCH_MAX_ROWS = 8", "up to here matrix products are specialised too"
)
DEEPSEEK_FLASHINFER: Final = in_engine(
    "0.7.2", "version of flashinfer-python", _DEEPSEEK, 'FLASHINFER_VERSION = "0.7.2"', "another one runs stock parts"
)

KIMI_ARCHITECTURE: Final = "KimiK3ForConditionalGeneration"
KIMI_CAPABILITY_MAJOR: Final = in_engine(
    10, "major compute capability", _KIMI, "not current_platform.is_device_capability_family(100)"
)
KIMI_RANKS: Final = in_engine((8, 16), "tensor-parallel ranks", _KIMI, "parallel.tensor_parallel_size not in (8, 16)")
KIMI_MOST_DRAFTS: Final = in_engine(7, "tokens per request", _KIMI, "spec.num_speculative_tokens > 7")
DRAFTING_METHOD: Final = in_engine("dspark", "speculative method", _KIMI, 'spec.method != "dspark"')

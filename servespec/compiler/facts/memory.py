"""Figures of the memory ledger that a config.json does not hold: block sizes, cached types, measured remainders."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from servespec.compiler.facts.engine_file import in_engine
from servespec.provenance import Sourced
from servespec.units import Bytes

_BACKENDS = "vllm/v1/attention/backends"
_CACHE = "vllm/config/cache.py"


DEFAULT_BLOCK_TOKENS: Final = in_engine(16, "tokens", _CACHE, "DEFAULT_BLOCK_SIZE: ClassVar[int] = 16")
_SIZES = "def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int | MultipleOf]:"
COMPRESSED_BLOCK_TOKENS: Final = in_engine(
    256, "tokens", "vllm/models/deepseek_v4/sparse_mla.py", _SIZES + "return [256]", "all that the kernel takes"
)
INDEX_BLOCK_TOKENS: Final = in_engine(
    64,
    "tokens",
    f"{_BACKENDS}/mla/indexer.py",
    _SIZES + "return [1, MultipleOf(16)] if current_platform.is_rocm() else [64]",
    "of the index beside sparse attention, on NVIDIA GPUs",
)
PREFERRED_BLOCK_TOKENS: Final[Mapping[str, Sourced[int]]] = MappingProxyType(
    {"B12X": in_engine(128, "tokens", f"{_BACKENDS}/b12x.py", "_B12X_PREFERRED_PAGE_SIZE = 128")}
)
"""Of backends that take another size than the smallest that they support, where they are alone."""

DEFAULT_UTILIZATION: Final = Sourced(
    0.92, "share of the device", "vllm", "0.33.0", _CACHE, "gpu_memory_utilization: float = Field(default=0.92, gt=0"
)

SPARSE_FP8_TOKEN_BYTES: Final = in_engine(
    656,
    "bytes",
    f"{_BACKENDS}/mla/flashmla_sparse.py",
    'in the "FP8 with scale" format, each token\'s KV cache is 656',
    "a token of one layer of DeepSeek sparse attention, in fp8",
)
INDEX_SCALE_ELEMENTS: Final = in_engine(
    128,
    "elements",
    "vllm/model_executor/models/deepseek_v2.py",
    "self.quant_block_size = 128",
    "of the sparse index that share a 4-byte scale",
)
_COMPRESSED = "vllm/models/deepseek_v4"
COMPRESSED_TOKEN_BYTES: Final = in_engine(
    584,
    "bytes",
    f"{_COMPRESSED}/attention.py",
    "state_content_bytes=584 if uses_fp8_ds_mla_layout else None",
    "a compressed or windowed token of DeepSeek V4, in fp8 with its scales",
)
COMPRESSED_ALIGNMENT: Final = in_engine(
    576, "bytes", f"{_COMPRESSED}/attention.py", "alignment=576 if uses_fp8_ds_mla_layout else 512,"
)
PLAIN_ALIGNMENT: Final = in_engine(
    512,
    "bytes",
    f"{_COMPRESSED}/attention.py",
    "alignment=576 if uses_fp8_ds_mla_layout else 512,",
    "of pages whose rows are plain elements",
)
COMPRESSED_INDEX_RATIO: Final = in_engine(
    4, "tokens", f"{_COMPRESSED}/attention.py", "if self.compress_ratio == 4:", "the ratio that has an index"
)
COMPRESSED_WINDOW_BLOCK_TOKENS: Final = in_engine(
    64, "tokens", f"{_BACKENDS}/mla/sparse_swa.py", "block_size: int = 64,"
)
COMPRESSED_STATE_BLOCK_TOKENS: Final[Mapping[int, Sourced[int]]] = MappingProxyType(
    {
        4: in_engine(4, "tokens", f"{_COMPRESSED}/compressor.py", "if compress_ratio == 4: self.block_size = 4"),
        128: in_engine(8, "tokens", f"{_COMPRESSED}/compressor.py", "elif compress_ratio == 128: self.block_size = 8"),
    }
)
"""Blocks of the partial states, by the ratio of their layer."""
PADDED_HEADS: Final = in_engine(
    64,
    "heads",
    f"{_COMPRESSED}/nvidia/flashmla.py",
    "return 64 if num_heads <= 64 else 128",
    "FlashMLA's queries and outputs have a multiple of these on a rank, so that tensor parallelism saves none",
)
BLOCK_DRAFT_LAYERS: Final = in_engine(
    3,
    "layers",
    f"{_COMPRESSED}/nvidia/dspark.py",
    'self.num_dspark_layers = getattr(config, "n_mtp_layers", None) or 3',
    "of the block drafter of DeepSeek V4, where the config names no `n_mtp_layers`",
)
SCALED_FOUR_BIT_ELEMENTS: Final = in_engine(
    32,
    "elements",
    f"{_COMPRESSED}/common/ops/fused_indexer_q.py",
    "MXFP4_BLOCK_SIZE = 32",
    "of a 4-bit index that share a scale of one byte",
)

_LAUNCHES = "docs/measurements/2026-11-29-h200-memory.json"


def _measured(value: int, quote: str, note: str) -> Sourced[Bytes]:
    return Sourced(Bytes(value), "bytes", _LAUNCHES, "0.33.0", "launches", quote, note)


_TRACE = "docs/measurements/2026-12-01-h200-memory-trace.json"
"""Of an allocator in a launch that compiled."""


SAMPLER_LOGIT: Final = in_engine(
    6,
    "bytes",
    "vllm/v1/worker/gpu/sample/sampler.py",
    "logits = torch.empty_like(logits, dtype=torch.float32).copy_(logits)",
    "for each request and token of the vocabulary: what the head makes in 2 bytes and its copy in 4",
)
EXAMPLE_TENSORS: Final = Sourced(
    2,
    "hidden states",
    _TRACE,
    "0.33.0",
    "profile",
    "generate_example_value",
    "that the first kernel of a target writes: the embedded tokens, and their norm",
)
DRAFT_EXAMPLE_TENSORS: Final = Sourced(
    5,
    "hidden states",
    "docs/measurements/2026-11-30-h200-memory-launches-1.json",
    "0.33.0",
    "launches",
    '"peak_bytes": 1879118336',
    "of the first kernel of a drafter: the target's, and twice both halves of what its matrix reads",
)
CACHE_FLUSH: Final = Sourced(
    Bytes(60 << 20),
    "bytes",
    _TRACE,
    "0.33.0",
    "profile",
    "benchmark_gpu",
    "that are written between two timed runs of a kernel",
)
LEFT_BY_PROFILE: Final = Sourced(
    Bytes(95 << 20),
    "bytes",
    _TRACE,
    "0.33.0",
    "profile",
    "apply_top_k_top_p_triton",
    "that the first run of the sampler and of a matrix product leave held, above which the engine takes its peak",
)
COUNT_BYTES: Final = in_engine(
    4,
    "bytes",
    "vllm/v1/worker/gpu/sample/penalties.py",
    "self.output_bin_counts = torch.zeros( max_num_reqs, vocab_size, dtype=torch.int32,",
    "of a request and a token of the vocabulary, and of a word of bits",
)
BITS_WORD: Final = in_engine(
    32,
    "tokens",
    "vllm/v1/worker/gpu/sample/penalties.py",
    "max_num_reqs, cdiv(vocab_size, 32), dtype=torch.int32",
    "that share a word of their bits",
)
CONTEXT: Final = _measured(
    183 << 20,
    "consumed less weights: 0.57 and 0.90 GiB",
    "0.174 and 0.183 GiB are left without the hidden states, the sampler's counts and masks, and the workspace of the "
    "experts; 0.165 to 0.243 on other launches of one H200",
)
WORKER_CONTEXT: Final = Sourced(
    Bytes(753_729_536),
    "bytes",
    "docs/measurements/2026-11-30-h200-memory-launches-1.json",
    "0.33.0",
    "launches",
    "device_bytes less free_at_start_bytes",
    "in use of a GPU with memory of its own when a worker has its context and looks at it first",
)
MACHINE_ITSELF: Final = Sourced(
    Bytes(11_591 << 20),
    "bytes",
    "vLLM start-up log",
    "",
    "",
    "Free memory on device (110.37/121.69 GiB) on startup",
    "a GB10 shares its memory with the machine, whose system and programs were using the rest",
)
COMMUNICATOR: Final = Sourced(
    Bytes(700 << 20),
    "bytes",
    "docs/measurements/2026-11-30-h200-memory-launches-4.json",
    "0.33.0",
    "launches",
    "consumed memory of 9.26 GiB less weights of 7.94 GiB",
    "0.8 GiB are left without the context and the hidden states on one of two ranks; a smaller model left 0.5 GiB",
)

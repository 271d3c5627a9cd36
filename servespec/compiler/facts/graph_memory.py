"""Numbers that say what captured graphs hold: the engine's rules, the allocator's and the driver's."""

from typing import Final

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.provenance import Sourced
from servespec.units import Bytes

_GRAPHS = "vllm/v1/worker/gpu/cudagraph_utils.py"
_ALLOCATOR = "c10/core/AllocatorConfig.h"

# The engine

PROFILED_FULL_GRAPHS: Final = Sourced(
    2, "graphs", "vllm", "0.33.0", _GRAPHS, "_FULL_GRAPH_PROFILING_SAMPLES = 2", "of the target; the widest ones"
)
LEAST_GRAPH: Final = Sourced(Bytes(1 << 20), "bytes", "vllm", "0.33.0", _GRAPHS, "_MIN_PER_GRAPH_BYTES = 1 << 20")
CAPTURE_ORDER: Final = Sourced(
    (CudaGraphMode.PIECEWISE, CudaGraphMode.FULL),
    "graph modes",
    "vllm",
    "0.33.0",
    _GRAPHS,
    "for mode in [CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL]:",
    "within a manager, the widest first",
)
AUX_METHODS: Final = Sourced(
    ("eagle3", "dflash", "dspark"),
    "drafting methods",
    "vllm",
    "0.33.0",
    "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
    'return spec_config.method in ("dflash", "dspark", "extract_hidden_states")',
    "eagle3 is tested for before; a drafter that extracts hidden states owns no graphs",
)
AUX_LAYERS: Final = Sourced(
    3,
    "layers",
    "vllm",
    "0.33.0",
    "vllm/model_executor/models/interfaces.py",
    "return (2, num_layers // 2, num_layers - 3)",
    "where the drafter's config lists none",
)
ENTRY_STATE_MODELS: Final = Sourced(
    ("deepseek_v41",),
    "model types",
    "vllm",
    "0.33.0",
    "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
    'if getattr(hf_config, "model_type", None) == "deepseek_v41":',
    "what their drafters list are layers whose input they read, where others list layers that have run",
)
GIVEN_RESIDUAL_METHODS: Final = Sourced(
    ("eagle3",),
    "drafting methods",
    "vllm",
    "0.33.0",
    "vllm/model_executor/models/llama_eagle3.py",
    "residual = hidden_states hidden_states = self.hidden_norm(hidden_states)",
    "the first residual is the hidden states that the drafter is called with",
)
PIECE_ARGUMENTS: Final = Sourced(
    ("attention output", "residual"),
    "tensors",
    "vllm",
    "0.33.0",
    "vllm/compilation/cuda_graph.py",
    "output = self.runnable(*args, **kwargs)",
    "what a compiled piece is given stays until it returns, because its wrapper refers to all of it",
)
SCALE_GROUP: Final = Sourced(
    "rows of a weight block",
    "elements of an FP8 input that share a scale",
    "vllm",
    "0.33.0",
    "vllm/model_executor/layers/quantization/fp8.py",
    "group_shape=GroupShape(1, self.weight_block_size[0])",
)
FUSED_FP8_INPUTS: Final = Sourced(
    ("norm", "activation"),
    "operators that write the next matrix's input in FP8",
    "vllm",
    "0.33.0",
    "vllm/config/vllm.py",
    "custom_ops = self.compilation_config.custom_ops"
    ' if "-quant_fp8" not in custom_ops: custom_ops.append("+quant_fp8")',
    "with block-wise weights; the passes that fuse it are on where that operator is",
)
PADDED_HEADS: Final = Sourced(
    64,
    "heads",
    "vllm",
    "0.33.0",
    "vllm/models/deepseek_v4/nvidia/flashmla.py",
    "return 64 if num_heads <= 64 else 128",
    "queries and outputs of compressed attention, on every rank; twice as many above",
)
SUPPORTED_HEADS: Final = Sourced(
    (8, 16, 32, 64, 128),
    "heads",
    "vllm",
    "0.33.0",
    "vllm/models/deepseek_v4/nvidia/flashinfer_sparse.py",
    "_SPARSE_MLA_SUPPORTED_Q_HEADS = (8, 16, 32, 64, 128)",
    "of compressed attention by FlashInfer",
)
FORKED_TOKENS_VARIABLE: Final = "VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD"
FORKED_TOKENS: Final = Sourced(
    1024,
    "tokens",
    "vllm",
    "0.33.0",
    "vllm/envs.py",
    "VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD: int = 1024",
    "up to which DeepSeek V4's small projections run on streams of their own",
)
INDEXED_RATIO: Final = Sourced(
    4,
    "tokens per compressed position",
    "vllm",
    "0.33.0",
    "vllm/models/deepseek_v4/attention.py",
    "if self.compress_ratio == 4:",
    "layers of this ratio have an indexer",
)
DSPARK_LAYERS: Final = Sourced(
    3,
    "layers",
    "vllm",
    "0.33.0",
    "vllm/models/deepseek_v4/nvidia/dspark.py",
    'getattr(config, "n_mtp_layers", None) or 3',
    "of the drafter in a target's own checkpoint, where `n_mtp_layers` is not named",
)

# The allocator and the libraries under the engine

SMALL_BLOCK: Final = Sourced(Bytes(1 << 20), "bytes", "PyTorch", "2.11", _ALLOCATOR, "kSmallSize = 1048576")
SMALL_SEGMENT: Final = Sourced(Bytes(2 << 20), "bytes", "PyTorch", "2.11", _ALLOCATOR, "kSmallBuffer = 2097152")
SHARED_SEGMENT: Final = Sourced(
    Bytes(20 << 20), "bytes", "PyTorch", "2.11", _ALLOCATOR, "kLargeBuffer = 20971520", "of blocks below OWN_SEGMENT"
)
OWN_SEGMENT: Final = Sourced(Bytes(10 << 20), "bytes", "PyTorch", "2.11", _ALLOCATOR, "kMinLargeAlloc = 10485760")
SEGMENT_STEP: Final = Sourced(Bytes(2 << 20), "bytes", "PyTorch", "2.11", _ALLOCATOR, "kRoundLarge = 2097152")
BLOCK_STEP: Final = Sourced(Bytes(512), "bytes", "PyTorch", "2.11", _ALLOCATOR, "kMinBlockSize = 512")
BLAS_WORKSPACE: Final = Sourced(
    Bytes(32 << 20),
    "bytes",
    "PyTorch",
    "2.11",
    "aten/src/ATen/cuda/CublasHandlePool.cpp",
    "4096 * 8 * 1024",
    "one for each stream that runs a matrix product, from compute capability 9.0 on",
)
OLDER_BLAS_WORKSPACE: Final = Sourced(
    Bytes(4096 * 1024 * 2 + 16 * 1024 * 8),
    "bytes",
    "PyTorch",
    "2.11",
    "aten/src/ATen/cuda/CublasHandlePool.cpp",
    "4096 * 1024 * 2 + 16 * 1024 * 8",
)

# Measured: what the driver keeps of a graph, outside of the allocator

_PUBLISHED_OBJECTS: Final = (
    "vLLM, measurements of separate prefill and decode graphs",
    "",
    "memory outside of PyTorch during capture, DeepSeek-V4-Flash",
    "",
)
LAYER_NODES: Final = Sourced(
    Bytes(46 << 10),
    "bytes",
    "docs/measurements/2026-12-01-h200-memory-launches-11.json",
    "0.33.0",
    "launches",
    '"device_bytes": 81788928',
    "the kernels of a dense layer in one graph: 78 MiB in the 48 FULL graphs of 36 layers",
)
EXPERT_LAYER_NODES: Final = Sourced(
    Bytes(52 << 10),
    "bytes",
    "docs/measurements/2026-12-01-h200-memory-launches-9.json",
    "0.33.0",
    "launches",
    '"device_bytes": 94371840',
    "the kernels of a layer of experts: 90 MiB in the 37 FULL graphs of 48 layers",
)
WIDE_LAYER_NODES: Final = Sourced(
    Bytes(360 << 10),
    "bytes",
    *_PUBLISHED_OBJECTS,
    "0.721 GiB for the 46 of 48 FULL graphs that were not captured before, of 43 layers; on GB200",
)
PIECE: Final = Sourced(
    Bytes(110 << 10),
    "bytes",
    *_PUBLISHED_OBJECTS,
    "what a graph of its own costs beside its kernels: 15 to 20 MiB for all pieces, 10 to 16 MiB for one FULL graph",
)

ESTIMATE_ERROR: Final = (-0.24, 0.85)
"""How far the engine's own estimate was from what capture then took, over all measured launches."""

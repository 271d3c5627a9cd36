"""Every place of the engine that reads its one list of graph sizes, and what a wider list changes there.

A plan passes the union of its token counts as that list.  The graphs come from the hand-off or are the plan's own
business; what is in ``LIST_READERS`` changes beside them.  A test finds every place of the wheel that names one of
``LIST_ATTRIBUTES`` and wants it to be a listed reader, graph machinery, or not reached.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from servespec.provenance import Sourced
from servespec.units import Bytes, Requests, Tokens

LIST_ATTRIBUTES: Final = frozenset(
    {
        "cudagraph_capture_sizes",
        "max_cudagraph_capture_size",
        "max_cudagraph_size",
        "max_capture_size",
        "decode_cudagraph_max_bs",
        "_decode_cudagraph_max_bs",
        "decode_cudagraph_max_tokens",
    }
)
"""The list, its maximum, and the attributes that the engine copies either into."""


EVERY_CAPABILITY: Final = ((0, 0), (99, 9))


class Matters(StrEnum):
    """What a wider list costs or changes at a reader."""

    MEMORY = "memory"
    KERNELS = "kernels of steps without a graph"
    START_UP = "start-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReader:
    """One reader, in the file that its quote stands in.

    ``functions`` are where it reads, ``decides`` what comes of it, ``effect`` how that follows from the list.
    Empty ``backends``, ``architectures`` and ``flash_attention`` hold for any; ``capabilities`` is an inclusive range;
    ``needs`` names in words what else must be set.  ``matters`` has the main consequence first, and is empty where
    nothing follows that a user could notice.
    """

    name: str
    functions: tuple[str, ...]
    decides: str
    effect: str
    matters: tuple[Matters, ...] = ()
    backends: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    flash_attention: tuple[int, ...] = ()
    capabilities: tuple[tuple[int, int], tuple[int, int]] = EVERY_CAPABILITY
    needs: str = ""


_BACKENDS = "vllm/v1/attention/backends"
_FLASH_ATTN = f"{_BACKENDS}/flash_attn.py"
_SPLITS_EFFECT = (
    "a step of at most the maximum asks for up to `flash_attn_max_num_splits_for_cuda_graph` KV splits, each with "
    "fp32 accumulators for every token and head, where a wider step takes the kernel's own number"
)
_INDEX_EFFECT = "small: 4-byte indices for at most the maximum, and never for more than max_num_seqs asks for"
_STATES = "buffers of state indices that FULL graphs read"
_MEMORY, _KERNELS, _START_UP = Matters.MEMORY, Matters.KERNELS, Matters.START_UP
_QWEN4 = ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration")

_Row = tuple[str, str, ListReader]

_ATTENTION_ROWS: tuple[_Row, ...] = (
    (
        _FLASH_ATTN,
        "and num_actual_tokens <= self.max_cudagraph_size",
        ListReader(
            name="flash-attention-splits",
            functions=("FlashAttentionMetadataBuilder.__init__", "FlashAttentionMetadataBuilder.build"),
            decides="the number of KV splits, and the length of the scheduler metadata",
            effect=_SPLITS_EFFECT,
            matters=(_MEMORY, _KERNELS),
            backends=("FLASH_ATTN", "TRITON_FLASH_ATTN", "QWEN4_EXP_QSA", "STEP5_DSA"),
            flash_attention=(3,),
            needs="FULL graphs",
        ),
    ),
    (
        f"{_BACKENDS}/mla/flashattn_mla.py",
        "and num_decode_tokens <= self.max_cudagraph_size",
        ListReader(
            name="flash-attention-mla-splits",
            functions=("FlashAttnMLAMetadataBuilder.__init__", "FlashAttnMLAMetadataBuilder._build_decode"),
            decides="the number of KV splits of decodes and short prefills, and the length of the scheduler metadata",
            effect=_SPLITS_EFFECT,
            matters=(_MEMORY, _KERNELS),
            backends=("FLASH_ATTN_MLA",),
            flash_attention=(3,),
            needs="FULL graphs",
        ),
    ),
    (
        f"{_BACKENDS}/triton_attn.py",
        "key=lambda x: abs(x - self.seq_threshold_3D),",
        ListReader(
            name="triton-3d-threshold",
            functions=("TritonAttentionMetadataBuilder.__init__",),
            decides="up to how many requests a decode step takes the kernel that splits the KV, and its scratch",
            effect="the entry nearest to 128 over the KV heads of a rank",
            matters=(_KERNELS,),
            backends=("TRITON_ATTN", "TRITON_FLASH_ATTN", "TRITON_FLASHINFER"),
            needs="FULL graphs",
        ),
    ),
    (
        f"{_BACKENDS}/flashinfer.py",
        "self._decode_cudagraph_max_bs = min(",
        ListReader(
            name="flashinfer-decode-wrappers",
            functions=("FlashInferMetadataBuilder.__init__", "FlashInferMetadataBuilder.build"),
            decides="which pure decode steps keep a decode wrapper of their own size",
            effect="8 MiB for each size that occurs, to the smaller of (1 + K) x max_num_seqs and the maximum",
            matters=(_MEMORY,),
            backends=("FLASHINFER", "TRITON_FLASHINFER"),
            needs="FULL graphs, and a decode without TensorRT-LLM or XQA kernels",
        ),
    ),
    (
        f"{_BACKENDS}/mla/tokenspeed_mla.py",
        "config.compilation_config.max_cudagraph_capture_size or 0,",
        ListReader(
            name="tokenspeed-workspace",
            functions=("TokenspeedMLAImpl.__init__",),
            decides="the workspace of split partial results",
            effect="tokens x heads (128 at least) x splits x (latent width + 1) x 4 bytes, for at least the maximum",
            matters=(_MEMORY,),
            backends=("TOKENSPEED_MLA",),
            needs="`tokenspeed_mla_min_split_kv` above 1",
        ),
    ),
    (
        "vllm/v1/attention/ops/dcp.py",
        "vllm_config.compilation_config.max_cudagraph_capture_size or 0,",
        ListReader(
            name="context-parallel-workspace",
            functions=("get_dcp_workspace_max_num_tokens",),
            decides="the symmetric-memory workspaces of decode context parallelism, and which steps use them",
            effect="tokens to the larger of max_num_seqs x (1 + K) and the maximum; wider steps go through NCCL",
            matters=(_MEMORY, _KERNELS),
            needs="MLA with decode context parallelism",
        ),
    ),
    (
        f"{_BACKENDS}/b12x.py",
        "decode_plan_sizes.add(max_num_seqs)",
        ListReader(
            name="b12x-decode-plans",
            functions=("B12xPagedAttentionImpl.__init__",),
            decides="which decode plans are made at start, for every layer and page size",
            effect="one for each entry up to max_num_seqs, and one for max_num_seqs; others are made when they occur",
            matters=(_START_UP,),
            backends=("B12X",),
        ),
    ),
    (
        f"{_BACKENDS}/gdn_attn.py",
        "self.decode_cudagraph_max_bs = min(",
        ListReader(
            name="gated-delta-states",
            functions=tuple(
                f"GDNAttentionMetadataBuilder.{name}"
                for name in ("__init__", "_stage_decode", "_stage_spec_decode", "build_for_cudagraph_capture")
            ),
            decides=_STATES,
            effect=_INDEX_EFFECT,
            backends=("GDN_ATTN", "KIMI_K3_KDA"),
        ),
    ),
    (
        "vllm/models/kimi_k3/nvidia/kda_metadata.py",
        "and num_spec_decode_tokens <= self.decode_cudagraph_max_bs",
        ListReader(
            name="kimi-delta-states",
            functions=("KimiK3KDAMetadataBuilder.build",),
            decides="which decode steps copy their metadata into the buffers of FULL graphs",
            effect="decode steps up to the maximum do, with or without a graph",
            backends=("KIMI_K3_KDA",),
        ),
    ),
    (
        f"{_BACKENDS}/mamba_attn.py",
        "self.decode_cudagraph_max_bs = min(",
        ListReader(
            name="mamba-states",
            functions=tuple(
                f"BaseMambaAttentionMetadataBuilder.{name}"
                for name in ("__init__", "build_for_cudagraph_capture", "_update_metadata_for_cudagraph_capture")
            ),
            decides=_STATES,
            effect=_INDEX_EFFECT,
            backends=("MAMBA1_ATTN", "MAMBA2_ATTN", "SHORT_CONV_ATTN"),
        ),
    ),
    (
        f"{_BACKENDS}/linear_attn.py",
        "self.decode_cudagraph_max_bs = min(",
        ListReader(
            name="linear-states",
            functions=tuple(f"BailingLinearAttentionMetadataBuilder.{name}" for name in ("__init__", "build")),
            decides=_STATES,
            effect=_INDEX_EFFECT,
            backends=("BAILING_LINEAR_ATTN",),
        ),
    ),
    (
        f"{_BACKENDS}/short_conv_attn.py",
        "self.decode_cudagraph_max_tokens, max_capture_size",
        ListReader(
            name="short-convolution-states",
            functions=tuple(
                f"PleShortConvAttentionMetadataBuilder.{name}"
                for name in ("__init__", "_build_non_spec_metadata", "build", "build_for_cudagraph_capture")
            ),
            decides=_STATES,
            effect=_INDEX_EFFECT,
            architectures=_QWEN4,
        ),
    ),
)

_OTHER_ROWS: tuple[_Row, ...] = (
    (
        "vllm/distributed/device_communicators/flashinfer_pcie_ipc_all_reduce.py",
        "capture_sizes = worker.vllm_config.compilation_config.cudagraph_capture_sizes",
        ListReader(
            name="pcie-all-reduce",
            functions=("warmup_flashinfer_pcie_ipc_allreduce",),
            decides="the PCIe IPC all-reduce's workspace, the steps that may use it, and its tuned sizes",
            effect="maximum x hidden size elements; every entry is tuned before the first request",
            matters=(_KERNELS, _MEMORY, _START_UP),
            needs="`VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC` and tensor parallelism",
        ),
    ),
    (
        "vllm/model_executor/warmup/kernel_warmup.py",
        "b12x_warmup(worker, cudagraph_capture_sizes)",
        ListReader(
            name="b12x-warm-up",
            functions=("kernel_warmup",),
            decides="the token counts that b12x linear and expert kernels are compiled for at start",
            effect="every entry, 1 and max_num_batched_tokens, less what selects the same kernel",
            matters=(_START_UP,),
            capabilities=((12, 0), (12, 9)),
            needs="b12x",
        ),
    ),
    (
        "vllm/model_executor/warmup/b12x_warmup.py",
        "*cudagraph_capture_sizes,",
        ListReader(
            name="b12x-warm-up-counts",
            functions=("b12x_warmup",),
            decides="the same, from the list that it is handed",
            effect="as kernel_warmup hands it on",
            capabilities=((12, 0), (12, 9)),
        ),
    ),
    (
        "vllm/models/qwen4_exp/nvidia/model.py",
        "vllm_config.compilation_config.cudagraph_capture_sizes or (),",
        ListReader(
            name="qwen4-warm-up",
            functions=("Qwen4ExpForCausalLM.__init__",),
            decides="the token counts that its fused projection is compiled for at start",
            effect="every entry to 48",
            matters=(_START_UP,),
            architectures=_QWEN4,
            capabilities=((9, 0), EVERY_CAPABILITY[1]),
        ),
    ),
    (
        "vllm/config/compilation.py",
        "computed_compile_sizes.extend(self.cudagraph_capture_sizes)",
        ListReader(
            name="compile-sizes",
            functions=("CompilationConfig.post_init_cudagraph_sizes",),
            decides="the sizes that torch.compile makes code of their own for",
            effect="one compilation for every entry",
            matters=(_START_UP,),
            needs="`cudagraph_capture_sizes` among the `compile_sizes`",
        ),
    ),
    (
        "vllm/config/compilation.py",
        "factors = get_hash_factors(self, ignored_factors)",
        ListReader(
            name="compile-cache",
            functions=("CompilationConfig.compute_hash",),
            decides="the key of the torch.compile cache",
            effect="every list has a key of its own, so the first start with a new list compiles anew",
            matters=(_START_UP,),
            needs="torch.compile",
        ),
    ),
    (
        "vllm/v1/worker/gpu/cudagraph_utils.py",
        "min(runner.max_num_reqs, runner.compilation_config.max_cudagraph_capture_size)",
        ListReader(
            name="profiling-kv-blocks",
            functions=("_init_minimal_kv_cache_for_profiling",),
            decides="the blocks of the KV cache that graph profiling makes and drops",
            effect="the smaller of max_num_seqs and the maximum, dropped before the real KV cache, which holds more",
            needs="the engine's estimate of graph memory",
        ),
    ),
    (
        "vllm/model_executor/layers/quantization/modelopt_block_quant.py",
        "*capture_sizes,",
        ListReader(
            name="block-quantization-capacity",
            functions=("ModelOptBlockQuantLinearMethod.process_weights_after_loading",),
            decides="the rows that its plans hold",
            effect="nothing: max_num_batched_tokens is never below an entry",
        ),
    ),
    (
        "vllm/model_executor/layers/fused_moe/layer.py",
        "max_capture_size=vllm_config.compilation_config.max_cudagraph_capture_size,",
        ListReader(
            name="expert-config",
            functions=("FusedMoEFactory",),
            decides="a field of the experts' config",
            effect="nothing: it is kept by the MXFP4 methods alone, which do not use it",
        ),
    ),
    (
        "vllm/model_executor/layers/quantization/mxfp4.py",
        "self.max_capture_size = moe.max_capture_size",
        ListReader(
            name="mxfp4-experts",
            functions=("GptOssMxfp4MoEMethod.__init__", "Mxfp4MoEMethod.__init__"),
            decides="nothing",
            effect="kept and not used",
        ),
    ),
    (
        "vllm/v1/metrics/loggers.py",
        "self.cudagraph_logging = CUDAGraphLogging(",
        ListReader(
            name="graph-metrics",
            functions=("LoggingStatLogger.__init__",),
            decides="the list printed above the engine's table of graph use",
            effect="it is printed",
            needs="`cudagraph_metrics`",
        ),
    ),
)


def _warm_up_row(function: str) -> _Row:
    reader = ListReader(
        name="compile-warm-up",
        functions=(function,),
        decides="which sizes run once before capture so that they are compiled",
        effect="the user's compile sizes outside the list, and the end of each compile range that holds no entry",
    )
    quote = "warmup_sizes = [x for x in warmup_sizes if x not in cg_capture_sizes]"
    return "vllm/v1/worker/gpu_worker.py", quote, reader


_KIMI_ROW: _Row = (
    "vllm/models/kimi_k3/nvidia/specialized_decode/runtime/__init__.py",
    "vllm_config.compilation_config.cudagraph_capture_sizes or ()",
    ListReader(
        name="kimi-specialized-decode",
        functions=("specialized_decode_config",),
        decides="the verify steps that its decode is prepared for at start",
        effect="every entry rounded up to whole requests, to 64 tokens",
        matters=(_START_UP,),
        architectures=("KimiK3ForConditionalGeneration",),
        capabilities=((10, 0), (10, 9)),
        needs="`decode_backend: latency_specialized` in the additional config",
    ),
)


def _sourced(version: str, rows: tuple[_Row, ...]) -> tuple[Sourced[ListReader], ...]:
    return tuple(Sourced(reader, "reader", "vllm", version, path, quote) for path, quote, reader in rows)


LIST_READERS: Final[Mapping[str, tuple[Sourced[ListReader], ...]]] = MappingProxyType(
    {
        "0.33.0": _sourced(
            "0.33.0",
            (*_ATTENTION_ROWS, *_OTHER_ROWS, _warm_up_row("Worker._compile_or_warm_up_model"), _KIMI_ROW),
        ),
        "0.32.0": _sourced("0.32.0", (*_ATTENTION_ROWS, *_OTHER_ROWS, _warm_up_row("Worker.compile_or_warm_up_model"))),
    }
)

GRAPH_MACHINERY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vllm/compilation/piecewise_backend.py": "refuses the list's name, which the config has replaced by then",
        "vllm/config/compilation.py": "resolves and rounds the list",
        "vllm/config/vllm.py": "resolves the list",
        "vllm/engine/arg_utils.py": "takes the list from the command line",
        "vllm/model_executor/models/config.py": "sets the maximum of a model's own hook",
        "vllm/models/deepseek_v41/nvidia/decoder_replay_cudagraph.py": "a graph manager of the model's own",
        "vllm/models/deepseek_v41/nvidia/specialized_decode/runtime/metadata_graphs.py": "graphs of the model's own",
        "vllm/v1/worker/gpu/cudagraph_utils.py": "the graph managers",
    }
)
"""Files that resolve the list or make graphs of it; a function of theirs that ``LIST_READERS`` names is a reader."""

_V1 = "Model Runner V1, whose plans are marked incomplete"
_ROCM = "AMD GPUs"
NOT_REACHED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vllm/models/minimax_m3/amd/indexer_context_parallel.py": _ROCM,
        "vllm/models/minimax_m3/amd/indexer_msa.py": _ROCM,
        "vllm/models/qwen4_exp/amd/qsa.py": _ROCM,
        "vllm/platforms/cpu.py": "the CPU, which captures nothing",
        "vllm/v1/attention/backends/rocm_octave_attn.py": _ROCM,
        "vllm/v1/attention/backends/turboquant_attn.py": _ROCM + ": only its FlyDSL store asks",
        "vllm/v1/attention/ops/flydsl_turboquant_decode.py": _ROCM,
        "vllm/v1/attention/ops/flydsl_ultraquant_decode.py": _ROCM,
        "vllm/v1/cudagraph_dispatcher.py": _V1,
        "vllm/v1/spec_decode/dflash.py": _V1,
        "vllm/v1/worker/gpu_model_runner.py": _V1,
    }
)
"""Files that no plan of Model Runner V2 on an NVIDIA GPU runs, with the reason."""


def listed_functions(version: str) -> Iterator[tuple[str, str]]:
    """(file, function) of every reader."""
    for sourced in LIST_READERS[version]:
        yield from ((sourced.path, function) for function in sourced.value.functions)


# Numbers of the readers' formulas

SPLITS_FIELD: Final = "flash_attn_max_num_splits_for_cuda_graph"
DEFAULT_SPLITS: Final = Sourced(
    32, "KV splits", "vllm", "0.33.0", "vllm/config/attention.py", "flash_attn_max_num_splits_for_cuda_graph: int = 32"
)
ACCUMULATOR: Final = Sourced(
    Bytes(4),
    "bytes",
    "FlashAttention 3",
    "",
    "hopper/flash_api.cpp",
    "auto outaccum_type = at::ScalarType::Float;",
    "one number of out_accum[num_splits, num_heads, total_q, head_size_v], and of softmax_lse_accum without the last",
)
LARGEST_3D_GRID: Final = Sourced(
    128, "blocks", "vllm", "0.33.0", f"{_BACKENDS}/triton_attn.py", "MIN_LAUNCH_GRID_SIZE_2D = 128"
)
DECODE_WRAPPER: Final = Sourced(
    Bytes(8 << 20),
    "bytes",
    "flashinfer-python",
    "0.7.2.post1",
    "flashinfer/decode.py",
    "self._int_workspace_buffer = torch.empty( (8 * 1024 * 1024,), dtype=torch.uint8, device=self.device )",
    "one BatchDecodeWithPagedKVCacheWrapper",
)
TOKENSPEED_HEADS: Final = Sourced(
    128, "heads", "vllm", "0.33.0", f"{_BACKENDS}/mla/tokenspeed_mla.py", "* max(num_heads, 128)", "at least"
)
QWEN4_FUSED_ROWS: Final = Sourced(
    Tokens(48),
    "tokens",
    "vllm",
    "0.33.0",
    "vllm/models/qwen4_exp/nvidia/ops/cute_dsl/hc_down_silu.py",
    "MAX_FUSED_M = 48",
)
KIMI_PREPARED: Final = Sourced(
    (*range(1, 9), 16, 32, 64),
    "tokens",
    "vllm",
    "0.33.0",
    "vllm/models/kimi_k3/nvidia/specialized_decode/runtime/providers.py",
    "BATCHES = (*range(1, 9), 16, 32, 64)",
    "prepared whatever the list holds; wider verify steps are not",
)


def split_accumulator_bytes(*, splits: int, heads: int, tokens: Tokens, value_width: int) -> Bytes:
    """Accumulators and their log-sum-exps of one attention call with ``splits`` KV splits.

    ``heads`` are the query heads of the call, ``value_width`` the width of one head's values.  One split writes its
    output itself.  Source: FlashAttention 3, hopper/flash_api.cpp: mha_fwd, where ``params.num_splits > 1``.
    """
    if splits <= 1:
        return Bytes(0)
    return Bytes(splits * heads * tokens * (value_width + 1) * ACCUMULATOR.value)


def triton_threshold_requests(sizes_tokens: tuple[Tokens, ...], kv_heads: int) -> Requests:
    """Up to how many requests Triton splits the KV; the lower of two entries that are equally near.

    Source: vllm/v1/attention/backends/triton_attn.py: TritonAttentionMetadataBuilder.__init__.
    """
    wanted = LARGEST_3D_GRID.value // kv_heads
    return Requests(min(sizes_tokens, key=lambda size: abs(size - wanted)))


def tokenspeed_workspace_bytes(*, splits: int, heads: int, tokens: Tokens, latent_width: int) -> Bytes:
    """Source: vllm/v1/attention/backends/mla/tokenspeed_mla.py: _get_workspace."""
    return Bytes(tokens * max(heads, TOKENSPEED_HEADS.value) * splits * (latent_width + 1) * 4)

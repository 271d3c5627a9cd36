"""What each attention backend of the engine accepts, and which graphs it can be captured in: the rows.

One row a backend, from its own file under vllm/v1/attention/backends: the checks that
vllm/v1/attention/backend.py (AttentionBackend.validate_configuration) asks it, the graph support of its
metadata builder, and whether the builder can refresh draft metadata inside a graph.  Rules that need more
than a table are in ``resolve/attention.py``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport
from servespec.provenance import Sourced

BACKENDS = "vllm/v1/attention/backends"
FLASH_ATTN_FILE = f"{BACKENDS}/flash_attn.py"
FLASHINFER_FILE = f"{BACKENDS}/flashinfer.py"

ALWAYS = AttentionCgSupport.ALWAYS
UNIFORM_BATCH = AttentionCgSupport.UNIFORM_BATCH
SINGLE_TOKEN = AttentionCgSupport.UNIFORM_SINGLE_TOKEN_DECODE
NEVER = AttentionCgSupport.NEVER

HALF = ("float16", "bfloat16")
_HALF_OR_FLOAT = (*HALF, "float32")
_PLAIN = ("auto", *HALF)
_FP8 = (*_PLAIN, "fp8", "fp8_e4m3")

DECODER = ("decoder",)
ALL_TYPES = ("decoder", "encoder", "encoder_only", "encoder_decoder")

ANY_CAPABILITY = ((0, 0), (99, 9))
AMPERE_OR_LATER = ((8, 0), (99, 9))
HOPPER = ((9, 0), (9, 9))
BLACKWELL = ((10, 0), (10, 9))
HOPPER_OR_BLACKWELL = ((9, 0), (10, 9))
CONSUMER_BLACKWELL = ((12, 0), (12, 9))

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFacts:
    """What one backend accepts; an empty tuple of sizes accepts any.

    ``block_sizes_tokens``: the user's block size must be a multiple of one of them, with
    ``exact_block_sizes`` one of them.  ``capabilities`` is an inclusive range.  ``trims_on_device``: it can
    run a batch whose lengths only the GPU knows, which adaptive verification needs; ``replays_varlen``: its
    full graphs replay such a batch below ALWAYS.  ``updates_in_place``: draft metadata can be refreshed
    inside a graph (without context parallelism).  ``needs_drafts_for_batches``: UNIFORM_BATCH holds only with
    drafts.  ``causal_half``: the backend that a composite uses for all but image tokens.  ``package``: what
    must be importable for it, None where the engine's own wheel is enough.
    """

    name: str
    support: AttentionCgSupport
    is_mla: bool = False
    is_sparse: bool = False
    dtypes: tuple[str, ...] = HALF
    kv_cache_dtypes: tuple[str, ...] = _PLAIN
    head_sizes: tuple[int, ...] = ()
    block_sizes_tokens: tuple[int, ...] = (16,)
    exact_block_sizes: bool = False
    capabilities: tuple[Capability, Capability] = ANY_CAPABILITY
    attention_types: tuple[str, ...] = DECODER
    sinks: bool = False
    mm_prefix: bool = False
    sliding_window: bool = False
    non_causal: bool = False
    non_causal_dcp: bool = False
    pcp: bool = False
    dcp: bool = False
    trims_on_device: bool = True
    replays_varlen: bool = False
    updates_in_place: bool = False
    needs_drafts_for_batches: bool = False
    causal_half: str | None = None
    package: str | None = None


_LATENT_BASE = BackendFacts(name="", support=NEVER, is_mla=True, pcp=True, head_sizes=(320, 512, 576))
_STATE_BASE = BackendFacts(name="", support=NEVER, trims_on_device=False)


def _support_quote(support: AttentionCgSupport) -> str:
    return f"_cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.{support.name}"


_CUTLASS_QUOTE = """
    _cudagraph_support: ClassVar[AttentionCGSupport] = (
        AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    )"""

DENSE_ROWS: tuple[tuple[BackendFacts, str, str], ...] = (
    (
        BackendFacts(
            name="FLASH_ATTN",
            support=UNIFORM_BATCH,
            kv_cache_dtypes=_FP8,
            capabilities=AMPERE_OR_LATER,
            attention_types=ALL_TYPES,
            sinks=True,
            mm_prefix=True,
            sliding_window=True,
            non_causal=True,
            dcp=True,
            updates_in_place=True,
        ),
        FLASH_ATTN_FILE,
        "self.supports_draft_decode_metadata_update = self.dcp_world_size == 1",
    ),
    (
        BackendFacts(
            name="FLASHINFER",
            support=UNIFORM_BATCH,
            kv_cache_dtypes=(*_FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
            head_sizes=(64, 128, 256, 512),
            block_sizes_tokens=(16, 32, 64),
            capabilities=((8, 0), (12, 1)),
            sinks=True,
            sliding_window=True,
            non_causal=True,
            dcp=True,
            package="flashinfer",
        ),
        FLASHINFER_FILE,
        "return [64, 128, 256, 512]",
    ),
    (
        BackendFacts(
            name="TRITON_ATTN",
            support=ALWAYS,
            dtypes=_HALF_OR_FLOAT,
            kv_cache_dtypes=(
                *_FP8,
                "fp8_e5m2",
                "int4_per_token_head",
                "int8_per_token_head",
                "fp8_per_token_head",
            ),
            attention_types=ALL_TYPES,
            sinks=True,
            mm_prefix=True,
            sliding_window=True,
            non_causal=True,
            updates_in_place=True,
        ),
        f"{BACKENDS}/triton_attn.py",
        _support_quote(ALWAYS),
    ),
    (
        BackendFacts(
            name="FLEX_ATTENTION",
            support=ALWAYS,
            dtypes=_HALF_OR_FLOAT,
            attention_types=("decoder", "encoder_only"),
            mm_prefix=True,
            sliding_window=True,
            non_causal=True,
        ),
        f"{BACKENDS}/flex_attention.py",
        _support_quote(ALWAYS),
    ),
    (
        BackendFacts(
            name="TRITON_FLASHINFER",
            support=SINGLE_TOKEN,
            kv_cache_dtypes=(*_FP8, "fp8_e5m2"),
            head_sizes=(256, 512),
            block_sizes_tokens=(64,),
            capabilities=BLACKWELL,
            mm_prefix=True,
            sliding_window=True,
            trims_on_device=False,
            causal_half="FLASHINFER",
            package="flashinfer",
        ),
        f"{BACKENDS}/triton_flashinfer.py",
        "head_sizes=(256, 512), kernel_block_sizes=(64,), device_major=10,",
    ),
    (
        BackendFacts(
            name="TRITON_FLASH_ATTN",
            support=SINGLE_TOKEN,
            kv_cache_dtypes=_FP8,
            head_sizes=(256, 512),
            capabilities=HOPPER,
            mm_prefix=True,
            sliding_window=True,
            trims_on_device=False,
            causal_half="FLASH_ATTN",
        ),
        f"{BACKENDS}/triton_flash_attn.py",
        "routing_policy=MMPrefixAttentionRouting, head_sizes=(256, 512),",
    ),
    (
        BackendFacts(
            name="TURBOQUANT",
            support=UNIFORM_BATCH,
            kv_cache_dtypes=(
                "turboquant_k8v4",
                "turboquant_4bit_nc",
                "turboquant_k3v4_nc",
                "turboquant_3bit_nc",
            ),
            block_sizes_tokens=(16, 32, 64, 128),
        ),
        f"{BACKENDS}/turboquant_attn.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        BackendFacts(
            name="HPC_ATTN",
            support=UNIFORM_BATCH,
            kv_cache_dtypes=("auto", "bfloat16", "fp8_e4m3"),
            head_sizes=(128,),
            block_sizes_tokens=(64,),
            capabilities=((9, 0), (9, 0)),
            needs_drafts_for_batches=True,
            package="hpc_ops",
        ),
        f"{BACKENDS}/hpc_attn.py",
        "_cudagraph_support = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE",
    ),
    (
        BackendFacts(
            name="CPU_ATTN",
            support=NEVER,
            dtypes=_HALF_OR_FLOAT,
            kv_cache_dtypes=("auto", *HALF, "fp8", "fp8_e4m3", "fp8_e5m2"),
            head_sizes=(32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512),
            block_sizes_tokens=(32,),
            attention_types=ALL_TYPES,
            sliding_window=True,
            non_causal=True,
        ),
        f"{BACKENDS}/cpu_attn.py",
        "class CPUAttentionMetadataBuilder(AttentionMetadataBuilder[CPUAttentionMetadata]):",
    ),
)

LATENT_ROWS: tuple[tuple[BackendFacts, str, str], ...] = (
    (
        replace(
            _LATENT_BASE,
            name="FLASHINFER_MLA",
            support=ALWAYS,
            kv_cache_dtypes=_FP8,
            block_sizes_tokens=(32, 64),
            capabilities=BLACKWELL,
            non_causal=True,
            non_causal_dcp=True,
            dcp=True,
            package="flashinfer",
        ),
        f"{BACKENDS}/mla/flashinfer_mla.py",
        _support_quote(ALWAYS),
    ),
    (
        replace(
            _LATENT_BASE,
            name="TOKENSPEED_MLA",
            support=UNIFORM_BATCH,
            kv_cache_dtypes=("fp8", "fp8_e4m3"),
            block_sizes_tokens=(32, 64),
            capabilities=BLACKWELL,
            non_causal=True,
            non_causal_dcp=True,
            dcp=True,
            package="tokenspeed_mla",
        ),
        f"{BACKENDS}/mla/tokenspeed_mla.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        replace(
            _LATENT_BASE,
            name="CUTLASS_MLA",
            support=SINGLE_TOKEN,
            kv_cache_dtypes=_FP8,
            block_sizes_tokens=(128,),
            capabilities=BLACKWELL,
            dcp=True,
        ),
        f"{BACKENDS}/mla/cutlass_mla.py",
        _CUTLASS_QUOTE,
    ),
    (
        replace(_LATENT_BASE, name="FLASH_ATTN_MLA", support=UNIFORM_BATCH, capabilities=HOPPER, dcp=True),
        f"{BACKENDS}/mla/flashattn_mla.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        # The dense kernels are Hopper's, although the class names 10.x too.
        replace(
            _LATENT_BASE,
            name="FLASHMLA",
            support=UNIFORM_BATCH,
            kv_cache_dtypes=_FP8,
            block_sizes_tokens=(64,),
            capabilities=HOPPER,
            dcp=True,
        ),
        f"{BACKENDS}/mla/flashmla.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        replace(
            _LATENT_BASE,
            name="TRITON_MLA",
            support=UNIFORM_BATCH,
            kv_cache_dtypes=_FP8,
            head_sizes=(),
            non_causal=True,
            dcp=True,
            updates_in_place=True,
        ),
        f"{BACKENDS}/mla/triton_mla.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        # Its file imports FlashInfer only when it runs, so the engine chooses it without FlashInfer too.
        replace(
            _LATENT_BASE,
            name="FLASHINFER_MLA_SPARSE",
            support=UNIFORM_BATCH,
            is_sparse=True,
            kv_cache_dtypes=_FP8,
            head_sizes=(512, 576),
            block_sizes_tokens=(32,),
            capabilities=BLACKWELL,
            dcp=True,
            replays_varlen=True,
        ),
        f"{BACKENDS}/mla/flashinfer_mla_sparse.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        replace(
            _LATENT_BASE,
            name="FLASHINFER_MLA_SPARSE_SM120",
            support=UNIFORM_BATCH,
            is_sparse=True,
            dtypes=("bfloat16",),
            kv_cache_dtypes=("auto", "fp8", "fp8_e4m3", "fp8_ds_mla"),
            head_sizes=(512, 576),
            block_sizes_tokens=(64,),
            capabilities=CONSUMER_BLACKWELL,
            package="flashinfer",
        ),
        f"{BACKENDS}/mla/flashinfer_mla_sparse.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        replace(
            _LATENT_BASE,
            name="FLASHINFER_MLA_SPARSE_SM90",
            support=UNIFORM_BATCH,
            is_sparse=True,
            dtypes=("bfloat16",),
            kv_cache_dtypes=("auto", "bfloat16", "fp8", "fp8_e4m3"),
            head_sizes=(512, 576),
            block_sizes_tokens=(64,),
            capabilities=HOPPER,
            package="flashinfer",
        ),
        f"{BACKENDS}/mla/flashinfer_mla_sparse.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        replace(
            _LATENT_BASE,
            name="FLASHMLA_SPARSE",
            support=UNIFORM_BATCH,
            is_sparse=True,
            dtypes=("bfloat16",),
            kv_cache_dtypes=("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"),
            head_sizes=(576, 512),
            block_sizes_tokens=(64,),
            capabilities=HOPPER_OR_BLACKWELL,
            dcp=True,
        ),
        f"{BACKENDS}/mla/flashmla_sparse.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        replace(
            _LATENT_BASE,
            name="FLASH_ATTN_MLA_SPARSE",
            support=UNIFORM_BATCH,
            is_sparse=True,
            head_sizes=(),
            block_sizes_tokens=(64,),
            capabilities=HOPPER,
            updates_in_place=True,
        ),
        f"{BACKENDS}/mla/flashattn_mla_sparse.py",
        _support_quote(UNIFORM_BATCH),
    ),
)

_SPARSE_FA4 = replace(
    _LATENT_BASE,
    name="FLASH_ATTN_MLA_SPARSE_FA4",
    support=UNIFORM_BATCH,
    is_sparse=True,
    dtypes=("bfloat16",),
    kv_cache_dtypes=("auto", "bfloat16"),
    head_sizes=(576,),
    block_sizes_tokens=(64,),
    capabilities=BLACKWELL,
    dcp=True,
    replays_varlen=True,
    updates_in_place=True,
    package="flashinfer",
)

_B12X = BackendFacts(
    name="B12X",
    support=UNIFORM_BATCH,
    dtypes=("bfloat16",),
    kv_cache_dtypes=("auto", "bfloat16", "fp8", "fp8_e4m3"),
    head_sizes=(64, 128, 192, 256),
    block_sizes_tokens=(64, 128),
    exact_block_sizes=True,
    capabilities=((12, 0), (12, 1)),
    sinks=True,
    sliding_window=True,
    package="b12x",
)


def sourced_rows(version: str, rows: Iterable[tuple[BackendFacts, str, str]]) -> dict[str, Sourced[BackendFacts]]:
    return {facts.name: Sourced(facts, "backend", "vllm", version, path, quote) for facts, path, quote in rows}


_MAMBA_ATTN = f"{BACKENDS}/mamba_attn.py"


def state_rows(version: str) -> Mapping[str, Sourced[BackendFacts]]:
    trims = version != "0.32.0"
    mamba2 = replace(
        _STATE_BASE, name="MAMBA2_ATTN", support=UNIFORM_BATCH, trims_on_device=trims, replays_varlen=trims
    )
    rows = (
        (
            replace(_STATE_BASE, name="MAMBA1_ATTN", support=UNIFORM_BATCH),
            _MAMBA_ATTN,
            _support_quote(UNIFORM_BATCH),
        ),
        (mamba2, _MAMBA_ATTN, _support_quote(UNIFORM_BATCH)),
        (
            replace(_STATE_BASE, name="SHORT_CONV_ATTN", support=UNIFORM_BATCH),
            _MAMBA_ATTN,
            _support_quote(UNIFORM_BATCH),
        ),
        (
            replace(_STATE_BASE, name="GDN_ATTN", support=UNIFORM_BATCH),
            f"{BACKENDS}/gdn_attn.py",
            "_cudagraph_support = AttentionCGSupport.UNIFORM_BATCH",
        ),
        (
            replace(_STATE_BASE, name="LINEAR_ATTN", support=SINGLE_TOKEN),
            f"{BACKENDS}/linear_attn.py",
            "_cudagraph_support = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE",
        ),
        (
            replace(_STATE_BASE, name="BAILING_LINEAR_ATTN", support=UNIFORM_BATCH),
            f"{BACKENDS}/linear_attn.py",
            "class BailingLinearAttentionMetadataBuilder(LinearAttentionMetadataBuilder):",
        ),
        (
            replace(_STATE_BASE, name="KIMI_K3_KDA", support=ALWAYS, trims_on_device=True),
            "vllm/models/kimi_k3/nvidia/kda_metadata.py",
            "_cudagraph_support = AttentionCGSupport.ALWAYS",
        ),
    )
    return MappingProxyType(sourced_rows(version, rows))


_V4 = ("DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration", "DeepSeekV4MTPModel")
_V41 = ("DeepseekV41ForCausalLM",)
_M3 = ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration")
_Q4 = ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration", "Qwen4ExpMTP")
_DOTS = ("Dots3NoteForCausalLM", "Dots3NoteMTPModel")
_STEP5 = ("Step5ForCausalLM", "Step5ForConditionalGeneration")

OWN_ROWS: tuple[tuple[tuple[str, ...], BackendFacts, str, str], ...] = (
    (
        _V4,
        replace(_LATENT_BASE, name="FLASHMLA_SPARSE_DSV4", support=ALWAYS, is_sparse=True, block_sizes_tokens=(256,)),
        "vllm/models/deepseek_v4/sparse_mla.py",
        _support_quote(ALWAYS),
    ),
    (
        _V41,
        replace(_LATENT_BASE, name="FLASHMLA_SPARSE_DSV41", support=ALWAYS, is_sparse=True),
        "vllm/models/deepseek_v41/sparse_mla.py",
        _support_quote(ALWAYS),
    ),
    (
        _M3,
        BackendFacts(name="MINIMAX_M3_SPARSE", support=UNIFORM_BATCH, is_sparse=True, block_sizes_tokens=(128,)),
        "vllm/models/minimax_m3/common/sparse_attention.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        _Q4,
        BackendFacts(name="QWEN4_EXP_QSA", support=UNIFORM_BATCH),
        "vllm/models/qwen4_exp/nvidia/qsa.py",
        _support_quote(UNIFORM_BATCH),
    ),
    (
        _DOTS,
        BackendFacts(name="DOTS3_NOTE", support=UNIFORM_BATCH),
        "vllm/models/dots3_note/nvidia/attention.py",
        _support_quote(UNIFORM_BATCH),
    ),
)
STEP5_ROW = (
    _STEP5,
    BackendFacts(name="STEP5_DSA", support=UNIFORM_BATCH, needs_drafts_for_batches=True),
    "vllm/models/step5/nvidia/sparse_attention.py",
    "_cudagraph_support = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE",
)


def own_rows(
    version: str, rows: Iterable[tuple[tuple[str, ...], BackendFacts, str, str]]
) -> Mapping[str, Sourced[BackendFacts]]:
    return MappingProxyType(
        {
            name: Sourced(facts, "backend", "vllm", version, path, quote)
            for names, facts, path, quote in rows
            for name in names
        }
    )


SPARSE_FA4_ROW = (
    _SPARSE_FA4,
    f"{BACKENDS}/mla/flashattn_mla_sparse.py",
    "class FlashAttnMLASparseFA4Backend(FlashInferMLASparseTRTLLMBackend):",
)
B12X_ROW = (_B12X, f"{BACKENDS}/b12x.py", _support_quote(UNIFORM_BATCH))

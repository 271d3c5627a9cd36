"""The attention tables of each engine version: its backends, its orders of preference, its special cases.

The rows themselves are in ``facts/attention_backends.py``; rules that need more than a table are in
``resolve/attention.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from servespec.compiler.facts.attention_backends import (
    B12X_ROW,
    BACKENDS,
    DENSE_ROWS,
    FLASH_ATTN_FILE,
    FLASHINFER_FILE,
    LATENT_ROWS,
    OWN_ROWS,
    SPARSE_FA4_ROW,
    STEP5_ROW,
    BackendFacts,
    own_rows,
    sourced_rows,
    state_rows,
)
from servespec.provenance import Sourced

_REGISTRY_FILE = "vllm/v1/attention/backends/registry.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFacts:
    """The tables of one engine version.

    ``full_graph_flash_attention`` are the FlashAttention versions that capture any batch.
    ``flashinfer_native_decode_takes_drafts``: below capability 9.0 FlashInfer decodes uniform draft batches.
    ``model_backends`` are those that an architecture's own layers choose.  ``indexer_native_lengths`` are the
    query lengths that the index layers of sparse attention take whole on capability 9.x.
    ``low_head_count`` is the largest number of query heads a rank for which sparse MLA on capability 10.x
    prefers FlashInfer to FlashMLA.
    """

    backends: Mapping[str, Sourced[BackendFacts]]
    names: Sourced[frozenset[str]]
    full_graph_flash_attention: Sourced[tuple[int, ...]]
    flashinfer_native_decode_takes_drafts: Sourced[bool]
    low_head_count: Sourced[int]
    sparse_fa4_first: Sourced[bool]
    state_backends: Mapping[str, Sourced[BackendFacts]]
    model_backends: Mapping[str, Sourced[BackendFacts]]
    indexer_native_lengths: Sourced[tuple[int, ...]]


def _native_lengths(version: str) -> Sourced[tuple[int, ...]]:
    return Sourced((1, 2, 4), "tokens a request", "vllm", version, _DEEP_GEMM_FILE, "return next_n in (1, 2, 4)")


_DEEP_GEMM_FILE = "vllm/utils/deep_gemm.py"

_NAMES_0_32 = frozenset(
    {
        "AMX_MLA",
        "B12X",
        "CPU_ATTN",
        "CPU_MLA",
        "CUSTOM",
        "CUTLASS_MLA",
        "CUTLASS_MSA",
        "FLASHINFER",
        "FLASHINFER_MLA",
        "FLASHINFER_MLA_SPARSE",
        "FLASHINFER_MLA_SPARSE_DSV4",
        "FLASHINFER_MLA_SPARSE_DSV41",
        "FLASHINFER_MLA_SPARSE_SM120",
        "FLASHINFER_MLA_SPARSE_SM90",
        "FLASHMLA",
        "FLASHMLA_MEGA_ATTN_DSV41",
        "FLASHMLA_SPARSE",
        "FLASHMLA_SPARSE_DSV4",
        "FLASHMLA_SPARSE_DSV41",
        "FLASH_ATTN",
        "FLASH_ATTN_DIFFKV",
        "FLASH_ATTN_MLA",
        "FLASH_ATTN_MLA_SPARSE",
        "FLEX_ATTENTION",
        "HPC_ATTN",
        "MINIMAX_M3_SPARSE",
        "NO_ATTENTION",
        "ROCM_AITER_FA",
        "ROCM_AITER_MLA",
        "ROCM_AITER_MLA_SPARSE",
        "ROCM_AITER_TRITON_MLA",
        "ROCM_AITER_UNIFIED_ATTN",
        "ROCM_ATTN",
        "ROCM_FLASHMLA_SPARSE_DSV4",
        "ROCM_SEGMENTED_ATTN",
        "TOKENSPEED_MLA",
        "TORCH_SDPA",
        "TRITON_ATTN",
        "TRITON_ATTN_DIFFKV",
        "TRITON_FLASHINFER",
        "TRITON_FLASH_ATTN",
        "TRITON_MLA",
        "TRITON_MSA",
        "TURBOQUANT",
        "ULTRAQUANT",
        "XPU_MLA_SPARSE",
    }
)
_NAMES_SINCE_0_33 = frozenset(
    {
        "FLASH_ATTN_MLA_SPARSE_FA4",
        "ROCM_FLASHMLA_SPARSE_DSV41",
        "ROCM_OCTAVE",
        "STEP5_DSA",
    }
)


def _names(version: str, names: frozenset[str]) -> Sourced[frozenset[str]]:
    return Sourced(
        names, "backend names", "vllm", version, _REGISTRY_FILE, "class AttentionBackendEnum(Enum, metaclass="
    )


_IN_PLACE_QUOTE = """
    self.supports_draft_decode_metadata_update = (
        self.dcp_world_size == 1
        and self.pcp_world_size == 1"""
_LOW_HEADS_QUOTE = "if num_heads is not None and num_heads <= 16:"
_PRIORITIES_FILE = "vllm/platforms/cuda.py"


def _with_in_place_sparse(version: str) -> dict[str, Sourced[BackendFacts]]:
    rows = sourced_rows(version, (*DENSE_ROWS, *LATENT_ROWS, SPARSE_FA4_ROW, B12X_ROW))
    sparse = rows["FLASHINFER_MLA_SPARSE"]
    facts = replace(sparse.value, updates_in_place=True)
    return rows | {facts.name: replace(sparse, value=facts, quote=_IN_PLACE_QUOTE)}


def _facts_0_33() -> AttentionFacts:
    version = "0.33.0"
    return AttentionFacts(
        backends=MappingProxyType(_with_in_place_sparse(version)),
        names=_names(version, _NAMES_0_32 | _NAMES_SINCE_0_33),
        full_graph_flash_attention=Sourced(
            (3, 4),
            "FlashAttention versions",
            "vllm",
            version,
            FLASH_ATTN_FILE,
            "AttentionCGSupport.ALWAYS if get_flash_attn_version() in (3, 4)",
        ),
        flashinfer_native_decode_takes_drafts=Sourced(
            True,
            "flag",
            "vllm",
            version,
            FLASHINFER_FILE,
            "if kv_specs and not vllm_config.attention_config.use_non_causal: return AttentionCGSupport.UNIFORM_BATCH",
        ),
        low_head_count=Sourced(16, "query heads", "vllm", version, _PRIORITIES_FILE, _LOW_HEADS_QUOTE),
        sparse_fa4_first=Sourced(
            True,
            "flag",
            "vllm",
            version,
            _PRIORITIES_FILE,
            "AttentionBackendEnum.FLASH_ATTN_MLA_SPARSE_FA4, AttentionBackendEnum.FLASHINFER_MLA_SPARSE,",
        ),
        state_backends=state_rows(version),
        model_backends=own_rows(version, (*OWN_ROWS, STEP5_ROW)),
        indexer_native_lengths=_native_lengths(version),
    )


def _facts_0_32() -> AttentionFacts:
    version = "0.32.0"
    return AttentionFacts(
        backends=MappingProxyType(sourced_rows(version, (*DENSE_ROWS, *LATENT_ROWS, B12X_ROW))),
        names=_names(version, _NAMES_0_32),
        full_graph_flash_attention=Sourced(
            (3,),
            "FlashAttention versions",
            "vllm",
            version,
            FLASH_ATTN_FILE,
            "AttentionCGSupport.ALWAYS if get_flash_attn_version() == 3",
        ),
        flashinfer_native_decode_takes_drafts=Sourced(
            False,
            "flag",
            "vllm",
            version,
            FLASHINFER_FILE,
            "return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE",
        ),
        low_head_count=Sourced(16, "query heads", "vllm", version, _PRIORITIES_FILE, _LOW_HEADS_QUOTE),
        sparse_fa4_first=Sourced(
            False,
            "flag",
            "vllm",
            version,
            _PRIORITIES_FILE,
            "sparse_backends = [ AttentionBackendEnum.FLASHINFER_MLA_SPARSE, AttentionBackendEnum.FLASHMLA_SPARSE,",
        ),
        state_backends=state_rows(version),
        model_backends=own_rows(version, OWN_ROWS),
        indexer_native_lengths=_native_lengths(version),
    )


ATTENTION_FACTS: Mapping[str, AttentionFacts] = MappingProxyType({"0.33.0": _facts_0_33(), "0.32.0": _facts_0_32()})

WIDE_HEAD_PAGE_TOKENS = Sourced(
    128,
    "tokens",
    "vllm",
    "0.33.0",
    f"{BACKENDS}/fa_utils.py",
    "FA4_HD256_PAGE_SIZE = 128",
    "FlashAttention 4, head 256",
)
FP8_PAGE_TOKENS = Sourced(
    64,
    "tokens",
    "vllm",
    "0.33.0",
    FLASH_ATTN_FILE,
    "# The SM90 FP8-KV-dequant kernel uses a 64-token TMA tile/page. return 64",
    "FlashAttention 4 on capability 9.0, head 512",
)

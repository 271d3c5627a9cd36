"""The question that attention is resolved for: a model's needs, a device and what is installed on it."""

from dataclasses import dataclass, replace

from servespec.compiler.facts.attention import (
    ATTENTION_FACTS,
    FP8_PAGE_TOKENS,
    WIDE_HEAD_PAGE_TOKENS,
    AttentionFacts,
)
from servespec.compiler.facts.devices import Device, is_sm100

_SMALLEST_PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionNeeds:
    """What a model's attention layers ask for.

    ``head_size`` is a head's width in the KV cache (MLA: latent plus rotary part).  Head counts are of one
    rank.  ``block_size_tokens`` is the user's, None if not set.  ``state_backends`` are the backends of
    recurrent layers.  ``query_len_tokens_per_request`` is 1 + K.
    """

    head_size: int
    architectures: tuple[str, ...] = ()
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    block_size_tokens: int | None = None
    use_mla: bool = False
    use_sparse: bool = False
    has_sink: bool = False
    is_mm_prefix: bool = False
    has_sliding_window: bool = False
    has_logits_softcap: bool = False
    attention_type: str = "decoder"
    is_non_causal: bool = False
    enable_adaptive_verification: bool = False
    query_len_tokens_per_request: int = 1
    num_heads_per_rank: int | None = None
    num_kv_heads_per_rank: int | None = None
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    has_hisparse: bool = False
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    kv_lora_rank: int | None = None
    index_topk: int | None = None
    state_backends: tuple[str, ...] = ()
    flash_attn_version: int | None = None
    use_trtllm_attention: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledKernels:
    """What is usable on the machine; None: not known yet.

    ``trtllm``: FlashInfer can get its TensorRT-LLM and XQA kernels (its kernel package is installed, or the
    network reaches NVIDIA's).  The engine's own wheel holds FlashAttention 2 and 3; 4 needs CuTe DSL.
    """

    flashinfer: bool | None = None
    trtllm: bool | None = None
    tokenspeed_mla: bool | None = None
    b12x: bool | None = None
    hpc_ops: bool | None = None
    flash_attn_4: bool = True
    deep_gemm: bool = True

    def has(self, package: str | None) -> bool | None:
        """Whether the package of a backend is usable; None as a package: nothing is needed."""
        answers = {
            None: True,
            "flashinfer": self.flashinfer,
            "tokenspeed_mla": self.tokenspeed_mla,
            "b12x": self.b12x,
            "hpc_ops": self.hpc_ops,
        }
        return answers[package]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionQuestion:
    """Everything an answer depends on; ``version`` is the engine's."""

    device: Device
    needs: AttentionNeeds
    version: str
    kernels: InstalledKernels = InstalledKernels()

    @property
    def facts(self) -> AttentionFacts:
        return ATTENTION_FACTS[self.version]


def is_quantized(kv_cache_dtype: str) -> bool:
    """Source: vllm/v1/kv_cache_interface.py, is_quantized_kv_cache."""
    return kv_cache_dtype not in ("auto", "float16", "bfloat16")


def is_xqa(device: Device) -> bool:
    """Devices on which FlashInfer's fast decode is XQA and not TensorRT-LLM's generated kernels."""
    return device.compute_capability == (9, 0) or device.compute_capability[0] == 12


def uses_trtllm(q: AttentionQuestion) -> bool | None:
    """Whether FlashInfer decodes with TensorRT-LLM or XQA kernels; None: not known before launch.

    Source: vllm/utils/flashinfer.py, can_use_trtllm_attention.
    """
    heads, kv_heads = q.needs.num_heads_per_rank, q.needs.num_kv_heads_per_rank
    uneven = heads is not None and kv_heads is not None and heads % kv_heads != 0
    has_kernels = is_sm100(q.device) or is_xqa(q.device)
    if q.needs.use_trtllm_attention is False or uneven or not has_kernels:
        return False
    return q.kernels.trtllm


def flash_attention_version(q: AttentionQuestion, *, for_head: bool) -> int:
    """The FlashAttention the engine resolves to; ``for_head`` asks for the model's own head size.

    Source: vllm/v1/attention/backends/fa_utils.py, get_flash_attn_version.
    """
    version = q.needs.flash_attn_version or _default_flash_attention(q)
    if q.device.compute_capability[0] >= 10 and version == 3:
        version = 4 if has_flash_attention_4(q) else 2
    if not for_head:
        return version
    if version == 3 and q.needs.head_size > 256 and has_flash_attention_4(q):
        version = 4
    return 2 if version == 4 and _fa4_cannot(q) else version


def flash_attention_page_tokens(q: AttentionQuestion) -> int:
    """Tokens that FlashAttention's KV blocks must be a multiple of.

    Source: vllm/v1/attention/backends/flash_attn.py, FlashAttentionBackend.get_supported_kernel_block_sizes, which
    asks for the version without the sinks and the block size.
    """
    plain = replace(q, needs=replace(q.needs, has_sink=False, block_size_tokens=None))
    version = flash_attention_version(plain, for_head=True)
    reads_fp8 = q.needs.kv_cache_dtype in ("fp8", "fp8_e4m3")
    if q.device.compute_capability[0] == 9 and reads_fp8 and q.needs.head_size == 512 and version == 4:
        return FP8_PAGE_TOKENS.value
    if q.device.compute_capability[0] in (10, 11) and q.needs.head_size == 256 and version == 4:
        return WIDE_HEAD_PAGE_TOKENS.value
    return _SMALLEST_PAGE_TOKENS


def _default_flash_attention(q: AttentionQuestion) -> int:
    if q.device.compute_capability[0] == 9:
        return 3
    return 4 if is_sm100(q.device) and q.kernels.flash_attn_4 else 2


def has_flash_attention_4(q: AttentionQuestion) -> bool:
    return q.kernels.flash_attn_4 and q.device.compute_capability[0] in (9, 10, 11)


def _fa4_cannot(q: AttentionQuestion) -> bool:
    """Heads that FlashAttention 4 on Blackwell leaves to FlashAttention 2."""
    if q.device.compute_capability[0] < 10:
        return False
    if q.needs.head_size == 256:
        return _fa4_wide_head_falls_back(q.needs)
    return q.needs.head_size > 128


def _fa4_wide_head_falls_back(needs: AttentionNeeds) -> bool:
    block = needs.block_size_tokens
    return (
        needs.has_sink
        or needs.has_logits_softcap
        or is_quantized(needs.kv_cache_dtype)
        or (block is not None and block % WIDE_HEAD_PAGE_TOKENS.value != 0)
        or needs.is_mm_prefix
        or needs.decode_context_parallel_size > 1
    )

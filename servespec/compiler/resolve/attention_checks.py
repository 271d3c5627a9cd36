"""Why the engine would not use an attention backend.

Sources: vllm/v1/attention/backend.py (AttentionBackend.validate_configuration) and each backend's own
supports_combination under vllm/v1/attention/backends.
"""

from collections.abc import Iterator

from servespec.compiler.facts.attention_backends import BackendFacts
from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.resolve.attention_needs import (
    AttentionNeeds,
    AttentionQuestion,
    flash_attention_page_tokens,
    flash_attention_version,
    has_flash_attention_4,
    is_quantized,
    uses_trtllm,
)

_NARROWEST_TRITON_HEAD = 32
_DEEPSEEK_R1_DIMENSIONS = (128, 64, 128)


def invalid_reasons(facts: BackendFacts, q: AttentionQuestion) -> Iterator[str]:
    """What a backend lacks for a question, as short phrases in the order in which the engine names them."""
    yield from _shape_reasons(facts, q.needs)
    yield from _kind_reasons(facts, q.needs)
    if not facts.capabilities[0] <= q.device.compute_capability <= facts.capabilities[1]:
        major, minor = q.device.compute_capability
        yield f"compute capability {major}.{minor}"
    yield from _layout_reasons(facts, q.needs)
    yield from _combination_reasons(facts, q)
    if q.needs.enable_adaptive_verification and not trims_on_device(facts, q):
        yield "adaptive verification"


def trims_on_device(facts: BackendFacts, q: AttentionQuestion) -> bool:
    """Whether it can run a batch whose query lengths only the GPU knows.

    Source: supports_device_cpu_query_lens_mismatch of the backends.
    """
    if facts.name != "FLASHINFER":
        return facts.trims_on_device
    usable = uses_trtllm(q) is not False
    return is_sm100(q.device) and q.needs.decode_context_parallel_size == 1 and usable


def _shape_reasons(facts: BackendFacts, needs: AttentionNeeds) -> Iterator[str]:
    if facts.head_sizes and needs.head_size not in facts.head_sizes:
        yield f"head size {needs.head_size}"
    if needs.dtype not in facts.dtypes:
        yield f"dtype {needs.dtype}"
    if needs.kv_cache_dtype not in facts.kv_cache_dtypes:
        yield f"KV cache dtype {needs.kv_cache_dtype}"
    if not _takes_block_size(facts, needs.block_size_tokens):
        yield f"block size {needs.block_size_tokens}"


def _takes_block_size(facts: BackendFacts, block: int | None) -> bool:
    if block is None or not facts.block_sizes_tokens:
        return True
    if facts.exact_block_sizes:
        return block in facts.block_sizes_tokens
    return any(block % size == 0 for size in facts.block_sizes_tokens)


def _kind_reasons(facts: BackendFacts, needs: AttentionNeeds) -> Iterator[str]:
    checks = (
        (needs.is_mm_prefix and not facts.mm_prefix, "image tokens that see each other"),
        (needs.use_mla and not facts.is_mla, "MLA"),
        (facts.is_mla and not needs.use_mla, "attention that is not MLA"),
        (needs.has_sink and not facts.sinks, "attention sinks"),
        (needs.use_sparse and not facts.is_sparse, "sparse attention"),
        (facts.is_sparse and not needs.use_sparse, "attention that is not sparse"),
        (needs.attention_type not in facts.attention_types, f"attention type {needs.attention_type}"),
        (needs.has_sliding_window and not facts.sliding_window, "sliding windows"),
        (needs.is_non_causal and not facts.non_causal, "attention that is not causal"),
    )
    return (reason for applies, reason in checks if applies)


def _layout_reasons(facts: BackendFacts, needs: AttentionNeeds) -> Iterator[str]:
    if needs.prefill_context_parallel_size > 1 and not facts.pcp:
        yield "prefill context parallelism"
    if needs.decode_context_parallel_size <= 1:
        return
    if not facts.dcp:
        yield "decode context parallelism"
    if facts.is_mla and needs.is_non_causal and not facts.non_causal_dcp:
        yield "attention that is not causal under decode context parallelism"


def _combination_reasons(facts: BackendFacts, q: AttentionQuestion) -> Iterator[str]:
    if facts.name == "FLASH_ATTN":
        yield from _flash_attention_reasons(q)
    elif facts.name == "FLASHINFER":
        yield from _flashinfer_reasons(q)
    elif facts.name == "TRITON_ATTN" and q.needs.head_size < _NARROWEST_TRITON_HEAD:
        yield f"head size {q.needs.head_size}"
    elif facts.is_sparse:
        yield from _sparse_reasons(facts.name, q)
    elif facts.is_mla:
        yield from _latent_reasons(facts.name, q.needs)


def _flash_attention_reasons(q: AttentionQuestion) -> Iterator[str]:
    needs = q.needs
    widest = 512 if has_flash_attention_4(q) else 256
    if needs.head_size % 8 != 0 or needs.head_size > widest:
        yield f"head size {needs.head_size}"
    if needs.block_size_tokens is not None and needs.block_size_tokens % flash_attention_page_tokens(q) != 0:
        yield f"block size {needs.block_size_tokens}"
    resolved = flash_attention_version(q, for_head=True)
    if needs.has_sink and flash_attention_version(q, for_head=False) not in (3, 4):
        yield "attention sinks below FlashAttention 3"
    if is_quantized(needs.kv_cache_dtype) and not _reads_fp8(q, resolved):
        yield f"KV cache dtype {needs.kv_cache_dtype} with FlashAttention {resolved}"
    if needs.is_mm_prefix and resolved != 4:
        yield "image tokens that see each other below FlashAttention 4"


def _reads_fp8(q: AttentionQuestion, version: int) -> bool:
    if q.device.compute_capability[0] == 9:
        whole_head = q.needs.head_size == 512
        return version == 3 or (version == 4 and whole_head and not q.needs.is_mm_prefix)
    return version == 4 and is_sm100(q.device)


def _flashinfer_reasons(q: AttentionQuestion) -> Iterator[str]:
    needs = q.needs
    if needs.has_sink and uses_trtllm(q) is False:
        yield "attention sinks without the TensorRT-LLM kernels"
    if not needs.kv_cache_dtype.startswith("nvfp4"):
        return
    if is_sm100(q.device):
        if q.kernels.trtllm is False:
            yield "an NVFP4 KV cache without the TensorRT-LLM kernels"
    elif needs.kv_cache_dtype != "nvfp4" or needs.head_size == 64 or needs.has_sink:
        yield f"KV cache dtype {needs.kv_cache_dtype}"


def _latent_reasons(name: str, needs: AttentionNeeds) -> Iterator[str]:
    nope = needs.qk_nope_head_dim
    if name == "FLASHINFER_MLA" and nope not in (64, 128, 192, None):
        yield f"qk_nope_head_dim {nope}"
    dimensions = (nope, needs.qk_rope_head_dim, needs.v_head_dim)
    if name == "TOKENSPEED_MLA" and dimensions != _DEEPSEEK_R1_DIMENSIONS:
        yield "MLA dimensions other than DeepSeek R1's"


def _sparse_reasons(name: str, q: AttentionQuestion) -> Iterator[str]:
    needs = q.needs
    if name in ("FLASHINFER_MLA_SPARSE", "FLASH_ATTN_MLA_SPARSE_FA4"):
        yield from _blackwell_sparse_reasons(needs)
    if name == "FLASH_ATTN_MLA_SPARSE_FA4":
        yield from _sparse_fa4_reasons(q)
    elif name == "FLASHINFER_MLA_SPARSE_SM120" and needs.index_topk != 2048:
        yield f"index_topk {needs.index_topk}"
    elif name == "FLASHINFER_MLA_SPARSE_SM90":
        yield from _hopper_sparse_reasons(needs)
    elif name == "FLASH_ATTN_MLA_SPARSE" and needs.index_topk is None:
        yield "a model without index_topk"
    elif name == "FLASHMLA_SPARSE":
        yield from _flashmla_sparse_reasons(q)


def _hopper_sparse_reasons(needs: AttentionNeeds) -> Iterator[str]:
    if needs.kv_lora_rank != 512 or needs.qk_rope_head_dim not in (0, 64):
        yield f"kv_lora_rank {needs.kv_lora_rank} with qk_rope_head_dim {needs.qk_rope_head_dim}"


def _blackwell_sparse_reasons(needs: AttentionNeeds) -> Iterator[str]:
    if needs.prefill_context_parallel_size > 1 and needs.decode_context_parallel_size > 1:
        yield "prefill and decode context parallelism together"
    if needs.qk_rope_head_dim == 0:
        if (needs.qk_nope_head_dim, needs.kv_lora_rank) != (256, 512):
            yield f"qk_nope_head_dim {needs.qk_nope_head_dim} without a rotary part"
    elif needs.qk_nope_head_dim not in (128, 192):
        yield f"qk_nope_head_dim {needs.qk_nope_head_dim}"
    if needs.index_topk is None:
        yield "a model without index_topk"


def _sparse_fa4_reasons(q: AttentionQuestion) -> Iterator[str]:
    needs = q.needs
    if not q.kernels.flash_attn_4:
        yield "FlashAttention 4 missing"
    if needs.index_topk is not None and needs.index_topk % 128 != 0:
        yield f"index_topk {needs.index_topk}"
    if (needs.kv_lora_rank, needs.qk_rope_head_dim) != (512, 64):
        yield f"kv_lora_rank {needs.kv_lora_rank} with qk_rope_head_dim {needs.qk_rope_head_dim}"
    parallel = needs.decode_context_parallel_size
    counts = (8, 16, 32, 64) if parallel > 1 else (8, 16, 32, 64, 128)
    if (needs.num_heads_per_rank or 0) * parallel not in counts:
        yield f"{needs.num_heads_per_rank} query heads a rank"


def _flashmla_sparse_reasons(q: AttentionQuestion) -> Iterator[str]:
    needs = q.needs
    plain = needs.kv_cache_dtype in ("auto", "bfloat16", "float16", "fp8_ds_mla")
    serves_512 = q.device.compute_capability[0] == 9 and plain and needs.qk_rope_head_dim == 0
    if needs.head_size == 512 and not serves_512:
        yield "head size 512 with these settings"
    if needs.kv_cache_dtype == "nvfp4_ds_mla" and not is_sm100(q.device):
        yield f"KV cache dtype {needs.kv_cache_dtype}"

"""Names that people give a field where they do not know its own: short forms, and what it is called elsewhere."""

from collections.abc import Mapping

_DRAFTS = ("speculative.num_speculative_tokens",)
_REQUESTS = ("scheduler.max_num_seqs",)
_TOKENS = ("scheduler.max_num_batched_tokens",)
_CONTEXT = ("model.max_model_len",)
_MODEL = ("model.id", "model.served_model_name")
_GPU = ("hardware.gpu",)
_COUNT = ("hardware.count",)
_MEMORY = ("memory.gpu_memory_utilization",)
_METHOD = ("speculative.method",)
_DRAFTER = ("speculative.model",)

CALLED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("tp", "tp_size"), ("parallel.tensor_parallel_size",)),
    **dict.fromkeys(("pp", "pp_size"), ("parallel.pipeline_parallel_size",)),
    **dict.fromkeys(("dp", "dp_size"), ("parallel.data_parallel_size",)),
    **dict.fromkeys(("ep", "expert_parallel"), ("parallel.enable_expert_parallel",)),
    **dict.fromkeys(("gpus", "num_gpus", "n_gpus", "gpu_count"), _COUNT),
    **dict.fromkeys(("k", "num_drafts", "draft_tokens", "num_draft_tokens"), _DRAFTS),
    **dict.fromkeys(("draft", "drafter", "draft_model"), _DRAFTER),
    **dict.fromkeys(("batch_size", "max_batch_size", "max_requests", "max_concurrency"), _REQUESTS),
    **dict.fromkeys(("max_tokens", "max_num_tokens"), _TOKENS),
    **dict.fromkeys(("max_len", "max_seq_len", "max_context_len", "context_length", "ctx_len"), _CONTEXT),
    **dict.fromkeys(("model_id", "model_name", "model_path", "model_name_or_path", "repo", "repo_id"), _MODEL),
    **dict.fromkeys(("utilization", "gpu_util", "gpu_memory", "mem_fraction"), _MEMORY),
    "kv_dtype": ("memory.kv_cache_dtype",),
    "quant": ("model.quantization",),
    "max_decode_requests": ("compilation.max_decode_cudagraph_capture_requests",),
    "max_prefill_tokens": ("compilation.max_prefill_cudagraph_capture_tokens",),
    "decode_sizes": ("compilation.decode_cudagraph_capture_request_sizes",),
    "prefill_sizes": ("compilation.prefill_cudagraph_capture_token_sizes",),
}
"""The fields that a key may stand for anywhere, by preference; no key here is a field."""

CALLED_THERE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("model.name", "model.path", "model.model"), _MODEL),
    **dict.fromkeys(("hardware.name", "hardware.type", "hardware.device"), _GPU),
    **dict.fromkeys(("speculative.type", "speculative.algorithm"), _METHOD),
    **dict.fromkeys(("speculative.tokens", "speculative.num_tokens"), _DRAFTS),
}
"""The same of keys that mean something else in another section."""


def meant_fields(section: str, key: str) -> tuple[str, ...]:
    """Dotted fields that ``key`` in ``section`` may stand for; capitals and dashes say nothing."""
    plain = key.casefold().replace("-", "_")
    return CALLED_THERE.get(f"{section}.{plain}") or CALLED.get(plain, ())

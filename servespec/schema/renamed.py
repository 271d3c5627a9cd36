"""Names that people bring along: fields that the engine renamed or removed, and other engines' names.

Sources are the releases named; the table is written by hand because a wheel holds no memory of its past.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replacement:
    """``what`` completes 'the key is ...'; ``help`` says what to write."""

    what: str
    help: str


_GONE = "a removed vLLM field"
_OLD = "a renamed vLLM field"
_FOREIGN = "another engine's field"

_DECODE_COUNTS = "`compilation.decode_cudagraph_capture_request_sizes`, in requests"

RENAMED: Mapping[str, Replacement] = {
    "cuda_graph_sizes": Replacement(
        _OLD, "write `compilation.cudagraph_capture_sizes` (legacy, in tokens), or the five new fields"
    ),
    "full_cuda_graph": Replacement(_GONE, "write `compilation.cudagraph_mode: FULL_DECODE_ONLY`"),
    "use_cudagraph": Replacement(_GONE, "write `compilation.cudagraph_mode`"),
    "use_inductor": Replacement(_GONE, "write `compilation.backend`"),
    "compilation_config": Replacement("the engine's name of a section", "write its fields under `compilation:`"),
    "speculative_config": Replacement("the engine's name of a section", "write its fields under `speculative:`"),
    "attention_config": Replacement("the engine's name of a section", "write its fields under `attention:`"),
    "parallel_config": Replacement("the engine's name of a section", "write its fields under `parallel:`"),
    "scheduler_config": Replacement("the engine's name of a section", "write its fields under `scheduler:`"),
    "cache_config": Replacement("the engine's name of a section", "write its fields under `memory:`"),
    "kernel_config": Replacement("the engine's name of a section", "write its fields under `kernel:`"),
    "lora_config": Replacement("the engine's name of a section", "write its fields under `lora:`"),
    "kv_transfer_config": Replacement("the engine's name of a section", "write its fields under `kv_transfer:`"),
    "max_seq_len_to_capture": Replacement(_GONE, "write `compilation.max_prefill_cudagraph_capture_tokens`"),
    "max_capture_size": Replacement(_OLD, "write `compilation.max_prefill_cudagraph_capture_tokens`, in tokens"),
    "speculative_model": Replacement(_OLD, "write `speculative.model`"),
    "speculative_draft_tensor_parallel_size": Replacement(_OLD, "write `speculative.draft_tensor_parallel_size`"),
    "ngram_prompt_lookup_max": Replacement(_OLD, "write `speculative.prompt_lookup_max`"),
    "ngram_prompt_lookup_min": Replacement(_OLD, "write `speculative.prompt_lookup_min`"),
    "num_lookahead_slots": Replacement(_GONE, "write `speculative.num_speculative_tokens`"),
    "num_scheduler_steps": Replacement(_GONE, "delete it: the engine schedules asynchronously by itself"),
    "use_fp4_indexer_cache": Replacement(_OLD, "write `attention.indexer_kv_dtype: mxfp4`; `false` is the default"),
    "swap_space": Replacement(_GONE, "delete it: the engine recomputes preempted requests"),
    "use_v2_block_manager": Replacement(_GONE, "delete it"),
    "task": Replacement(_GONE, "write `model.runner`, and `model.convert` for a pooling model"),
    "rope_scaling": Replacement(_GONE, "write it as `rope_parameters` under `model.hf_overrides`"),
    "rope_theta": Replacement(_GONE, "write it in `rope_parameters` under `model.hf_overrides`"),
    "enable_reasoning": Replacement(_GONE, "delete it: `--reasoning-parser` alone is enough"),
    "disable_async_output_proc": Replacement(_GONE, "delete it: the engine schedules asynchronously by itself"),
    "preemption_mode": Replacement(_GONE, "delete it: the engine recomputes preempted requests"),
    "guided_decoding_backend": Replacement(_OLD, "write `structured-outputs-config` under `engine.args`"),
    "disable_log_requests": Replacement(_GONE, "delete it: requests are not logged unless asked for"),
    "cuda_graph_max_bs": Replacement(_FOREIGN, "write `compilation.max_decode_cudagraph_capture_requests`"),
    "cuda_graph_bs": Replacement(_FOREIGN, f"write {_DECODE_COUNTS}"),
    "cuda_graph_config": Replacement(_FOREIGN, f"write {_DECODE_COUNTS}"),
    "mem_fraction_static": Replacement(_FOREIGN, "write `memory.gpu_memory_utilization`"),
    "max_running_requests": Replacement(_FOREIGN, "write `scheduler.max_num_seqs`"),
    "chunked_prefill_size": Replacement(_FOREIGN, "write `scheduler.max_num_batched_tokens`"),
    "speculative_num_steps": Replacement(_FOREIGN, "write `speculative.num_speculative_tokens`"),
    "speculative_num_draft_tokens": Replacement(
        _FOREIGN, "write `speculative.num_speculative_tokens`, which does not count the bonus token"
    ),
    "speculative_algorithm": Replacement(_FOREIGN, "write `speculative.method`"),
    "max_draft_len": Replacement(_FOREIGN, "write `speculative.num_speculative_tokens`"),
    "draft_len_schedule": Replacement(_FOREIGN, "write `speculative.dynamic`"),
}


def renamed_field(key: str) -> Replacement | None:
    """What became of ``key``; dashes and underscores are the same."""
    return RENAMED.get(key.removeprefix("--").replace("-", "_"))


REMOVED_VARIABLES: Mapping[str, str] = {
    "VLLM_ALL2ALL_BACKEND": "parallel.all2all_backend",
    "VLLM_ATTENTION_BACKEND": "attention.backend",
    "VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION": "attention.disable_flashinfer_q_quantization",
    "VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH": "attention.flash_attn_max_num_splits_for_cuda_graph",
    "VLLM_FLASH_ATTN_VERSION": "attention.flash_attn_version",
    "VLLM_USE_TRTLLM_ATTENTION": "attention.use_trtllm_attention",
}
"""Variables that the engine read once and the field that stands for each now."""

_ENGINE_PREFIX = "VLLM_"


def unread_variable_help(name: str, value: object, near: tuple[str, ...]) -> str:
    """What to write in place of a variable that the engine does not read; ``near`` are those that it does.

    Setting one of the engine's prefix in the shell would do as little as in a spec.
    """
    field = REMOVED_VARIABLES.get(name)
    if field is not None:
        return f"write `{field}: {value}`"
    if near:
        return f"did you mean `{near[0]}`?"
    return "delete it" if name.startswith(_ENGINE_PREFIX) else "set it in the shell that starts the server"

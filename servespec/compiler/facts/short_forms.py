"""Which flags take numbers in short forms, such as `8k`."""

from servespec.provenance import Sourced

SHORT_FORM_FLAGS = Sourced(
    value=(
        "max_num_batched_tokens",
        "max_num_scheduled_tokens",
        "kv_cache_memory_bytes",
        "safetensors_prefetch_block_size",
        "max_num_queued_tokens",
    ),
    unit="names of flags",
    package="vllm",
    version="0.33.0",
    path="vllm/engine/arg_utils.py",
    quote="""human_readable_int_args = {
                "max_num_batched_tokens",
                "max_num_scheduled_tokens",
                "kv_cache_memory_bytes",
                "safetensors_prefetch_block_size",
                "max_num_queued_tokens",
            }""",
    note="other flags of whole numbers take digits alone",
)

AUTO_FLAG = Sourced(
    value="max_model_len",
    unit="name of a flag",
    package="vllm",
    version="0.33.0",
    path="vllm/engine/arg_utils.py",
    quote="""if name == "max_model_len":
                kwargs[name]["type"] = human_readable_int_or_auto""",
    note="takes short forms too, and `auto` for -1",
)

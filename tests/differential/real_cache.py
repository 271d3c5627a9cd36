"""The engine's own groups and blocks of a KV cache.

A program of its own::

    PYTHONPATH=ROOT python real_cache.py < cases.json > answers.json

A case is ``{"layers": [[bytes of a token, window or null], ...], "block", "length", "in_flight", "keeps_windows"}``;
an answer ``{"groups", "block_bytes", "request_blocks"}``.  The engine gets layers as its own specs, and a
configuration with what these functions read of it.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

_ELEMENT_BYTES = 2


class _Layout:
    """The engine's default: layers outside of blocks."""

    is_block_outermost = False


def main() -> None:
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    json.dump([_answer(case) for case in json.load(sys.stdin)], stdout)


def _answer(case: dict[str, Any]) -> dict[str, int]:
    try:
        from vllm.v1.core.kv_cache_planning import get_kv_cache_groups
    except ImportError:  # before 0.33
        from vllm.v1.core.kv_cache_utils import get_kv_cache_groups

    config = _config(case)
    specs = {f"layer.{index}": _spec(layer, case["block"]) for index, layer in enumerate(case["layers"])}
    groups = get_kv_cache_groups(config, specs)
    blocks = [-(-g.kv_cache_spec.max_memory_usage_bytes(config) // g.kv_cache_spec.page_size_bytes) for g in groups]
    return {
        "groups": len(groups),
        "block_bytes": max(_block_bytes(group) for group in groups),
        "request_blocks": sum(blocks),
    }


def _config(case: dict[str, Any]) -> Any:
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=not case["keeps_windows"]),
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=SimpleNamespace(get_resolved_kv_cache_layout=_Layout, num_gpu_blocks_override=None),
        model_config=SimpleNamespace(max_model_len=case["length"]),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        speculative_config=None,
        max_in_flight_tokens=case["in_flight"],
    )


def _spec(layer: list[Any], block_tokens: int) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    token_bytes, window = layer
    sizes = {
        "block_size": block_tokens,
        "num_kv_heads": 1,
        "head_size": token_bytes // (2 * _ELEMENT_BYTES),
        "dtype": torch.bfloat16,
    }
    return FullAttentionSpec(**sizes) if window is None else SlidingWindowSpec(**sizes, sliding_window=window)


def _block_bytes(group: Any) -> int:
    spec = group.kv_cache_spec
    each: int = spec.page_size_bytes
    return each if hasattr(spec, "kv_cache_specs") else each * len(group.layer_names)


if __name__ == "__main__":
    main()

"""Compressed contexts, indexes and recurrent states, by hand."""

from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.kv_cache import KvCache, LayerKind
from servespec.compiler.memory.kv_layers import kv_cache_plan
from tests.memory_cases import (
    DEEPSEEK_V4_FLASH,
    FP8,
    KIMI_LINEAR_48B,
    MINIMAX_M3,
    QWEN3_8B,
    QWEN3_NEXT_80B,
    planned_model,
    public,
)

COMPRESSED: dict[str, Any] = {
    "model": {"load_format": "dummy"},
    "hardware": {"gpu": "gb200", "count": 4},
    "parallel": {"tensor_parallel_size": 4},
    "memory": {"kv_cache_dtype": "fp8"},
    "scheduler": {"max_num_seqs": 1024, "max_num_batched_tokens": 16384},
}


def found(folder: Path, target: dict[str, Any], **sections: Any) -> KvCache | str:
    if "model" in sections:
        sections["model"] = {"id": str(folder / "target"), **sections["model"]}
    return kv_cache_plan(planned_model(folder, target, None, **sections).resolution)


def cache(folder: Path, target: dict[str, Any], **sections: Any) -> KvCache:
    planned = found(folder, target, **sections)
    assert isinstance(planned, KvCache), planned
    return planned


def compressed(folder: Path, **sections: Any) -> KvCache:
    return cache(folder, DEEPSEEK_V4_FLASH, **{**COMPRESSED, **sections})


def rounded(size: int, unit: int = 576) -> int:
    return -(-size // unit) * unit


def test_a_compressed_context_by_hand(tmp_path: Path) -> None:
    """21 layers of ratio 4, 20 of 128, 43 windows; two steps of 16,384 tokens are in flight."""
    kept = 21 * (rounded(64 * 584) + rounded(64 * 132)) + 20 * rounded(2 * 584)
    windows = -(-43 // 2) * rounded(64 * 584)
    states = 21 * (rounded(4 * 2 * 2 * 512 * 4) + rounded(4 * 2 * 2 * 128 * 4))
    blocks = [1048576 // 256, *[-(-(127 + 32768) // 64) + 1] * 2, -(-(7 + 32768) // 4) + 1, -(-(127 + 32768) // 8) + 1]

    found = compressed(tmp_path)

    assert found.block_bytes == kept > max(windows, states)
    assert sorted(group.request_blocks(found.request) for group in found.groups) == sorted(blocks)
    assert found.request_blocks == sum(blocks)


def test_a_four_bit_index_is_about_half(tmp_path: Path) -> None:
    eight, four = (
        compressed(tmp_path / name, **more)
        for name, more in (("8", {}), ("4", {"attention": {"indexer_kv_dtype": "mxfp4"}}))
    )

    assert eight.block_bytes - four.block_bytes == 21 * (rounded(64 * 132) - rounded(64 * 68))


def test_a_block_drafter_of_a_compressed_target_adds_three_windows(tmp_path: Path) -> None:
    drafter = {"speculative": {"method": "dspark", "num_speculative_tokens": 7}}

    alone, drafted = compressed(tmp_path / "a"), compressed(tmp_path / "b", **drafter)

    windows = [
        sum(group.layers for group in one.groups if (group.kind, group.block_tokens) == (LayerKind.LATENT_WINDOW, 64))
        for one in (alone, drafted)
    ]
    assert windows == [43, 46]
    assert alone.block_bytes == drafted.block_bytes


def test_tensor_ranks_do_not_divide_a_compressed_context(tmp_path: Path) -> None:
    one = {"hardware": {"gpu": "gb200", "count": 1}, "parallel": {"tensor_parallel_size": 1}}

    assert compressed(tmp_path / "a", **one).block_bytes == compressed(tmp_path / "b").block_bytes


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"memory": {"kv_cache_dtype": "bfloat16"}}, "takes fp8 alone"),
        ({"memory": {"kv_cache_dtype": "fp8", "block_size": 64}}, "no multiple of 256"),
    ],
)
def test_a_packed_cache_says_what_it_takes(tmp_path: Path, sections: dict[str, Any], said: str) -> None:
    assert said in str(found(tmp_path, DEEPSEEK_V4_FLASH, **{**COMPRESSED, **sections}))


def test_plain_rows_take_what_their_elements_take(tmp_path: Path) -> None:
    backend = {"attention": {"backend": "FLASHINFER_MLA_SPARSE_DSV4"}}

    plain = compressed(tmp_path, **backend, memory={"kv_cache_dtype": "bfloat16"})

    assert plain.block_bytes == 21 * (64 * 512 * 2 + rounded(64 * 132, 512)) + 20 * rounded(2 * 512 * 2, 512)


def test_an_index_beside_keys_and_values_by_hand(tmp_path: Path) -> None:
    """57 of 60 layers have an index of 128 elements on each rank."""
    sections = {
        **COMPRESSED,
        "attention": {"indexer_kv_dtype": "fp8"},
        "memory": {"kv_cache_dtype": "fp8", "block_size": 128},
    }

    found = cache(tmp_path, MINIMAX_M3, **sections)

    assert found.block_bytes == 128 * (60 * 2 * 128 + 57 * 128)
    assert len(found.groups) == 1


def qwen3_next(folder: Path, **sections: Any) -> KvCache:
    return cache(folder, QWEN3_NEXT_80B | FP8, **sections)


STATE_BYTES = (2 * 16 * 128 + 32 * 128) * 3 * 2 + 32 * 128 * 128 * 2


def test_a_page_of_attention_holds_a_state(tmp_path: Path) -> None:
    """12 layers of attention and 36 states; a token of attention takes 2 x 2 heads x 256 elements."""
    found = qwen3_next(tmp_path)

    unit = 64
    tokens = unit * -(-STATE_BYTES // (unit * 2 * 2 * 256 * 2))
    assert [(group.kind, group.layers) for group in found.groups] == [
        *[(LayerKind.STATE, 12)] * 3,
        (LayerKind.FULL, 12),
    ]
    assert {group.block_bytes for group in found.groups} == {12 * tokens * 2048}
    assert found.request_blocks == -(-4096 // tokens) + 3 * 3


def test_without_cached_prefixes_a_request_has_one_state_a_layer(tmp_path: Path) -> None:
    found = qwen3_next(tmp_path, memory={"enable_prefix_caching": False})

    assert [group.state_blocks for group in found.groups] == [1, 1, 1, 0]


def test_every_draft_has_a_state_of_its_own(tmp_path: Path) -> None:
    target = QWEN3_NEXT_80B | FP8 | {"num_nextn_predict_layers": 1}
    drafted = cache(
        tmp_path, target, speculative={"method": "mtp", "num_speculative_tokens": 3},
        memory={"enable_prefix_caching": False},
    )  # fmt: skip

    assert {group.state_blocks for group in drafted.groups} == {4, 0}
    assert sum(group.layers for group in drafted.groups if group.kind is LayerKind.FULL) == 13


def test_a_state_in_fp32_widens_the_blocks(tmp_path: Path) -> None:
    wide = qwen3_next(tmp_path / "a", memory={"mamba_ssm_cache_dtype": "float32"})

    assert wide.block_bytes > qwen3_next(tmp_path / "b").block_bytes


def test_ranks_divide_states(tmp_path: Path) -> None:
    two = qwen3_next(tmp_path / "a", hardware={"gpu": "h200", "count": 2}, parallel={"tensor_parallel_size": 2})

    assert 2 * two.block_bytes == qwen3_next(tmp_path / "b").block_bytes


def test_latent_attention_beside_states_has_blocks_of_128(tmp_path: Path) -> None:
    """20 states in fp32 and 7 layers of latent attention."""
    found = cache(tmp_path, KIMI_LINEAR_48B)
    state_bytes = 3 * 32 * 128 * 3 * 2 + 32 * 128 * 128 * 4

    tokens = 128 * -(-state_bytes // (128 * 576 * 2))
    attention = next(group for group in found.groups if group.kind is LayerKind.LATENT)
    assert (attention.layers, attention.block_tokens) == (7, tokens)
    assert attention.block_bytes == 7 * tokens * 1152


def test_states_need_the_hybrid_manager(tmp_path: Path) -> None:
    refused = found(tmp_path, QWEN3_NEXT_80B | FP8, scheduler={"disable_hybrid_kv_cache_manager": True})

    assert "hybrid KV cache manager" in str(refused)


def test_a_model_without_attention_holds_states_alone(tmp_path: Path) -> None:
    mamba = {
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "num_hidden_layers": 64, "hidden_size": 4096,
        "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128, "conv_kernel": 4, "expand": 2,
        "vocab_size": 32768, "max_position_embeddings": 4096,
    }  # fmt: skip
    found = cache(tmp_path, mamba)

    assert found.request_blocks == 1
    assert found.block_bytes == 64 * ((8192 + 2 * 8 * 128) * 3 * 2 + 128 * 64 * 128 * 2)


def test_states_of_another_model_are_not_guessed(tmp_path: Path) -> None:
    other = QWEN3_NEXT_80B | {"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2"}

    assert found(tmp_path, other) == "no formula is known for the states of `Zamba2ForCausalLM`"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"H_cycles": 2, "L_cycles": 2}, "H_cycles"),
        ({"block_configs": [{"attention": {"no_op": True}}]}, "block_configs"),
        ({"per_layer_config": {"1": {"head_dim": 64}}}, "per_layer_config"),
        ({"model_type": "minicpm3", "kv_lora_rank": 256, "qk_nope_head_dim": 64}, "kv_lora_rank"),
    ],
)
def test_layers_of_other_sizes_are_not_taken_for_plain_ones(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    other = QWEN3_8B | {"architectures": ["NewForCausalLM"]} | changes

    assert found(tmp_path, other) == f"no formula is known for the cache of a model with `{key}`"


@pytest.mark.parametrize(("written", "is_known"), [("0", True), ("1", False)])
def test_latent_attention_that_a_variable_unpacks_has_another_cache(
    tmp_path: Path, written: str, is_known: bool
) -> None:
    engine = {"version": "0.33.0", "env": {"VLLM_MLA_DISABLE": written}}
    planned = found(tmp_path, public("deepseek-v3"), engine=engine, parallel={"tensor_parallel_size": 8}, hardware={
        "gpu": "h200", "count": 8,
    })  # fmt: skip

    assert isinstance(planned, KvCache) == is_known
    assert is_known or "`VLLM_MLA_DISABLE`" in str(planned)


WINDOWS: dict[str, Any] = QWEN3_8B | {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 512,
    "layer_types": [*["sliding_attention"] * 5, "full_attention"],
}  # fmt: skip
"""The engine makes 4 windows of it under an override to 4 layers, and no model under one to 8."""


def overridden(folder: Path, target: dict[str, Any], layers: int) -> KvCache | str:
    return found(folder, target, model={"load_format": "dummy", "hf_overrides": {"num_hidden_layers": layers}})


def test_types_of_layers_that_an_override_takes_away_keep_no_cache(tmp_path: Path) -> None:
    fewer = overridden(tmp_path, WINDOWS, 4)

    assert isinstance(fewer, KvCache), fewer
    assert [(group.kind, group.layers) for group in fewer.groups] == [(LayerKind.WINDOW, 4)]


def test_layers_without_a_type_are_not_guessed(tmp_path: Path) -> None:
    assert overridden(tmp_path, WINDOWS, 8) == "config.json names `layer_types` for 6 of 8 layers"


def test_a_model_that_reads_no_types_has_a_window_in_every_layer(tmp_path: Path) -> None:
    listed = {"sliding_window": 512, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 36}

    more = overridden(tmp_path, QWEN3_8B | listed, 40)

    assert isinstance(more, KvCache), more
    assert [(group.kind, group.layers) for group in more.groups] == [(LayerKind.WINDOW, 40)]


@pytest.mark.parametrize(("layers", "kept"), [(8, 2), (16, None)])
def test_kinds_of_a_hybrids_layers_under_an_override(tmp_path: Path, layers: int, kept: int | None) -> None:
    kinds = [*["linear_attention"] * 3, "full_attention"] * 3
    hybrid = overridden(tmp_path, QWEN3_NEXT_80B | {"num_hidden_layers": 12, "layer_types": kinds}, layers)

    if kept is None:
        assert hybrid == "config.json names the kinds of 12 of 16 layers"
        return
    assert isinstance(hybrid, KvCache), hybrid
    assert sum(group.layers for group in hybrid.groups if group.kind is LayerKind.FULL) == kept
    assert sum(group.layers for group in hybrid.groups if group.kind is LayerKind.STATE) == layers - kept

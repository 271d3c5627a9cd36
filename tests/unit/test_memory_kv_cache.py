"""The KV cache: against what the engine said it holds, and by hand for its groups."""

from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.kv_cache import KvCache, KvLayer, KvRequest, LayerKind
from servespec.compiler.memory.kv_groups import kv_cache_of
from servespec.compiler.memory.kv_layers import kv_cache_plan
from servespec.compiler.memory.line import Holder
from servespec.units import Bytes, Tokens
from tests.memory_cases import QWEN3_8B, QWEN3_30B, eagle3_of, planned_model

GIB, MIB = 1 << 30, 1 << 20
REQUEST = KvRequest(max_model_len_tokens=Tokens(4096), in_flight_tokens=Tokens(1024))
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "dtype": "bfloat16", "hidden_size": 7168,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840,
}  # fmt: skip


def cache(folder: Path, target: dict[str, Any], draft: dict[str, Any] | None = None, **sections: Any) -> KvCache:
    found = kv_cache_plan(planned_model(folder, target, draft, k=3, **sections).resolution)
    assert isinstance(found, KvCache), found
    return found


def layer(token_bytes: int = 100, window: int | None = None, **changes: Any) -> KvLayer:
    plain = {
        "holder": Holder.TARGET,
        "kind": LayerKind.FULL if window is None else LayerKind.WINDOW,
        "block_tokens": 16,
        "page_bytes": Bytes(16 * token_bytes),
        "window_tokens": window,
        "content": (token_bytes,),
    }
    return KvLayer(**plain | changes)


def grouped(layers: tuple[KvLayer, ...], request: KvRequest = REQUEST, **more: Any) -> KvCache:
    found = kv_cache_of(layers, request, **more)
    assert isinstance(found, KvCache), found
    return found


@pytest.mark.parametrize(
    ("target", "cache_bytes", "measured_tokens"),
    [(QWEN3_8B, 16 * GIB, 113_344), (QWEN3_30B, 6500 * MIB, 67_904)],
    ids=["8b", "30b"],
)
def test_a_pinned_cache_holds_what_the_engine_said(
    tmp_path: Path, target: dict[str, Any], cache_bytes: int, measured_tokens: int
) -> None:
    assert cache(tmp_path, target, eagle3_of(target)).tokens(cache_bytes) == measured_tokens


@pytest.mark.parametrize(
    ("target", "gib", "measured_tokens"),
    [(QWEN3_30B, 60.04, 642_400), (QWEN3_30B, 65.25, 698_160), (QWEN3_8B, 100.74, 713_712)],
    ids=["30b", "30b-with-estimate", "8b"],
)
def test_a_cache_of_a_logged_size_holds_what_the_engine_said(
    tmp_path: Path, target: dict[str, Any], gib: float, measured_tokens: int
) -> None:
    # The log rounds to 0.01 GiB.
    assert cache(tmp_path, target, eagle3_of(target)).tokens(int(gib * GIB)) == pytest.approx(measured_tokens, abs=120)


def test_two_ranks_halve_a_block_until_each_holds_one_head(tmp_path: Path) -> None:
    blocks = [
        cache(
            tmp_path / str(ranks),
            QWEN3_30B,
            hardware={"gpu": "h200", "count": ranks},
            parallel={"tensor_parallel_size": ranks},
        ).block_bytes
        for ranks in (1, 2, 4, 8)
    ]

    assert blocks == [16 * 48 * 2 * heads * 128 * 2 for heads in (4, 2, 1, 1)]


def test_fp8_halves_a_block(tmp_path: Path) -> None:
    wide = cache(tmp_path, QWEN3_8B)
    narrow = cache(tmp_path, QWEN3_8B, memory={"kv_cache_dtype": "fp8"})

    assert 2 * narrow.block_bytes == wide.block_bytes


def test_a_latent_cache_is_whole_on_each_rank(tmp_path: Path) -> None:
    found = cache(
        tmp_path, DEEPSEEK, hardware={"gpu": "h200", "count": 8}, parallel={"tensor_parallel_size": 8},
        memory={"block_size": 64},
    )  # fmt: skip

    assert found.block_bytes == 64 * 61 * (512 + 64) * 2


def test_a_sparse_index_has_a_cache_of_its_own(tmp_path: Path) -> None:
    sparse = DEEPSEEK | {
        "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_topk": 2048,
        "index_head_dim": 128, "index_n_heads": 64,
    }  # fmt: skip
    found = cache(tmp_path, sparse, memory={"block_size": 64})

    assert found.block_bytes == 64 * 61 * ((512 + 64) * 2 + 132)


def test_layers_that_take_anothers_choice_have_no_index(tmp_path: Path) -> None:
    """Every fourth layer from the second on, and the first two, score positions; an MTP layer always does."""
    shared = DEEPSEEK | {
        "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "index_topk": 2048,
        "index_head_dim": 128, "index_n_heads": 64, "index_topk_freq": 4, "num_nextn_predict_layers": 1,
    }  # fmt: skip
    sections = {
        "memory": {"block_size": 64},
        "hardware": {"gpu": "h200", "count": 8},
        "parallel": {"tensor_parallel_size": 8},
    }
    scoring = 2 + (61 - 2) // 4

    alone = cache(tmp_path / "a", shared, **sections)
    drafted = cache(tmp_path / "b", shared, speculative={"method": "mtp", "num_speculative_tokens": 1}, **sections)

    assert alone.block_bytes == 64 * (61 * (512 + 64) * 2 + scoring * 132)
    assert drafted.block_bytes - alone.block_bytes == 64 * ((512 + 64) * 2 + 132)


def test_full_layers_and_windows_share_one_pool() -> None:
    """12 of each kind: two groups of 12, a request takes blocks of both."""
    found = grouped((layer(), layer(window=128)) * 12, REQUEST)

    assert [(group.layers, group.window_tokens) for group in found.groups] == [(12, None), (12, 128)]
    assert found.block_bytes == 12 * 16 * 100
    assert found.request_blocks == 4096 // 16 + 72 + 1  # 127 + 1024 tokens, and one block more


def test_a_drafter_that_adds_one_full_layer_widens_both_groups() -> None:
    found = grouped((layer(), layer(window=128)) * 12 + (layer(),), REQUEST)

    assert len(found.groups) == 2
    assert found.block_bytes == 13 * 16 * 100


def test_many_windows_to_one_full_layer_make_many_groups() -> None:
    found = grouped((layer(),) * 2 + (layer(window=512),) * 10, REQUEST)

    assert [group.window_tokens for group in found.groups] == [None, *[512] * 5]
    assert found.block_bytes == 2 * 16 * 100


def test_windows_of_a_smaller_page_take_more_tokens_a_block() -> None:
    found = grouped((layer(200), layer(100, window=128)), REQUEST)

    assert [group.block_tokens for group in found.groups] == [16, 32]


def test_without_the_hybrid_manager_windows_hold_everything() -> None:
    found = grouped((layer(), layer(window=128)), REQUEST, keeps_windows=False)

    assert [(group.layers, group.window_tokens) for group in found.groups] == [(2, None)]


def test_without_the_hybrid_manager_windows_alone_stay_windows() -> None:
    found = grouped((layer(window=128),) * 2, REQUEST, keeps_windows=False)

    assert [(group.layers, group.window_tokens) for group in found.groups] == [(2, 128)]


def test_the_least_cache_is_one_request_and_a_block_held_back() -> None:
    found = grouped((layer(),), REQUEST)

    assert found.smallest_bytes == (256 + 1) * 1600
    assert found.tokens(found.smallest_bytes) == 4096 + 16
    assert found.concurrency(256 * 1600) == 1.0


def test_a_shorter_context_needs_less() -> None:
    found = grouped((layer(),), REQUEST)

    assert found.at(1024).smallest_bytes == (64 + 1) * 1600


def test_context_ranks_share_a_requests_tokens() -> None:
    shared = KvRequest(max_model_len_tokens=Tokens(4096), in_flight_tokens=Tokens(0), context_ranks=4)

    assert grouped((layer(),), shared).request_blocks == 64


def test_other_layouts_are_not_guessed(tmp_path: Path) -> None:
    shared = QWEN3_8B | {"num_kv_shared_layers": 10}

    assert "`num_kv_shared_layers`" in str(kv_cache_plan(planned_model(tmp_path, shared).resolution))

"""Blocks and cached types of whole specs: each device and type as the engine's source has them."""

from typing import Any

import pytest

from servespec.compiler.memory.kv_cache import KvCache
from servespec.compiler.resolve.cache_dtype import draft_kv_cache_dtype, kv_cache_dtype
from tests.memory_cases import QWEN3_8B, eagle3_of, public_preset, written
from tests.plans import compiled, model_folder, preset_model, spec_of

LAYERS = 61
INDEX_BYTES = 128 + 4


def cache_of(model: str, gpu: str, count: int, **sections: Any) -> KvCache:
    named = model if model.startswith("/") else preset_model(model)
    spec = spec_of("qwen3-8b", gpu) | {
        "model": {"id": named, "load_format": "dummy", "max_model_len": 32768},
        "hardware": {"gpu": gpu, "count": count},
        "parallel": {"tensor_parallel_size": count},
    }
    ledger = compiled(spec | sections).ledger
    assert ledger is not None
    assert isinstance(ledger.kv, KvCache), ledger.kv
    return ledger.kv


@pytest.mark.parametrize(
    ("gpu", "count", "dtype", "token_bytes"),
    [
        ("h200", 8, None, 576 * 2),
        ("h200", 8, "fp8", 656),
        ("b200", 8, None, 576 * 2),
        ("b200", 8, "fp8", 576),
        ("rtx-pro-6000", 16, None, 656),
        ("rtx-pro-6000", 16, "bfloat16", 656),
        ("rtx-pro-6000", 16, "fp8", 656),
    ],
)
def test_a_token_of_sparse_attention(gpu: str, count: int, dtype: str | None, token_bytes: int) -> None:
    """Each layer has a vector and a key of its index; backends differ in what they keep beside an fp8 vector."""
    memory = {} if dtype is None else {"memory": {"kv_cache_dtype": dtype}}
    (group,) = cache_of("deepseek-ai/DeepSeek-V3.2", gpu, count, **memory).groups

    assert group.block_tokens == 64
    assert group.block_bytes == 64 * LAYERS * (token_bytes + INDEX_BYTES)


def test_a_number_of_blocks_is_of_the_engines_blocks() -> None:
    cache = cache_of("deepseek-ai/DeepSeek-V3.2", "h200", 8, memory={"num_gpu_blocks_override": 8000})

    assert cache.tokens(8000 * cache.block_bytes) == 8000 * 64


def test_a_sparse_block_is_a_page() -> None:
    (group,) = cache_of("nvidia/MiniMax-M3-NVFP4", "gb200", 4).groups

    assert group.block_tokens == 128


def test_a_hook_of_the_model_chooses_the_type(tmp_path: Any) -> None:
    """GLM-5 caches fp8 on compute capability 10.x where nobody asks for a type, and elsewhere does not."""
    model = written(tmp_path, public_preset("zai-org/GLM-5-FP8", index_n_heads=32, index_head_dim=128))

    hooked = cache_of(model, "gb300", 4).groups[0]
    plain = cache_of(model, "h200", 8).groups[0]

    assert hooked.block_bytes == 64 * 78 * (576 + INDEX_BYTES)
    assert plain.block_bytes == 64 * 78 * (2 * 576 + INDEX_BYTES)


@pytest.mark.parametrize(("own", "drafter_bytes"), [(None, 1), ("fp8", 1), ("auto", 2)])
def test_a_head_may_have_a_cached_type_of_its_own(tmp_path: Any, own: str | None, drafter_bytes: int) -> None:
    """36 layers of the target in fp8, one of the head."""
    head = written(tmp_path / "head", eagle3_of(QWEN3_8B))
    speculative = {"method": "eagle3", "model": head, "num_speculative_tokens": 3} | (
        {} if own is None else {"kv_cache_dtype": own}
    )
    target = written(tmp_path / "target", QWEN3_8B)
    cache = cache_of(target, "h200", 1, speculative=speculative, memory={"kv_cache_dtype": "fp8"})

    assert cache.block_bytes == 16 * 2 * 8 * 128 * (36 + drafter_bytes)


def test_a_checkpoints_type_goes_before_a_hook(tmp_path: Any) -> None:
    """ModelOpt names the cached type, and a head has the same one."""
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    config = public_preset("zai-org/GLM-5-FP8", index_n_heads=32, index_head_dim=128, quantization_config=section)
    plan = compiled(
        spec_of("qwen3-8b", "gb300")
        | {
            "model": {"id": written(tmp_path, config), "load_format": "dummy", "max_model_len": 32768},
            "hardware": {"gpu": "gb300", "count": 4},
            "parallel": {"tensor_parallel_size": 4},
        }
    )
    request = plan.resolution.request

    assert request.target.traits.checkpoint_kv_cache_dtype == "fp8_e4m3"
    assert kv_cache_dtype(request) == "fp8_e4m3"
    assert draft_kv_cache_dtype(request, "eagle3") == "fp8_e4m3"


@pytest.mark.parametrize("method", ["dflash", "draft_model"])
def test_any_drafter_with_a_model_may_have_a_cached_type_of_its_own(method: str) -> None:
    drafter = "dflash-draft" if method == "dflash" else "llama-3.1-8b"
    speculative = {"method": method, "model": model_folder(drafter), "num_speculative_tokens": 3}
    target = model_folder("llama-3.1-8b")
    wide = cache_of(target, "h200", 1, speculative=speculative).block_bytes
    narrow = cache_of(target, "h200", 1, speculative=speculative | {"kv_cache_dtype": "fp8"}).block_bytes

    assert narrow < wide

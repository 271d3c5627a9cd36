"""Our choice of attention backend and its graph support against the engine's own, over random models and machines."""

import dataclasses
import json
import random
from typing import Any

import pytest

from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.resolve.attention import attention_candidates, indexer_support
from servespec.compiler.resolve.attention_needs import AttentionNeeds, AttentionQuestion, InstalledKernels
from tests.differential import engine_oracle as oracle
from tests.differential.engine_process import PYTHON, run

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with torch"),
    pytest.mark.skipif(not oracle.available_roots(), reason="no engine under .engines"),
]

CASES = 120
LATENT_SHAPES = ((128, 64, 512), (128, 64, 512), (192, 64, 512), (96, 64, 512), (256, 0, 512), (64, 64, 256))
CACHES = (*("auto",) * 5, "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4", "turboquant_k8v4", "int8_per_token_head")
LATENT_CACHES = (*("auto",) * 5, "bfloat16", "fp8", "fp8_e4m3", "fp8_ds_mla", "nvfp4_ds_mla")


def dense_needs(rng: random.Random) -> AttentionNeeds:
    kv_heads = rng.choice((1, 2, 4, 8))
    return AttentionNeeds(
        head_size=rng.choice((16, 64, 64, 80, 96, 128, 128, 128, 192, 256, 256, 512)),
        dtype=rng.choice((*("bfloat16",) * 6, "float16", "float32")),
        kv_cache_dtype=rng.choice(CACHES),
        block_size_tokens=rng.choice((*(None,) * 5, 1, 16, 32, 48, 64, 128, 256)),
        has_sink=rng.random() < 0.15,
        # The composites' support with windows depends on layers that no question names.
        is_mm_prefix=(image := rng.random() < 0.15),
        has_sliding_window=not image and rng.random() < 0.3,
        has_logits_softcap=rng.random() < 0.1,
        is_non_causal=rng.random() < 0.2,
        num_heads_per_rank=kv_heads * rng.choice((1, 1, 2, 4, 8)),
        num_kv_heads_per_rank=kv_heads,
        use_trtllm_attention=rng.choice((*(None,) * 6, False)),
        **shared_needs(rng),
    )


def latent_needs(rng: random.Random) -> AttentionNeeds:
    sparse = rng.random() < 0.6
    nope, rope, rank = rng.choice(LATENT_SHAPES)
    return AttentionNeeds(
        head_size=rank + rope,
        dtype=rng.choice((*("bfloat16",) * 6, "float16")),
        kv_cache_dtype=rng.choice(LATENT_CACHES),
        block_size_tokens=rng.choice((*(None,) * 5, 16, 32, 64, 128)),
        use_mla=True,
        use_sparse=sparse,
        is_non_causal=rng.random() < 0.1,
        num_heads_per_rank=rng.choice((8, 16, 16, 32, 64, 128)),
        num_kv_heads_per_rank=1,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=128,
        kv_lora_rank=rank,
        index_topk=rng.choice((2048, 2048, 512, 100)) if sparse else None,
        **shared_needs(rng),
    )


def shared_needs(rng: random.Random) -> dict[str, Any]:
    query_len = rng.choice((1, 1, 2, 4, 6, 8))
    prefill_parallel = rng.choice((*(1,) * 9, 2))
    return {
        "query_len_tokens_per_request": query_len,
        "prefill_context_parallel_size": prefill_parallel,
        "decode_context_parallel_size": rng.choice((*(1,) * 8, 2)),
        "enable_adaptive_verification": query_len > 1 and prefill_parallel == 1 and rng.random() < 0.25,
    }


def our_answer(question: AttentionQuestion, found: dict[str, Any]) -> dict[str, Any]:
    """Ours in the engine's words; what the engine was not asked is taken from its answer."""
    candidates = attention_candidates(question)
    if not candidates:
        return {"backend": None}
    first, needs = candidates[0], question.needs
    trims = needs.enable_adaptive_verification and first.cg_support.name != "ALWAYS"
    varlen = needs.query_len_tokens_per_request if first.replays_varlen else None
    return {
        "backend": first.backend,
        "support": first.cg_support.name,
        "varlen": varlen if trims else found.get("varlen"),
        "indexer": indexer_support(question).value.name if needs.use_mla and needs.use_sparse else None,
    }


@pytest.mark.parametrize(
    ("version", "gpu", "flashinfer", "trtllm"),
    [
        ("0.33.0", "gb200", True, True),
        ("0.33.0", "gb200", False, False),
        ("0.33.0", "h200", True, False),
        ("0.33.0", "rtx-pro-6000", True, True),
        ("0.33.0", "a100-80", True, True),
        ("0.32.0", "gb200", True, True),
        ("0.32.0", "a100-80", True, False),
    ],
)
def test_the_engine_chooses_as_we_say(version: str, gpu: str, flashinfer: bool, trtllm: bool) -> None:
    root = oracle.engine_root(version)
    if root is None:
        pytest.skip(f"no unpacked vLLM {version}")
    device = DEVICES[gpu]
    rng = random.Random(f"{version} {gpu} {flashinfer} {trtllm}")  # noqa: S311 - cases, not secrets
    needs = [latent_needs(rng) if rng.random() < 0.4 else dense_needs(rng) for _ in range(CASES)]
    request = {
        "capability": device.compute_capability,
        "name": device.device_name,
        "memory_bytes": device.total_memory_bytes,
        "flashinfer": flashinfer,
        "trtllm": trtllm,
        "needs": [dataclasses.asdict(one) for one in needs],
    }
    kernels = InstalledKernels(flashinfer=flashinfer, trtllm=trtllm, tokenspeed_mla=True)

    found = run("real_attention.py", root, json.dumps(request))

    assert str(root) in found["file"]
    for one, answer in zip(needs, found["answers"], strict=True):
        question = AttentionQuestion(device=device, needs=one, kernels=kernels, version=version)
        assert our_answer(question, answer) == answer, one

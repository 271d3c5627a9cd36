"""The attention backend and its graph support, by hand from the engine's priorities and checks."""

import pytest

from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport
from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.resolve.attention import (
    Candidate,
    adaptive_verification_refusals,
    all_update_in_place,
    attention_candidates,
    indexer_support,
    least_support,
    named_backend,
    no_backend,
)
from servespec.compiler.resolve.attention_needs import AttentionNeeds, AttentionQuestion, InstalledKernels

NEVER = AttentionCgSupport.NEVER
SINGLE = AttentionCgSupport.UNIFORM_SINGLE_TOKEN_DECODE
UNIFORM = AttentionCgSupport.UNIFORM_BATCH
ALWAYS = AttentionCgSupport.ALWAYS

EVERYTHING = InstalledKernels(flashinfer=True, trtllm=True, tokenspeed_mla=True)
NO_FLASHINFER = InstalledKernels(flashinfer=False, trtllm=False, tokenspeed_mla=True)
UNKNOWN = InstalledKernels()

DENSE = {"head_size": 128, "num_heads_per_rank": 32, "num_kv_heads_per_rank": 8}
DEEPSEEK = {
    "head_size": 576,
    "use_mla": True,
    "num_heads_per_rank": 16,
    "num_kv_heads_per_rank": 1,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
}
SPARSE = {**DEEPSEEK, "use_sparse": True, "index_topk": 2048}


def ask(
    gpu: str, kernels: InstalledKernels = EVERYTHING, version: str = "0.33.0", **needs: object
) -> AttentionQuestion:
    asked = AttentionNeeds(**{**DENSE, **needs})  # type: ignore[arg-type]
    return AttentionQuestion(device=DEVICES[gpu], needs=asked, kernels=kernels, version=version)


def answers(found: tuple[Candidate, ...]) -> list[tuple[str, AttentionCgSupport]]:
    return [(candidate.backend, candidate.cg_support) for candidate in found]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("gb200", ("FLASHINFER", UNIFORM)),
        ("h200", ("FLASH_ATTN", ALWAYS)),
        ("a100-80", ("FLASH_ATTN", UNIFORM)),
        ("rtx-pro-6000", ("FLASH_ATTN", UNIFORM)),
        ("cpu", ("CPU_ATTN", NEVER)),
    ],
)
def test_plain_attention(gpu: str, expected: tuple[str, AttentionCgSupport]) -> None:
    found = attention_candidates(ask(gpu))

    assert answers(found) == [expected]
    assert found[0].condition == ""


def test_blackwell_with_nothing_known_has_three_outcomes() -> None:
    found = attention_candidates(ask("gb200", UNKNOWN))

    assert answers(found) == [("FLASHINFER", UNIFORM), ("FLASHINFER", SINGLE), ("FLASH_ATTN", ALWAYS)]
    assert [candidate.condition for candidate in found] == [
        "if flashinfer is installed with its TensorRT-LLM kernels",
        "if flashinfer is installed without its TensorRT-LLM kernels",
        "",
    ]


def test_blackwell_without_flashinfer_takes_flash_attention_4() -> None:
    assert answers(attention_candidates(ask("gb200", NO_FLASHINFER))) == [("FLASH_ATTN", ALWAYS)]
    assert answers(attention_candidates(ask("gb200", NO_FLASHINFER, "0.32.0"))) == [("FLASH_ATTN", UNIFORM)]


def test_blackwell_prefers_flash_attention_where_attention_is_not_causal() -> None:
    assert answers(attention_candidates(ask("gb200", is_non_causal=True))) == [("FLASH_ATTN", ALWAYS)]


def test_an_fp8_cache_off_hopper_and_blackwell_goes_to_the_next_backend() -> None:
    fp8 = {"kv_cache_dtype": "fp8"}

    assert answers(attention_candidates(ask("h200", **fp8))) == [("FLASH_ATTN", ALWAYS)]
    assert answers(attention_candidates(ask("rtx-pro-6000", NO_FLASHINFER, **fp8))) == [("TRITON_ATTN", ALWAYS)]
    assert answers(attention_candidates(ask("rtx-pro-6000", **fp8))) == [("FLASHINFER", UNIFORM)]
    assert answers(attention_candidates(ask("a100-80", **fp8))) == [("FLASHINFER", UNIFORM)]
    assert answers(attention_candidates(ask("a100-80", version="0.32.0", **fp8))) == [("FLASHINFER", SINGLE)]


def test_sinks() -> None:
    sinks = {"head_size": 64, "has_sink": True, "has_sliding_window": True}

    assert answers(attention_candidates(ask("h200", **sinks))) == [("FLASH_ATTN", ALWAYS)]
    assert answers(attention_candidates(ask("a100-80", **sinks))) == [("TRITON_ATTN", ALWAYS)]
    assert answers(attention_candidates(ask("gb200", UNKNOWN, **sinks))) == [
        ("FLASHINFER", UNIFORM),
        ("FLASH_ATTN", ALWAYS),
    ]


def test_images_that_see_each_other_on_hopper_take_a_pair_of_backends() -> None:
    gemma = {"head_size": 256, "is_mm_prefix": True}

    whole = attention_candidates(ask("h200", **gemma))
    windowed = attention_candidates(ask("h200", **gemma, has_sliding_window=True))

    assert answers(whole) == [("TRITON_FLASH_ATTN", SINGLE)]
    assert answers(windowed) == [("TRITON_FLASH_ATTN", SINGLE), ("TRITON_FLASH_ATTN", NEVER)]
    assert answers(attention_candidates(ask("a100-80", **gemma))) == [("TRITON_ATTN", ALWAYS)]


def test_wide_heads_on_blackwell() -> None:
    wide = {"head_size": 256}

    assert answers(attention_candidates(ask("gb200", NO_FLASHINFER, **wide))) == [("FLASH_ATTN", ALWAYS)]
    assert answers(attention_candidates(ask("gb200", NO_FLASHINFER, block_size_tokens=128, **wide))) == [
        ("FLASH_ATTN", ALWAYS)
    ]
    assert answers(attention_candidates(ask("gb200", NO_FLASHINFER, block_size_tokens=64, **wide))) == [
        ("TRITON_ATTN", ALWAYS)
    ]


@pytest.mark.parametrize(
    ("gpu", "kernels", "expected"),
    [
        ("gb200", EVERYTHING, ("FLASHINFER_MLA", ALWAYS)),
        ("gb200", NO_FLASHINFER, ("CUTLASS_MLA", SINGLE)),
        ("h200", EVERYTHING, ("FLASH_ATTN_MLA", UNIFORM)),
        ("rtx-pro-6000", EVERYTHING, ("TRITON_MLA", UNIFORM)),
        ("a100-80", EVERYTHING, ("TRITON_MLA", UNIFORM)),
    ],
)
def test_latent_attention(gpu: str, kernels: InstalledKernels, expected: tuple[str, AttentionCgSupport]) -> None:
    assert answers(attention_candidates(ask(gpu, kernels, **DEEPSEEK))) == [expected]


def test_latent_attention_with_an_fp8_cache() -> None:
    fp8 = {**DEEPSEEK, "kv_cache_dtype": "fp8"}

    assert answers(attention_candidates(ask("h200", **fp8))) == [("FLASHMLA", UNIFORM)]
    assert answers(attention_candidates(ask("gb200", NO_FLASHINFER, **fp8))) == [("TOKENSPEED_MLA", UNIFORM)]


@pytest.mark.parametrize(
    ("gpu", "version", "changes", "expected"),
    [
        ("gb200", "0.33.0", {}, "FLASH_ATTN_MLA_SPARSE_FA4"),
        ("gb200", "0.32.0", {}, "FLASHINFER_MLA_SPARSE"),
        ("gb200", "0.33.0", {"num_heads_per_rank": 32}, "FLASHMLA_SPARSE"),
        ("gb200", "0.33.0", {"num_heads_per_rank": 32, "kv_cache_dtype": "fp8"}, "FLASHINFER_MLA_SPARSE"),
        ("h200", "0.33.0", {}, "FLASH_ATTN_MLA_SPARSE"),
        ("h200", "0.33.0", {"kv_cache_dtype": "fp8_ds_mla"}, "FLASHMLA_SPARSE"),
        ("rtx-pro-6000", "0.33.0", {}, "FLASHINFER_MLA_SPARSE_SM120"),
    ],
)
def test_sparse_latent_attention(gpu: str, version: str, changes: dict[str, object], expected: str) -> None:
    found = attention_candidates(ask(gpu, version=version, **{**SPARSE, **changes}))

    assert [candidate.backend for candidate in found] == [expected]


@pytest.mark.parametrize(
    ("gpu", "q", "expected"),
    [
        ("gb200", 8, ALWAYS),
        ("h200", 1, UNIFORM),
        ("h200", 2, UNIFORM),
        ("h200", 3, ALWAYS),
        ("h200", 4, UNIFORM),
        ("h200", 8, ALWAYS),
        ("rtx-pro-6000", 2, UNIFORM),
        ("rtx-pro-6000", 4, ALWAYS),
    ],
)
def test_index_layers(gpu: str, q: int, expected: AttentionCgSupport) -> None:
    assert indexer_support(ask(gpu, **SPARSE, query_len_tokens_per_request=q)).value is expected


def test_recurrent_layers_limit_the_whole_model() -> None:
    question = ask("h200", state_backends=("GDN_ATTN",))
    linear = ask("h200", state_backends=("LINEAR_ATTN",))
    candidate = attention_candidates(question)[0]

    assert candidate.cg_support is ALWAYS
    assert least_support(candidate, question) == (UNIFORM, "GDN_ATTN")
    assert least_support(candidate, linear) == (SINGLE, "LINEAR_ATTN")


@pytest.mark.parametrize(
    ("gpu", "needs", "expected"),
    [
        ("h200", {}, True),
        ("h200", {"decode_context_parallel_size": 2}, False),
        ("gb200", {}, True),
        ("gb200", {"use_trtllm_attention": False}, False),
        ("h200", DEEPSEEK, False),
        ("a100-80", DEEPSEEK, True),
        ("h200", SPARSE, True),
        ("gb200", {**SPARSE, "num_heads_per_rank": 32}, False),
    ],
)
def test_which_backends_refresh_draft_metadata_in_a_graph(gpu: str, needs: dict[str, object], expected: bool) -> None:
    question = ask(gpu, **needs)

    assert all_update_in_place(attention_candidates(question), question) is expected


def test_models_with_backends_of_their_own() -> None:
    v4 = attention_candidates(ask("h200", **{**SPARSE, "head_size": 512}, architectures=("DeepseekV4ForCausalLM",)))
    step5 = {"architectures": ("Step5ForCausalLM",)}

    assert answers(v4) == [("FLASHMLA_SPARSE_DSV4", ALWAYS)]
    assert answers(attention_candidates(ask("h200", **step5))) == [("STEP5_DSA", SINGLE)]
    assert answers(attention_candidates(ask("h200", **step5, query_len_tokens_per_request=4))) == [
        ("STEP5_DSA", UNIFORM)
    ]


def test_a_named_backend_is_checked() -> None:
    good, none = named_backend("TRITON_ATTN", ask("h200"))
    nothing, unknown = named_backend("TRITON", ask("h200"))
    barred, reasons = named_backend("FLASHINFER_MLA", ask("h200", **DEEPSEEK))

    assert (answers(good), none) == ([("TRITON_ATTN", ALWAYS)], ())
    assert (nothing, [refusal.because for refusal in unknown]) == (
        (),
        ["`TRITON` is no attention backend of vLLM 0.33.0"],
    )
    assert (barred, [refusal.because for refusal in reasons]) == (
        (),
        ["`FLASHINFER_MLA` does not support compute capability 9.0"],
    )


def test_a_named_backend_without_a_row_is_left_open() -> None:
    assert named_backend("ROCM_ATTN", ask("h200")) == ((), ())


def test_adaptive_verification_needs_batches_trimmed_on_the_gpu() -> None:
    adaptive = {"enable_adaptive_verification": True, "query_len_tokens_per_request": 6}

    hopper = ask("h200", **adaptive)
    ampere = ask("a100-80", **adaptive)
    hybrid = ask("h200", **adaptive, state_backends=("GDN_ATTN",))
    blackwell = ask("gb200", **adaptive)

    assert adaptive_verification_refusals(attention_candidates(hopper)[0], hopper) == ()
    assert adaptive_verification_refusals(attention_candidates(blackwell)[0], blackwell) == ()
    assert [finding.because for finding in adaptive_verification_refusals(attention_candidates(ampere)[0], ampere)] == [
        "`FLASH_ATTN` cannot replay batches trimmed on the GPU"
    ]
    assert [finding.because for finding in adaptive_verification_refusals(attention_candidates(hybrid)[0], hybrid)] == [
        "`GDN_ATTN` cannot replay batches trimmed on the GPU"
    ]


def test_nothing_serves_an_impossible_wish() -> None:
    assert attention_candidates(ask("h200", dtype="float64")) == ()


def asked(gpu: str, needs: dict[str, object], kernels: InstalledKernels = EVERYTHING) -> AttentionQuestion:
    return AttentionQuestion(
        device=DEVICES[gpu], needs=AttentionNeeds(**needs), version="0.33.0", kernels=kernels  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("needs", "field", "said"),
    [
        ({**SPARSE, "block_size_tokens": 16}, "memory.block_size", "no block size 16 in `FLASH_ATTN_MLA_SPARSE`"),
        ({**SPARSE, "kv_cache_dtype": "fp8_e5m2"}, "memory.kv_cache_dtype", "no KV cache dtype fp8_e5m2 in"),
        ({**DENSE, "dtype": "float32", "kv_cache_dtype": "nvfp4"}, "attention.backend", "takes this model and spec"),
    ],
    ids=["block", "cached-type", "several"],
)
def test_what_no_backend_takes_is_refused_where_it_is_written(needs: dict[str, object], field: str, said: str) -> None:
    question = asked("h200", needs)
    (refusal,) = no_backend(question)

    assert attention_candidates(question) == ()
    assert refusal.field == field
    assert said in refusal.because


def test_a_backend_that_may_be_there_is_no_refusal() -> None:
    needs = {**DENSE, "kv_cache_dtype": "nvfp4"}

    assert attention_candidates(asked("b200", needs, UNKNOWN)) != ()
    assert no_backend(asked("b200", needs, UNKNOWN)) == ()

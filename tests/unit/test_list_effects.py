"""What a wider list changes at each of its readers: the note of a plan, its numbers, and its silence."""

import json
from typing import Any

import pytest

from servespec.compiler.facts.list_readers import (
    LIST_READERS,
    split_accumulator_bytes,
    tokenspeed_workspace_bytes,
    triton_threshold_requests,
)
from servespec.compiler.list_effects import EFFECTS
from servespec.diagnostics import Diagnostic
from servespec.units import Tokens, size_words
from tests.plans import REPOSITORY, Json, codes_of, compiled, model_folder, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

WIDE: Json = {"max_prefill_cudagraph_capture_tokens": 8192, "max_decode_cudagraph_capture_requests": 256}
ENGINE = {"version": "0.33.0"}
EAGLE3 = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}
SPLITS = {"compilation": WIDE, "scheduler": {"max_num_seqs": 256}, "speculative": EAGLE3}
EIGHT = {"tensor_parallel_size": 8}


def notes(model: str, gpu: str, *, count: int = 1, overrides: Json | None = None, **sections: Any) -> list[Diagnostic]:
    spec = spec_of(model, gpu, **{"compilation": WIDE, **sections, "hardware": {"gpu": gpu, "count": count}})
    spec["model"]["hf_overrides"] = overrides or {}
    return [finding for finding in compiled(spec).diagnostics if finding.code in ("P123", "P124", "P125")]


def only(found: list[Diagnostic], code: str) -> str:
    """The message of the one note, without what it says of the lists."""
    assert [note.code for note in found] == [code]
    return found[0].message.split("): ", 1)[1]


def test_every_reader_that_matters_has_an_effect_but_the_compile_caches_key() -> None:
    for readers in LIST_READERS.values():
        mattering = {sourced.value.name for sourced in readers if sourced.value.matters}
        assert mattering - {"compile-cache"} == {s.value.name for s in readers if s.value.name in EFFECTS}
    assert {sourced.value.name for readers in LIST_READERS.values() for sourced in readers} >= set(EFFECTS)


def test_the_engines_own_list_changes_nothing() -> None:
    assert notes("qwen3-8b", "h200", compilation={}, scheduler={"max_num_seqs": 256}) == []


def test_a_written_list_that_is_the_engines_own_changes_nothing() -> None:
    own = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]

    assert notes("qwen3-8b", "h200", compilation={"cudagraph_capture_sizes": own}) == []


def test_a_narrower_list_costs_nothing() -> None:
    assert notes("qwen3-8b", "h200", compilation={"cudagraph_capture_sizes": [1, 2, 4, 8]}) == []


def test_the_list_is_what_the_engine_makes_of_a_written_one() -> None:
    """It drops what no step holds, sorts, and keeps each entry once."""
    legacy = {**ENGINE, "lowering": "legacy"}

    found = notes("qwen3-8b", "h200", engine=legacy, compilation={"cudagraph_capture_sizes": [4096, 1, 8, 8, 20000]})

    assert found[0].message.startswith("the engine is given 3 sizes to 4096 tokens (stock: 51 to 512): ")


def test_a_narrower_list_keeps_less_in_flashinfer() -> None:
    few = {"cudagraph_capture_sizes": [1, 2, 4, 8]}

    assert notes("qwen3-8b", "l40s", attention={"backend": "FLASHINFER"}, compilation=few) == []


def test_no_graphs_no_list() -> None:
    assert notes("qwen3-8b", "h200", compilation={"cudagraph_mode": "NONE"}) == []


def test_accumulators_at_the_figures_of_a_dense_8b_model() -> None:
    """32 splits, 32 heads of 128: 4 GiB and the log-sum-exps, 32 MiB, at 8,192 tokens."""
    assert split_accumulator_bytes(splits=32, heads=32, tokens=Tokens(8192), value_width=128) == 2**32 + 2**25


def test_the_extension_splits_up_to_the_widest_full_graph() -> None:
    """256 requests x 8 tokens; on the whole list it would be 8,192 tokens."""
    found = notes("qwen3-8b", "h200", **SPLITS)

    assert only(found, "P123") == (
        "a step of at most 2048 tokens takes up to 1.0 GiB for 32 KV splits in FlashAttention "
        "(stock: 258.0 MiB at 512 tokens)"
    )
    assert found[0].message.startswith("the engine is given 82 sizes to 8192 tokens (stock: 51 to 512): ")
    assert found[0].help.startswith("`attention.flash_attn_max_num_splits_for_cuda_graph: 8` keeps to stock's bytes")


def test_the_splits_of_the_help_keep_to_stocks_bytes() -> None:
    fewer = {"flash_attn_max_num_splits_for_cuda_graph": 8}

    assert "up to 258.0 MiB for 8 KV splits" in only(notes("qwen3-8b", "h200", attention=fewer, **SPLITS), "P123")


def test_the_legacy_list_splits_all_of_it_and_the_extension_is_the_fix() -> None:
    found = notes("qwen3-8b", "h200", **SPLITS, engine={**ENGINE, "lowering": "legacy"})

    assert "a step of at most 8192 tokens takes up to 4.0 GiB" in only(found, "P123")
    assert found[0].help == "`engine.lowering: extension` splits no step wider than its widest FULL graph, 2048 tokens"


def test_an_engine_without_the_extension_gets_fewer_splits_as_the_fix() -> None:
    found = notes("qwen3-8b", "h200", **SPLITS, engine={"version": "0.32.0"})

    assert "8192 tokens" in only(found, "P123")
    assert found[0].help.startswith("`attention.flash_attn_max_num_splits_for_cuda_graph: 2`")


def test_accumulators_are_of_one_rank() -> None:
    found = notes("qwen3-8b", "h200", count=4, parallel={"tensor_parallel_size": 4}, **SPLITS)

    assert "up to 258.0 MiB for 32 KV splits" in only(found, "P123")


@pytest.mark.parametrize(
    ("gpu", "sections"),
    [
        ("h200", {"attention": {"flash_attn_max_num_splits_for_cuda_graph": 1}}),
        ("h200", {"engine": {**ENGINE, "env": {"VLLM_BATCH_INVARIANT": "1"}}}),
        ("h200", {"attention": {"flash_attn_version": 2}}),
        ("h200", {"compilation": {"cudagraph_mode": "PIECEWISE", "max_prefill_cudagraph_capture_tokens": 8192}}),
        ("a100-80", {}),
        ("b200", {"attention": {"backend": "FLASH_ATTN"}}),
    ],
)
def test_no_accumulators_where_nothing_is_split(gpu: str, sections: Json) -> None:
    assert notes("qwen3-8b", gpu, **{**SPLITS, **sections}) == []


def test_latent_attention_accumulates_its_latent_width_over_all_context_ranks() -> None:
    """128 heads over 8 ranks, twice that with two context ranks; 2,048 tokens, 513 numbers, 32 splits."""
    legacy = {**ENGINE, "lowering": "legacy"}
    two = {**EIGHT, "decode_context_parallel_size": 2}
    seqs = {"max_num_seqs": 2048}
    sizes = {"cudagraph_capture_sizes": [1, 2048]}

    alone = notes("deepseek-v3", "h200", count=8, parallel=EIGHT, engine=legacy, compilation=sizes, scheduler=seqs)
    both = notes("deepseek-v3", "h200", count=8, parallel=two, engine=legacy, compilation=sizes, scheduler=seqs)

    assert f"{size_words(16 * 2048 * 513 * 32 * 4)} for 32 KV splits" in only(alone, "P123")
    assert f"{size_words(32 * 2048 * 513 * 32 * 4)} for 32 KV splits" in only(both, "P123")


def test_tritons_threshold_follows_the_nearest_entry() -> None:
    sizes = {"prefill_cudagraph_capture_token_sizes": [1, 8, 512], "decode_cudagraph_capture_request_sizes": [1, 12]}

    found = notes("qwen3-8b", "a100-80", attention={"backend": "TRITON_ATTN"}, compilation=sizes)

    assert only(found, "P124") == "Triton splits the KV of decode steps to 12 requests (stock: 16)"


def test_tritons_threshold_stays_where_the_entry_stays() -> None:
    sizes = {"prefill_cudagraph_capture_token_sizes": [1, 8, 512], "decode_cudagraph_capture_request_sizes": [1, 16]}

    assert notes("qwen3-8b", "a100-80", attention={"backend": "TRITON_ATTN"}, compilation=sizes) == []


def test_the_lower_of_two_equally_near_entries() -> None:
    assert triton_threshold_requests((Tokens(8), Tokens(24)), 8) == 8
    assert triton_threshold_requests((Tokens(8), Tokens(23)), 8) == 23


def test_flashinfer_keeps_a_wrapper_for_each_size() -> None:
    found = notes("qwen3-8b", "l40s", attention={"backend": "FLASHINFER"}, scheduler={"max_num_seqs": 1024})

    assert only(found, "P123") == (
        "each size of a decode step without a FULL graph keeps 8.0 MiB in FlashInfer, to 1024 tokens (stock: 512)"
    )


def test_flashinfers_wrappers_end_at_the_widest_decode_step() -> None:
    assert notes("qwen3-8b", "l40s", attention={"backend": "FLASHINFER"}, scheduler={"max_num_seqs": 256}) == []


def test_tensorrt_decode_has_no_wrappers() -> None:
    """At K = 7 the widest decode step has 8,192 tokens, well above the engine's 1,024."""
    assert notes("qwen3-8b", "b200", attention={"backend": "FLASHINFER"}, speculative=EAGLE3) == []


def tokenspeed(splits: int) -> list[Diagnostic]:
    attention = {"backend": "TOKENSPEED_MLA", "tokenspeed_mla_min_split_kv": splits}
    memory = {"kv_cache_dtype": "fp8"}
    return notes("deepseek-v3", "b200", count=8, parallel=EIGHT, attention=attention, memory=memory)


def test_tokenspeeds_workspace() -> None:
    """Heads are padded to 128; stock holds 1,024 tokens, max_num_seqs and the engine's maximum alike."""
    planned = tokenspeed_workspace_bytes(splits=4, heads=16, tokens=Tokens(8192), latent_width=512)

    assert planned == 8192 * 128 * 4 * 513 * 4
    assert only(tokenspeed(4), "P123") == f"TokenSpeed's workspace takes {size_words(planned)} (stock: 1.0 GiB)"


def test_tokenspeed_without_a_floor_of_splits_asks_no_list() -> None:
    assert tokenspeed(1) == []


def test_decode_context_parallelism_holds_the_list() -> None:
    parallel = {**EIGHT, "decode_context_parallel_size": 4}

    found = notes("deepseek-v3", "h200", count=8, parallel=parallel, scheduler={"max_num_seqs": 128})

    assert only(found, "P123") == (
        "the workspaces of decode context parallelism hold 8192 tokens, wider steps use NCCL (stock: 256)"
    )


@pytest.mark.parametrize(("ranks", "variable", "reached"), [(2, 1, True), (2, 0, False), (1, 1, False)])
def test_the_pcie_all_reduce(ranks: int, variable: int, reached: bool) -> None:
    engine = {**ENGINE, "env": {"VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC": variable}}

    found = notes("qwen3-8b", "l40s", count=ranks, parallel={"tensor_parallel_size": ranks}, engine=engine)

    assert bool(found) is reached
    if reached:
        said = "the PCIe all-reduce has its workspace and tuning for steps to 2048 tokens (stock: 512)"
        assert only(found, "P124") == said


def test_b12x_plans_and_kernels_at_start() -> None:
    counts = list(range(1, 129))
    compilation = {**WIDE, "decode_cudagraph_capture_request_sizes": counts}
    compilation.pop("max_decode_cudagraph_capture_requests")

    found = notes(
        "qwen3-8b",
        "rtx-pro-6000",
        attention={"backend": "B12X"},
        compilation=compilation,
        scheduler={"max_num_seqs": 130},
    )

    words = only(found, "P125")
    assert "b12x makes 129 decode plans for each layer and page size (stock: 20)" in words
    assert "b12x kernels, where layers use them, are compiled for" in words


def test_qwen4s_projection() -> None:
    found = notes("qwen3-8b", "b200", overrides={"architectures": ["Qwen4ExpForCausalLM"]})

    assert only(found, "P125") == "the fused projection is compiled for 19 token counts (stock: 9)"


@pytest.mark.parametrize(("backend", "reached"), [("latency_specialized", True), ("auto", False)])
def test_kimis_specialized_decode(backend: str, reached: bool) -> None:
    found = notes(
        "kimi-linear-48b-a3b",
        "b200",
        count=8,
        parallel=EIGHT,
        overrides={"architectures": ["KimiK3ForConditionalGeneration"]},
        engine={**ENGINE, "lowering": "legacy", "args": {"additional_config": {"decode_backend": backend}}},
        compilation={"cudagraph_capture_sizes": [*range(1, 33), 2048]},
    )

    assert bool(found) is reached
    if reached:
        # 1 to 32 and the prepared 64, against 1 to 8, 16, 32, 64 and the eights between.
        assert only(found, "P125") == "specialized decode is prepared for 33 batches (stock: 15)"


def test_kimis_verify_steps_are_whole_requests() -> None:
    """At K = 3 entries become multiples of 4, of which 12 to 60 are not among those always prepared."""
    found = notes(
        "kimi-linear-48b-a3b",
        "b200",
        count=8,
        parallel=EIGHT,
        overrides={"architectures": ["KimiK3ForConditionalGeneration"]},
        speculative={"method": "dspark", "model": model_folder("dspark-draft"), "num_speculative_tokens": 3},
        engine={
            **ENGINE,
            "lowering": "legacy",
            "args": {"additional-config": {"decode_backend": "latency_specialized"}},
        },
        compilation={"cudagraph_capture_sizes": [*range(1, 65), 2048]},
    )

    assert only(found, "P125") == "specialized decode is prepared for 22 batches (stock: 15)"


def test_compile_sizes_that_name_the_list() -> None:
    found = notes("qwen3-8b", "h200", compilation={**WIDE, "compile_sizes": ["cudagraph_capture_sizes"]})

    assert only(found, "P125") == "torch.compile makes code for each of 67 sizes (stock: 51)"


def test_a_plan_has_one_note_a_consequence() -> None:
    plan = json.loads((REPOSITORY / "tests/golden/cases/readers-of-the-list/plan.json").read_text(encoding="utf-8"))

    assert sorted(codes_of(plan) & {"P123", "P124", "P125"}) == ["P123", "P124", "P125"]
    assert len(plan["diagnostics"]) == len(codes_of(plan))


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (3 << 29, "1.5 GiB")],
)
def test_sizes_in_words(size_bytes: int, words: str) -> None:
    assert size_words(size_bytes) == words

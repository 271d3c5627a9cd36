"""Weights by formula: against what the engine measured when it loaded, and by hand for the rest."""

from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.drafter_weights import drafter_lines
from servespec.compiler.memory.line import Holder, MemoryLine
from servespec.compiler.memory.matrix import Role
from servespec.compiler.memory.split import Split, split_of
from servespec.compiler.memory.weights import Decoder, Unknown, decoder_layer, decoder_of, stage_lines
from servespec.compiler.model import model_of
from servespec.provenance import Basis
from tests.memory_cases import (
    DEEPSEEK_V4_FLASH,
    FP8,
    KIMI_LINEAR_48B,
    QWEN3_8B,
    QWEN3_30B,
    QWEN3_NEXT_80B,
    eagle3_of,
    planned_model,
    public_preset,
)

GIB = 1 << 30
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
    "max_position_embeddings": 32, "tie_word_embeddings": False,
}  # fmt: skip


def decoder(config: dict[str, Any], dtype: str | None = None) -> Decoder:
    found = decoder_of(model_of(config, "0.33.0"), dtype, None)
    assert isinstance(found, Decoder), found
    return found


def stage_bytes(config: dict[str, Any], **split: int) -> tuple[int, ...]:
    stages = stage_lines(decoder(config), Split(**split), Holder.TARGET)
    return tuple(sum(line.size for line in lines) for lines in stages)


def drafted(folder: Path, target: dict[str, Any], draft: dict[str, Any], **sections: Any) -> MemoryLine:
    plan = planned_model(folder, target, draft, **sections)
    request = plan.resolution.request
    found = decoder_of(request.target, None, None)
    (line,) = drafter_lines(plan.resolution, found)
    assert isinstance(line, MemoryLine), line
    return line


@pytest.mark.parametrize(
    ("target", "measured_bytes"),
    [(QWEN3_30B, 57.03 * GIB), (QWEN3_8B, 16_932_908_564), (QWEN3_30B | FP8, 31_331_786_424)],
    ids=["30b", "8b", "30b-fp8"],
)
def test_target_and_eagle3_agree_with_what_the_engine_loaded(
    tmp_path: Path, target: dict[str, Any], measured_bytes: float
) -> None:
    (target_bytes,) = stage_bytes(target)
    draft = drafted(tmp_path, target, eagle3_of(target))

    assert target_bytes + draft.size == pytest.approx(measured_bytes, rel=0.001)


def test_a_small_llama_by_hand() -> None:
    qkv, output, mlp, norms = 64 * (4 + 2 * 2) * 16, 64 * 64, 3 * 64 * 128, 2 * 64
    vocabulary, table = 2 * 128 * 64, 32 * 16  # 100 tokens are padded to 128

    expected = 2 * (4 * (qkv + output + mlp + norms) + vocabulary + 64 + table)

    assert stage_bytes(LLAMA) == (expected,)


def test_tied_embeddings_are_stored_once() -> None:
    assert stage_bytes(LLAMA)[0] - stage_bytes(LLAMA | {"tie_word_embeddings": True})[0] == 2 * 128 * 64


def test_tensor_parallel_slices_matrices_and_keeps_norms() -> None:
    replicated = 2 * (4 * 2 * 64 + 64 + 32 * 16)

    assert 2 * (stage_bytes(LLAMA, tensor=2)[0] - replicated) == stage_bytes(LLAMA)[0] - replicated


def test_a_kv_head_is_copied_where_there_are_more_ranks() -> None:
    by_two, by_four = (stage_bytes(LLAMA, tensor=n)[0] for n in (2, 4))
    replicated = 2 * (4 * 2 * 64 + 64 + 32 * 16)
    kv_head = 2 * 4 * (2 * 64 * 16)

    assert 2 * (by_four - replicated - kv_head) == by_two - replicated - kv_head


def test_stages_hold_their_layers_and_the_vocabulary_its_ends() -> None:
    whole, stages = stage_bytes(LLAMA)[0], stage_bytes(LLAMA, pipeline=2)

    assert sum(stages) == whole + 2 * 32 * 16  # the rotary table is on both
    assert stages[1] - stages[0] == 2 * 64  # the last norm


def test_uneven_layers_go_before_the_last_stage() -> None:
    assert Split(pipeline=4).layers(10) == (2, 3, 3, 2)


def test_experts_are_spread_or_sliced_alike() -> None:
    spread, sliced = stage_bytes(QWEN3_30B, experts=8), stage_bytes(QWEN3_30B, expert_width=8)

    assert spread == sliced
    assert stage_bytes(QWEN3_30B)[0] - spread[0] == 54 * GIB * 7 // 8


def test_expert_parallel_spreads_over_data_parallel_ranks(tmp_path: Path) -> None:
    parallel = {"tensor_parallel_size": 2, "data_parallel_size": 4, "enable_expert_parallel": True}
    plan = planned_model(tmp_path, QWEN3_30B, parallel=parallel, hardware={"gpu": "h200", "count": 8})

    assert split_of(plan.resolution.request.spec) == Split(tensor=2, experts=8, has_whole_shared_experts=True)


def test_latent_attention_keeps_an_unpacked_copy_when_quantized() -> None:
    config = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "first_k_dense_replace": 3,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "num_attention_heads": 128,
        "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
        "tie_word_embeddings": False,
    }  # fmt: skip
    parameters = (stage_bytes(config)[0] - 2 * 163840 * 64) // 2

    # The public count is 671 billion, without the MTP layer.
    assert parameters == pytest.approx(671.0e9, rel=0.002)
    copies = 61 * 512 * 128 * (128 + 128) * 2
    assert stage_bytes(config | FP8)[0] == pytest.approx(parameters + copies, rel=0.005)


def test_gpt_oss_counts_biases_and_four_bit_experts() -> None:
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880,
        "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088,
        "tie_word_embeddings": False,
    }  # fmt: skip
    assert stage_bytes(config)[0] / 2 == pytest.approx(20.9e9, rel=0.005)

    (lines,) = stage_lines(decoder(config | {"quantization_config": {"quant_method": "mxfp4"}}), Split(), Holder.TARGET)
    experts = next(line for line in lines if line.owner == "routed experts")
    assert experts.size == 24 * 32 * 3 * 2880 * 2880 * 17 // 32
    assert experts.basis is Basis.ESTIMATE
    padded = 24 * 32 * 3 * 3072 * 2944 * 17 // 32
    assert experts.size < padded < experts.high


def test_an_unnamed_size_is_unknown_and_named() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "intermediate_size"}

    assert decoder_of(model_of(config, "0.33.0"), None, None) == "config.json names no `intermediate_size`"


@pytest.mark.parametrize("key", ["hidden_size_per_layer_input", "H_cycles", "per_layer_config"])
def test_tensors_of_other_kinds_are_not_left_out_of_a_guess(key: str) -> None:
    other = QWEN3_8B | {"architectures": ["NewForCausalLM"], key: 256}

    assert decoder_of(model_of(other, "0.33.0"), None, None) == "no formula is known for `NewForCausalLM`"


def test_other_layers_have_no_formula() -> None:
    hybrid = LLAMA | {"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2"}

    assert decoder_of(model_of(hybrid, "0.33.0"), None, None) == "no formula is known for `Zamba2ForCausalLM`"


@pytest.mark.parametrize(
    ("config", "billions"),
    [(DEEPSEEK_V4_FLASH, 284.0), (QWEN3_NEXT_80B, 80.0), (KIMI_LINEAR_48B, 49.0)],
    ids=["deepseek-v4-flash", "qwen3-next", "kimi-linear"],
)
def test_parameters_are_as_many_as_published(config: dict[str, Any], billions: float) -> None:
    """Kimi Linear is published as 48B; its experts alone have 47.1 billion parameters."""
    found = decoder({key: value for key, value in config.items() if key != "quantization_config"})
    (lines,) = stage_lines(found, Split(), Holder.TARGET)
    table = 2 * found.dimensions.positions * found.dimensions.rotated_width

    assert (sum(line.size for line in lines) - table) / 2e9 == pytest.approx(billions, rel=0.005)


def test_a_gated_delta_net_by_hand() -> None:
    """Queries, keys, values and gates; rates in the model's own type; a convolution, biases, decays and a norm."""
    recurrent = 12288 * 2048 + 64 * 2048 + 2048 * 4096 + 8192 * 4 + 32 + 2 * 32 + 128
    attention = (2 * 16 + 2 * 2) * 256 * 2048 + 2048 * 16 * 256 + 2 * 256
    whole, no_states = (
        stage_bytes(QWEN3_NEXT_80B | {"layer_types": [kind] * 48}) for kind in ("linear_attention", "full_attention")
    )

    assert whole[0] - no_states[0] == 48 * 2 * (recurrent - attention)


def test_ranks_divide_delta_nets_and_keep_their_norms() -> None:
    whole, half = (stage_bytes(QWEN3_NEXT_80B, tensor=ranks, expert_width=ranks)[0] for ranks in (1, 2))
    hidden, layers = 2048, 48
    shared_gate = hidden
    norms = layers * (2 * hidden + 512 * hidden + shared_gate) + hidden + 262144 * 64 + 12 * 2 * 256 + 36 * 128

    assert 2 * half - whole == 2 * norms


def test_latent_layers_alone_keep_an_unpacked_copy() -> None:
    found = decoder(KIMI_LINEAR_48B | FP8)
    recurrent, latent = (list(decoder_layer(found, Split(), index)) for index in (2, 3))

    assert [matrix for matrix in recurrent if matrix.is_plain] == []
    assert [matrix.rows * matrix.columns for matrix in latent if matrix.is_plain] == [32 * (128 + 128) * 512]


def test_a_compressed_layer_by_hand() -> None:
    """Layer 3 has the ratio 128, layer 2 the ratio 4 and an index; compressors are whole on each of 4 ranks."""
    found = decoder(DEEPSEEK_V4_FLASH)
    attention = [
        matrix for matrix in decoder_layer(found, Split(tensor=4, experts=4), 3) if matrix.role is Role.ATTENTION
    ]
    own = (1024 + 512) * 4096 + 16 * 512 * 1024 + 2048 * 4096 + 4096 * 2048
    compressor = 2 * 512 * 4096

    assert sum(matrix.rows * matrix.columns for matrix in attention) == own + compressor
    with_index = [
        matrix for matrix in decoder_layer(found, Split(tensor=4, experts=4), 2) if matrix.role is Role.ATTENTION
    ]
    index = 64 * 128 * 1024 + 64 * 4096 + 4 * 128 * 4096
    assert sum(matrix.rows * matrix.columns for matrix in with_index) == own + 2 * compressor + index


def test_experts_in_four_bits_beside_fp8() -> None:
    (lines,) = stage_lines(decoder(DEEPSEEK_V4_FLASH), Split(), Holder.TARGET)

    assert next(line for line in lines if line.owner == "routed experts").size == 43 * 256 * 3 * 2048 * 4096 * 17 // 32


def test_a_block_drafter_has_layers_that_compress_nothing(tmp_path: Path) -> None:
    four = {"hardware": {"gpu": "gb200", "count": 4}, "parallel": {"tensor_parallel_size": 4}}
    plan = planned_model(
        tmp_path, DEEPSEEK_V4_FLASH, speculative={"method": "dspark", "num_speculative_tokens": 7},
        memory={"kv_cache_dtype": "fp8"}, **four,
    )  # fmt: skip
    target = decoder(DEEPSEEK_V4_FLASH)
    (line,) = drafter_lines(plan.resolution, target)
    split = split_of(plan.resolution.request.spec)
    looked_up = 129280 * 6 * 4
    layer = sum(matrix.size_bytes(target.storage) for matrix in decoder_layer(target, split, 1)) - looked_up

    assert isinstance(line, MemoryLine)
    assert line.size == pytest.approx(3 * layer + 3 * 4096 * 4096 + 3 * 512 * 4096, rel=0.001)


def test_an_unknown_architecture_is_a_wide_estimate() -> None:
    (lines,) = stage_lines(decoder(LLAMA | {"architectures": ["NewForCausalLM"]}), Split(), Holder.TARGET)

    assert {line.basis for line in lines} == {Basis.ESTIMATE}
    assert all(line.low < 0.7 * line.size and line.high > 1.3 * line.size for line in lines)


def test_a_guess_reads_the_language_part() -> None:
    """As GLM-4.5V names its dense layer and its shared experts."""
    text = LLAMA | {
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
        "n_shared_experts": 1,
    }  # fmt: skip
    outer = {"architectures": ["NewForConditionalGeneration"], "model_type": "new", "tie_word_embeddings": False}

    assert stage_bytes(outer | {"text_config": text}) == stage_bytes(text | {"architectures": ["NewForCausalLM"]})


def test_an_unknown_quantization_has_no_formula() -> None:
    config = LLAMA | {"quantization_config": {"quant_method": "gguf"}}

    assert "`gguf`" in str(decoder_of(model_of(config, "0.33.0"), None, None))


def test_an_eagle3_head_with_a_smaller_vocabulary_has_its_own_head(tmp_path: Path) -> None:
    draft = eagle3_of(QWEN3_30B, draft_vocab_size=32000)
    shared = drafted(tmp_path / "dummy", QWEN3_30B, draft)
    own = drafted(tmp_path / "real", QWEN3_30B, draft, model={"id": str(tmp_path / "dummy" / "target")})

    assert own.size - shared.size == 2 * 32000 * 2048
    assert own.high - own.size == pytest.approx(2 * 151936 * 2048, abs=1)


@pytest.mark.parametrize("size", ["32000", [32000], -1, None])
def test_a_draft_vocabulary_that_is_no_size_is_not_read(tmp_path: Path, size: object) -> None:
    plain, odd = (
        planned_model(tmp_path / name, QWEN3_30B, eagle3_of(QWEN3_30B, draft_vocab_size=own))
        for name, own in (("plain", 151936), ("odd", size))
    )

    assert plain.ledger is not None
    assert odd.ledger == plain.ledger


def test_mtp_layers_are_the_targets_last_kind(tmp_path: Path) -> None:
    speculative = {"method": "mtp", "num_speculative_tokens": 1}
    target = QWEN3_30B | {"num_nextn_predict_layers": 1}
    plan = planned_model(tmp_path, target, speculative=speculative)
    found = decoder_of(plan.resolution.request.target, None, None)
    (line,) = drafter_lines(plan.resolution, found)

    assert isinstance(line, MemoryLine)
    layer = stage_bytes(target)[0] - stage_bytes(target | {"num_hidden_layers": 47})[0]
    assert line.size == layer + 2 * (2 * 2048 * 2048 + 3 * 2048)


def test_a_drafter_without_a_known_config_is_unknown(tmp_path: Path) -> None:
    speculative = {"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}
    plan = planned_model(tmp_path, QWEN3_8B, speculative=speculative)

    (line,) = drafter_lines(plan.resolution, decoder_of(plan.resolution.request.target, None, None))

    assert isinstance(line, Unknown)


def test_ngram_has_no_weights(tmp_path: Path) -> None:
    speculative = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
    plan = planned_model(tmp_path, QWEN3_8B, speculative=speculative)

    assert drafter_lines(plan.resolution, decoder_of(plan.resolution.request.target, None, None)) == ()


@pytest.mark.parametrize(
    ("model_type", "written", "tables"),
    [("gemma3_text", None, 1), ("gemma3_text", False, 2), ("llama", None, 2), ("llama", True, 1)],
)
def test_an_embedding_is_the_output_head_where_its_config_or_its_class_says_so(
    tmp_path: Path, model_type: str, written: bool | None, tables: int
) -> None:
    config = {key: value for key, value in QWEN3_8B.items() if key != "tie_word_embeddings"}
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": model_type}
    config |= {} if written is None else {"tie_word_embeddings": written}
    ledger = planned_model(tmp_path, config).ledger
    assert ledger is not None
    (line,) = (line for line in ledger.lines if line.owner == "embedding and output head")

    assert line.size == tables * 151936 * 4096 * 2


@pytest.mark.parametrize("name", ["DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM"])
def test_a_variable_leaves_the_embedding_whole_on_every_rank(tmp_path: Path, name: str) -> None:
    """Of the two matrices with a row for every token the output head is shared all the same."""
    config = public_preset("deepseek-ai/DeepSeek-V3.2", architectures=[name])

    def vocabulary_bytes(written: str) -> int:
        engine = {"version": "0.33.0", "env": {"VLLM_REPLICATE_EMBED": written}}
        parallel, hardware = {"tensor_parallel_size": 8}, {"gpu": "h200", "count": 8}
        planned = planned_model(tmp_path, config, engine=engine, parallel=parallel, hardware=hardware)
        (found,) = (line for line in planned.stages[0].lines if line.owner == "embedding and output head")
        return found.size

    matrix = 2 * config["hidden_size"] * config["vocab_size"]
    shared = 2 * matrix // 8
    assert vocabulary_bytes("0") == shared
    assert vocabulary_bytes("1") == (matrix + matrix // 8 if name == "DeepseekV32ForCausalLM" else shared)

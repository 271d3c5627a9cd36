"""Weights by formula: against what the engine measured when it loaded, and by hand for the rest."""

from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.drafter_weights import drafter_lines
from servespec.compiler.memory.line import Holder, MemoryLine
from servespec.compiler.memory.split import Split, split_of
from servespec.compiler.memory.weights import Decoder, Unknown, decoder_of, stage_lines
from servespec.compiler.model import model_of
from servespec.provenance import Basis
from tests.memory_cases import FP8, QWEN3_8B, QWEN3_30B, eagle3_of, planned_model

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

    assert split_of(plan.resolution.request.spec) == Split(tensor=2, experts=8)


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


def test_other_layers_have_no_formula() -> None:
    hybrid = LLAMA | {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}

    assert decoder_of(model_of(hybrid, "0.33.0"), None, None) == "no formula is known for `Qwen3NextForCausalLM`"


def test_an_unknown_architecture_is_a_wide_estimate() -> None:
    (lines,) = stage_lines(decoder(LLAMA | {"architectures": ["NewForCausalLM"]}), Split(), Holder.TARGET)

    assert {line.basis for line in lines} == {Basis.ESTIMATE}
    assert all(line.low < 0.7 * line.size and line.high > 1.3 * line.size for line in lines)


def test_an_unknown_quantization_has_no_formula() -> None:
    config = LLAMA | {"quantization_config": {"quant_method": "gguf"}}

    assert "`gguf`" in str(decoder_of(model_of(config, "0.33.0"), None, None))


def test_an_eagle3_head_with_a_smaller_vocabulary_has_its_own_head(tmp_path: Path) -> None:
    draft = eagle3_of(QWEN3_30B, draft_vocab_size=32000)
    shared = drafted(tmp_path / "dummy", QWEN3_30B, draft)
    own = drafted(tmp_path / "real", QWEN3_30B, draft, model={"id": str(tmp_path / "dummy" / "target")})

    assert own.size - shared.size == 2 * 32000 * 2048
    assert own.high - own.size == pytest.approx(2 * 151936 * 2048, abs=1)


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
    plan = planned_model(tmp_path, QWEN3_8B, speculative={"method": "eagle3", "num_speculative_tokens": 3})

    (line,) = drafter_lines(plan.resolution, decoder_of(plan.resolution.request.target, None, None))

    assert isinstance(line, Unknown)


def test_ngram_has_no_weights(tmp_path: Path) -> None:
    speculative = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
    plan = planned_model(tmp_path, QWEN3_8B, speculative=speculative)

    assert drafter_lines(plan.resolution, decoder_of(plan.resolution.request.target, None, None)) == ()

"""Weights by formula, to the byte, against the parameters of the engine's own model classes (``real_weights``)."""

import json
from typing import Any

import pytest

from servespec.compiler.facts.decoder_layers import DECODER_LAYERS
from servespec.compiler.memory.line import Holder
from servespec.compiler.memory.matrices import rotary_table
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.weights import Decoder, decoder_of, stage_lines
from servespec.compiler.model import model_of
from tests.differential.engine_process import PYTHON, installed_root, run
from tests.memory_cases import DEEPSEEK_V4_FLASH, QWEN3_NEXT_80B

Json = dict[str, Any]

_BASE: Json = {
    "dtype": "bfloat16", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1000,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
_ROUTED: Json = _BASE | {
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "norm_topk_prob": True,
}  # fmt: skip
_LOCAL: Json = _BASE | {"num_local_experts": 8, "num_experts_per_tok": 2}
_SHARED: Json = _BASE | {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
_LATENT: Json = _SHARED | {
    "kv_lora_rank": 128, "q_lora_rank": 96, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
    "num_key_value_heads": 4,
}  # fmt: skip


def named(config: Json, architecture: str, model_type: str, **more: Any) -> Json:
    return config | {"architectures": [architecture], "model_type": model_type} | more


CONFIGS = {
    "llama": named(_BASE, "LlamaForCausalLM", "llama"),
    "llama-tied-with-biases": named(
        _BASE, "LlamaForCausalLM", "llama", tie_word_embeddings=True, attention_bias=True, mlp_bias=True
    ),
    "mistral": named(_BASE, "MistralForCausalLM", "mistral"),
    "qwen2": named(_BASE, "Qwen2ForCausalLM", "qwen2"),
    "qwen3": named(_BASE, "Qwen3ForCausalLM", "qwen3"),
    "qwen2-moe": named(_ROUTED, "Qwen2MoeForCausalLM", "qwen2_moe", shared_expert_intermediate_size=256),
    "qwen3-moe": named(_ROUTED, "Qwen3MoeForCausalLM", "qwen3_moe"),
    "mixtral": named(_LOCAL, "MixtralForCausalLM", "mixtral"),
    "gpt-oss": named(_LOCAL, "GptOssForCausalLM", "gpt_oss", sliding_window=128),
    "deepseek-v2": named(_LATENT, "DeepseekV2ForCausalLM", "deepseek_v2"),
    "deepseek-v3": named(_LATENT, "DeepseekV3ForCausalLM", "deepseek_v3", topk_method="noaux_tc"),
    "glm-4-moe": named(_SHARED, "Glm4MoeForCausalLM", "glm4_moe", use_qk_norm=True, attention_bias=True),
    "glm-4-moe-lite": named(_LATENT, "Glm4MoeLiteForCausalLM", "glm4_moe_lite"),
    "minimax-m2": named(
        _LOCAL, "MiniMaxM2ForCausalLM", "minimax_m2", rotary_dim=32, use_qk_norm=True, attn_type_list=[1, 1, 1],
        scoring_func="sigmoid", use_routing_bias=True,
    ),
    "deepseek-v4": {key: value for key, value in DEEPSEEK_V4_FLASH.items() if key != "quantization_config"} | {
        "hidden_size": 512, "num_hidden_layers": 5, "compress_ratios": [0, 4, 128, 4, 0], "n_routed_experts": 8,
        "vocab_size": 1000, "max_position_embeddings": 4096, "topk_method": "noaux_tc", "swiglu_limit": 10.0,
        "routed_scaling_factor": 1.5, "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "hidden_act": "silu",
        "compress_rope_theta": 160000.0, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hc_eps": 1e-6,
        "hc_sinkhorn_iters": 20, "num_nextn_predict_layers": 1,
    },
    "qwen3-next": QWEN3_NEXT_80B | {
        "hidden_size": 256, "num_hidden_layers": 8, "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 1000,
        "max_position_embeddings": 256,
    },
}  # fmt: skip

NOT_MADE = {
    "DeepseekV32ForCausalLM": "sparse attention is not supported on a CPU",
    "GlmMoeDsaForCausalLM": "the same",
    "MiniMaxM3SparseForCausalLM": "its module needs libraries for images",
    "MiniMaxM3SparseForConditionalGeneration": "the same",
    "Qwen3_5ForCausalLM": "the same",
    "Qwen3_5ForConditionalGeneration": "the same",
    "Qwen3_5MoeForCausalLM": "the same",
    "Qwen3_5MoeForConditionalGeneration": "the same",
    "KimiLinearForCausalLM": "latent attention caches no prefixes on a CPU, which its states ask for",
}
"""Architectures with a formula that the CPU build does not make."""

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None or installed_root() is None, reason="no interpreter with an engine"),
]


def test_every_formula_is_held_against_the_engine_or_has_a_reason() -> None:
    held = {config["architectures"][0] for config in CONFIGS.values()}

    assert held.isdisjoint(NOT_MADE)
    assert held | NOT_MADE.keys() == DECODER_LAYERS.keys()


def ours(config: Json) -> int:
    """All that is stored as parameters; tables of positions are buffers."""
    found = decoder_of(model_of(config, "0.33.0"), None, None)
    assert isinstance(found, Decoder), found
    (lines,) = stage_lines(found, Split(), Holder.TARGET)
    return sum(line.size for line in lines) - rotary_table(found.dimensions).size_bytes(found.storage)


@pytest.fixture(scope="module")
def answers() -> dict[str, Json]:
    found = run("real_weights.py", None, json.dumps(list(CONFIGS.values())))
    return dict(zip(CONFIGS, found, strict=True))


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_the_engines_to_the_byte(name: str, answers: dict[str, Json]) -> None:
    assert answers[name] == {"bytes": ours(CONFIGS[name])}

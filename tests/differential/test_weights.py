"""Weights and caches by formula, to the byte, against the engine's own model classes (``real_weights``)."""

import json
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.facts.decoder_layers import DECODER_LAYERS
from servespec.compiler.memory.cache_terms import CacheTerms
from servespec.compiler.memory.kv_cache import LayerKind
from servespec.compiler.memory.kv_layers import TargetCaches, target_caches
from servespec.compiler.memory.line import Holder
from servespec.compiler.memory.matrices import rotary_table
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.weights import Decoder, decoder_of, stage_lines
from servespec.compiler.model import model_of
from tests.differential.engine_process import PYTHON, installed_root, run
from tests.memory_cases import DEEPSEEK_V4_FLASH, QWEN3_NEXT_80B, eagle3_of, planned_model

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

WAYS_OF_WRITING: dict[str, tuple[str, Json]] = {
    "a bias of attention by another key": ("llama", {"bias": True}),
    "a bias of queries, keys and values alone": ("llama", {"bias": True, "qkv_bias": False}),
    "a key of a bias that the model does not read": ("qwen3", {"qkv_bias": True}),
    "a bias of a hybrid": ("qwen3-next", {"attention_bias": True}),
    "experts in every other layer": ("deepseek-v2", {"moe_layer_freq": 2, "first_k_dense_replace": 0}),
    "heads of a width that the config's class knows": ("qwen3", {"head_dim": None}),
    "KV heads that the config's class knows": (
        "mistral", {"num_key_value_heads": None, "num_attention_heads": 16, "head_dim": 16},
    ),
    "windows in all layers": ("qwen3", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 0}),
    "windows in some layers, which the model does not read": (
        "qwen2-moe", {"sliding_window": 64, "use_sliding_window": True},
    ),
    "windows that were not asked for": ("qwen3-moe", {"sliding_window": 64}),
    "windows in every other layer, whatever is written": ("gpt-oss", {"layer_types": ["full_attention"] * 3}),
    **{f"an output head that {name} cannot tie": (name, {"tie_word_embeddings": True}) for name in (
        "deepseek-v2", "deepseek-v3", "deepseek-v4", "glm-4-moe", "glm-4-moe-lite", "gpt-oss", "minimax-m2",
        "qwen3-next",
    )},
}  # fmt: skip
"""Configs by the changes to one of those above; None takes a key out."""


def changed(base: Json, changes: Json) -> Json:
    return {key: value for key, value in (base | changes).items() if value is not None or key not in changes}


CONFIGS |= {way: changed(CONFIGS[name], changes) for way, (name, changes) in WAYS_OF_WRITING.items()}
_FALCON = changed(_BASE, {"head_dim": None, "num_key_value_heads": None})
GUESSED = {
    "cohere2": named(_BASE, "Cohere2ForCausalLM", "cohere2", sliding_window=64, num_hidden_layers=6),
    "gemma2": named(_BASE, "Gemma2ForCausalLM", "gemma2", sliding_window=64, query_pre_attn_scalar=64),
    "gemma3": named(_BASE, "Gemma3ForCausalLM", "gemma3_text", sliding_window=64, sliding_window_pattern=2),
    "exaone4": named(_BASE, "Exaone4ForCausalLM", "exaone4", num_hidden_layers=5),
    "gpt-bigcode": named(
        {"dtype": "bfloat16", "n_embd": 256, "n_head": 4, "n_layer": 3, "n_positions": 256, "vocab_size": 1000},
        "GPTBigCodeForCausalLM", "gpt_bigcode",
    ),
    "falcon-40b": named(_FALCON, "FalconForCausalLM", "falcon", new_decoder_architecture=True, num_kv_heads=2),
    "falcon-7b": named(_FALCON, "FalconForCausalLM", "falcon", multi_query=True, new_decoder_architecture=False),
}  # fmt: skip
"""Architectures without a formula of their own, whose caches are told by the keys of their configs."""

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


def ours(config: Json, ranks: int) -> int:
    """All that is stored as parameters; tables of positions are buffers."""
    found = decoder_of(model_of(config, "0.33.0"), None, None)
    assert isinstance(found, Decoder), found
    (lines,) = stage_lines(found, Split(tensor=ranks, expert_width=ranks), Holder.TARGET)
    return sum(line.size for line in lines) - rotary_table(found.dimensions).size_bytes(found.storage)


def our_caches(config: Json, ranks: int) -> list[list[int]]:
    """Bytes of a token and tokens of the window of each layer that keeps keys and values."""
    split = Split(tensor=ranks, expert_width=ranks)
    terms = CacheTerms(split=split, element_bytes=2, model_bytes=2, block_tokens=16, context_tokens=256)
    found = target_caches(model_of(config, "0.33.0"), terms)
    assert isinstance(found, TargetCaches), found
    caches = (layer for layers in found.layers for layer in layers if layer.kind is not LayerKind.STATE)
    return sorted([layer.page_bytes // layer.block_tokens, layer.window_tokens or 0] for layer in caches)


RANKS = (1, 2, 4)


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, int], Json]:
    asked = {(name, ranks): config for name, config in (CONFIGS | GUESSED).items() for ranks in RANKS}
    cases = [{"config": config, "ranks": ranks} for (_, ranks), config in asked.items()]
    return dict(zip(asked, run("real_weights.py", None, json.dumps(cases)), strict=True))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_the_engines_to_the_byte(name: str, ranks: int, answers: dict[tuple[str, int], Json]) -> None:
    config, answer = CONFIGS[name], answers[name, ranks]
    if config["model_type"] == "gpt_oss" and ranks > config["num_key_value_heads"]:
        assert "not_made" in answer, "its heads of keys and values are not repeated"
        return
    assert answer["bytes"] == ours(config, ranks), answer


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", [*CONFIGS, *GUESSED])
def test_caches_are_the_engines(name: str, ranks: int, answers: dict[tuple[str, int], Json]) -> None:
    """DeepSeek V4's pages have other types than its own, and are held against the engine's in ``test_memory``."""
    config, answer = (CONFIGS | GUESSED)[name], answers[name, ranks]
    if config["model_type"] != "deepseek_v4" and "caches" in answer:
        assert answer["caches"] == our_caches(config, ranks)


def test_every_model_is_made_on_one_rank(answers: dict[tuple[str, int], Json]) -> None:
    assert {name for name, _ in answers if "not_made" in answers[name, 1]} == set()


EAGLE3_TARGET = CONFIGS["qwen3"] | {"max_position_embeddings": 4096}
EAGLE3_HEADS: dict[str, Json] = {
    "plain": {},
    "two layers": {"num_hidden_layers": 2},
    "biases of attention": {"attention_bias": True},
    "biases of the MLP": {"mlp_bias": True},
    "a norm before the projection": {"norm_before_fc": True},
    "a norm before the projection, by its section": {"eagle_config": {"norm_before_fc": True}},
    "a norm for each hidden state": {"fc_norm": True},
    "two hidden states": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]}},
    "no hidden states of layers": {"eagle_config": {"use_aux_hidden_state": False}},
}


@pytest.mark.usefixtures("quiet_shell")
def test_eagle3_heads_are_the_engines_to_the_byte(tmp_path: Path) -> None:
    """Dummy weights share the target's vocabulary."""
    asked = {(name, ranks): eagle3_of(EAGLE3_TARGET, **EAGLE3_HEADS[name]) for name in EAGLE3_HEADS for ranks in (1, 2)}
    cases = [{"config": EAGLE3_TARGET, "ranks": ranks, "draft": head} for (_, ranks), head in asked.items()]

    def our_head(head: Json, ranks: int) -> int:
        sections: Json = {"parallel": {"tensor_parallel_size": ranks}, "hardware": {"gpu": "h200", "count": ranks}}
        plan = planned_model(tmp_path, EAGLE3_TARGET, head, 3, **sections)
        return sum(line.size for line in plan.stages[0].lines if line.owner == "EAGLE3 head")

    for (key, head), answer in zip(asked.items(), run("real_weights.py", None, json.dumps(cases)), strict=True):
        assert answer == {"bytes": our_head(head, key[1])}, key

"""What a config.json says about a model, and the longest context that the engine takes from it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts.architectures import (
    kv_cache_dtype_hook,
    largest_graph_hook,
    uses_breakable_by_default,
)
from servespec.compiler.facts.model_traits import (
    derived_max_model_len,
    is_pooling,
    limited_to_draft,
    model_traits,
)
from servespec.units import Tokens

QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_scaling": None,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V32 = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "index_topk": 2048,
    "n_routed_experts": 256,
    "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
GEMMA3 = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 3840,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
}


def test_a_mixture_of_experts() -> None:
    traits = model_traits(QWEN3_MOE)

    assert (traits.num_hidden_layers, traits.hidden_size, traits.vocab_size) == (48, 2048, 151936)
    assert (traits.num_attention_heads, traits.num_key_value_heads, traits.head_size) == (32, 4, 128)
    assert (traits.num_experts, traits.num_experts_per_token, traits.is_mixture_of_experts) == (128, 8, True)
    assert (traits.dtype, traits.tie_word_embeddings, traits.sliding_window) == ("bfloat16", False, None)
    assert not any((traits.is_mla, traits.is_hybrid, traits.is_multimodal, traits.is_pooling, traits.is_diffusion))
    assert traits.state_backends == ()


def test_latent_and_sparse_attention() -> None:
    traits = model_traits(DEEPSEEK_V32)

    assert (traits.is_mla, traits.uses_sparse_index, traits.head_size) == (True, True, 576)
    assert traits.num_experts == 256
    assert traits.quantization_method == "fp8"
    assert model_traits({**DEEPSEEK_V32, "is_causal": False}).is_mla is False
    assert model_traits({**DEEPSEEK_V32, "model_type": "llama"}).is_mla is False


def test_the_language_part_of_a_multimodal_model() -> None:
    traits = model_traits(GEMMA3)

    assert (traits.model_type, traits.text_model_type) == ("gemma3", "gemma3_text")
    assert (traits.is_multimodal, traits.is_multimodal_prefix_lm) == (True, True)
    assert (traits.num_hidden_layers, traits.head_size, traits.sliding_window) == (48, 256, 1024)


def test_what_is_not_said_is_none() -> None:
    traits = model_traits({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})

    nothing = (traits.head_size, traits.num_key_value_heads, traits.vocab_size, traits.layer_types, traits.dtype)
    assert nothing == (None, None, None, None, None)
    assert traits.num_experts == 0


def test_heads_without_a_size_of_their_own_share_the_width() -> None:
    traits = model_traits({"hidden_size": 4096, "num_attention_heads": 32})

    assert (traits.head_size, traits.num_key_value_heads) == (128, 32)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("Qwen3NextForCausalLM", ("GDN_ATTN",)),
        ("NemotronHForCausalLM", ("MAMBA2_ATTN",)),
        ("JambaForCausalLM", ("MAMBA1_ATTN",)),
        ("Lfm2ForCausalLM", ("SHORT_CONV_ATTN",)),
        ("KimiLinearForCausalLM", ("KIMI_K3_KDA",)),
        ("InternS2PreviewForConditionalGeneration", None),
        ("LlamaForCausalLM", ()),
    ],
)
def test_recurrent_layers(architecture: str, expected: tuple[str, ...] | None) -> None:
    assert model_traits({"architectures": [architecture]}).state_backends == expected


def test_a_hybrid_config_without_recurrent_layers_is_not_hybrid() -> None:
    granite = {"architectures": ["GraniteMoeHybridForCausalLM"]}

    assert model_traits({**granite, "layer_types": ["attention", "attention"]}).is_hybrid is False
    assert model_traits({**granite, "layer_types": ["mamba", "attention"]}).is_hybrid is True
    assert model_traits(granite).is_hybrid is True


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("BertModel", True),
        ("SomeNewForSequenceClassification", True),
        ("SomeNewModel", True),
        ("SomeNewForCausalLM", False),
        ("Qwen3ForCausalLM", False),
        ("GPT2LMHeadModel", False),
    ],
)
def test_pooling_models(architecture: str, expected: bool) -> None:
    assert is_pooling((architecture,), "0.33.0") is expected


def test_sinks_and_windows() -> None:
    assert model_traits({"architectures": ["GptOssForCausalLM"]}).has_attention_sinks
    assert model_traits({"add_swa_attention_sink_bias": True}).has_attention_sinks
    assert not model_traits(QWEN3_MOE).has_attention_sinks
    assert model_traits({"sliding_window": 4096, "use_sliding_window": False}).sliding_window is None


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"quant_method": "modelopt_fp4", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        (
            {"quant_method": "modelopt", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}},
            "fp8_e4m3",
        ),
        ({"quant_method": "modelopt"}, None),
        ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, None),
    ],
)
def test_the_cache_a_checkpoint_asks_for(section: dict[str, Any], expected: str | None) -> None:
    assert model_traits({"quantization_config": section}).checkpoint_kv_cache_dtype == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (QWEN3_MOE, 40960),
        (DEEPSEEK_V32, 163840),
        (GEMMA3, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 2}}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": None}}, 4096),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"mrope_section": [16], "type": "mrope"}}, 4096),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope", "factor": 32.0},
            },
            4096,
        ),
        ({"max_position_embeddings": 8192, "seq_length": 2048}, 2048),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"model_type": "mpt", "max_seq_len": 1024}, 1024),
        ({"model_type": "unnamed"}, 2048),
        ({}, None),
    ],
)
def test_the_longest_context(config: dict[str, Any], expected: int | None) -> None:
    assert derived_max_model_len(config).value == expected


def test_nested_rope_parameters_share_a_factor() -> None:
    nested = {
        "sliding_attention": {"rope_type": "default"},
        "full_attention": {"rope_type": "linear", "factor": 2.0},
    }

    assert derived_max_model_len({"max_position_embeddings": 1000, "rope_parameters": nested}).value == 2000


def test_a_shorter_draft_shortens_the_target() -> None:
    assert limited_to_draft(Tokens(32768), Tokens(2048)) == 2048
    assert limited_to_draft(Tokens(32768), None) == 32768


def test_hooks_of_architectures() -> None:
    gpt_oss = largest_graph_hook(("GptOssForCausalLM",), "0.33.0")

    assert gpt_oss is not None
    assert gpt_oss.value == 1024
    assert largest_graph_hook(("Qwen3ForCausalLM",), "0.33.0") is None
    assert kv_cache_dtype_hook(("GlmMoeDsaForCausalLM",), is_blackwell=True, version="0.33.0") == "fp8_e4m3"
    assert kv_cache_dtype_hook(("GlmMoeDsaForCausalLM",), is_blackwell=False, version="0.33.0") is None
    assert uses_breakable_by_default(("X", "HYV4ForCausalLM"), "0.32.0")


SCALARS = (
    st.none() | st.booleans() | st.integers(-10, 1 << 20) | st.floats(-1e6, 1e6) | st.sampled_from(["linear", "x"])
)
KEYS = sorted(
    {
        *QWEN3_MOE,
        *DEEPSEEK_V32,
        *GEMMA3,
        "rope_parameters",
        "layer_types",
        "is_causal",
        "compress_ratios",
        "factor",
        "type",
    }
)
VALUES = st.recursive(
    SCALARS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(KEYS), part, max_size=4),
    max_leaves=12,
)


@given(config=st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, VALUES)))
def test_no_config_is_too_odd_to_be_read(config: dict[str, Any]) -> None:
    traits = model_traits(config)
    length = derived_max_model_len(config).value

    assert traits.head_size is None or isinstance(traits.head_size, int)
    assert length is None or isinstance(length, int)


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        ({"model_type": "mistral"}, 8),
        ({"model_type": "mistral", "num_key_value_heads": 4}, 4),
        ({"model_type": "llama"}, 32),
        ({"model_type": "gpt_bigcode"}, 1),
        ({"model_type": "gpt_bigcode", "multi_query": False}, 32),
        ({"model_type": "falcon", "num_kv_heads": 8}, 1),
        ({"model_type": "falcon", "num_kv_heads": 8, "new_decoder_architecture": True}, 8),
    ],
)
def test_kv_heads_of_a_config_that_leaves_them_to_its_class(config: dict[str, Any], heads: int) -> None:
    assert model_traits({"num_attention_heads": 32, **config}).num_key_value_heads == heads

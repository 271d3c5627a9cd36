"""What must hold of memory whatever a model's sizes are."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from servespec.compiler.facts.decoder_layers import DECODER_LAYERS
from servespec.compiler.facts.state_layers import STATE_LAYERS
from servespec.compiler.memory.cache_terms import CacheTerms
from servespec.compiler.memory.compressed_layers import packs_blocks
from servespec.compiler.memory.kv_cache import KvCache, KvLayer, KvRequest, LayerKind
from servespec.compiler.memory.kv_groups import kv_cache_of
from servespec.compiler.memory.kv_layers import target_caches
from servespec.compiler.memory.line import Holder, MemoryLine
from servespec.compiler.memory.split import Split
from servespec.compiler.memory.weights import Decoder, decoder_of, stage_lines
from servespec.compiler.model import Model, model_of
from servespec.units import Bytes, Tokens

TERMS = CacheTerms(split=Split(tensor=2), element_bytes=1, model_bytes=2, block_tokens=16, context_tokens=4096)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A small dense model or mixture, its heads divisible by up to 8 ranks."""
    has_experts = draw(st.booleans())
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    return {
        "architectures": ["Qwen3MoeForCausalLM" if has_experts else "Qwen3ForCausalLM"],
        "model_type": "qwen3_moe" if has_experts else "qwen3",
        "hidden_size": 64 * draw(st.integers(1, 8)),
        "intermediate_size": 64 * draw(st.integers(1, 8)),
        "moe_intermediate_size": 64 * draw(st.integers(1, 4)),
        "num_hidden_layers": draw(st.integers(1, 12)),
        "num_attention_heads": 8 * draw(st.integers(1, 4)),
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.sampled_from([64, 128])),
        "num_experts": 8 * draw(st.integers(1, 4)) if has_experts else 0,
        "num_experts_per_tok": 2,
        "vocab_size": draw(st.integers(1, 5000)),
        "max_position_embeddings": 128,
        "tie_word_embeddings": draw(st.booleans()),
    }


def stages(config: dict[str, Any], **split: int) -> list[tuple[MemoryLine, ...]]:
    found = decoder_of(model_of(config, "0.33.0"), None, None)
    assert isinstance(found, Decoder)
    return list(stage_lines(found, Split(**split), Holder.TARGET))


def total(config: dict[str, Any], **split: int) -> int:
    return sum(line.size for lines in stages(config, **split) for line in lines)


@given(config=configs())
def test_more_layers_take_more(config: dict[str, Any]) -> None:
    more = config | {"num_hidden_layers": config["num_hidden_layers"] + 1}

    assert total(more) > total(config)


@given(config=configs(), ranks=st.sampled_from([2, 4, 8]))
def test_ranks_divide_matrices_and_nothing_is_lost(config: dict[str, Any], ranks: int) -> None:
    alone, shared = total(config), total(config, tensor=ranks, expert_width=ranks)

    assert alone <= ranks * shared
    assert shared <= alone


@given(config=configs(), ranks=st.sampled_from([2, 4, 8]))
def test_experts_of_all_ranks_are_all_experts(config: dict[str, Any], ranks: int) -> None:
    def experts(**split: int) -> int:
        return sum(line.size for lines in stages(config, **split) for line in lines if line.owner == "routed experts")

    assert experts(experts=ranks) * ranks == experts()
    assert experts(expert_width=ranks) * ranks == experts()


@given(config=configs(), count=st.integers(1, 6))
def test_stages_hold_every_layer_once(config: dict[str, Any], count: int) -> None:
    layers = Split(pipeline=count).layers(config["num_hidden_layers"])

    assert sum(layers) == config["num_hidden_layers"]
    assert max(layers) - min(layers) <= 1


@given(config=configs())
def test_scales_and_elements_of_fp8_are_about_half(config: dict[str, Any]) -> None:
    quantized = config | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}

    assert total(quantized) < total(config)


@st.composite
def caches(draw: st.DrawFn) -> KvCache:
    """Layers with attention, windows of several lengths, and states of one or more blocks."""
    kinds = draw(
        st.lists(
            st.sampled_from([(256, 0, 0), (256, 64, 0), (128, 64, 0), (96, 512, 0), (256, 0, 3)]),
            min_size=1,
            max_size=30,
        )
    )
    block_tokens = draw(st.sampled_from([16, 64]))
    layers = tuple(
        KvLayer(
            holder=Holder.TARGET,
            kind=LayerKind.STATE if blocks else LayerKind.WINDOW if window else LayerKind.FULL,
            block_tokens=block_tokens,
            page_bytes=Bytes(token_bytes * block_tokens),
            window_tokens=window or None,
            state_blocks=blocks,
            content=(token_bytes,),
        )
        for token_bytes, window, blocks in kinds
    )
    request = KvRequest(
        max_model_len_tokens=Tokens(draw(st.integers(1, 100_000))),
        in_flight_tokens=Tokens(draw(st.integers(0, 20_000))),
    )
    found = kv_cache_of(layers, request)
    assert isinstance(found, KvCache)
    return found


@given(cache=caches(), size_bytes=st.integers(0, 1 << 34), more_bytes=st.integers(0, 1 << 30))
def test_more_memory_never_holds_fewer_tokens(cache: KvCache, size_bytes: int, more_bytes: int) -> None:
    assert cache.tokens(size_bytes + more_bytes) >= cache.tokens(size_bytes)


@given(cache=caches(), shorter=st.integers(1, 100_000))
def test_a_shorter_context_never_needs_more(cache: KvCache, shorter: int) -> None:
    longest = cache.request.max_model_len_tokens

    assert cache.at(min(shorter, longest)).smallest_bytes <= cache.smallest_bytes


@given(cache=caches())
def test_the_least_cache_holds_the_longest_request(cache: KvCache) -> None:
    assert cache.concurrency(cache.smallest_bytes) >= 1


@given(cache=caches())
def test_groups_hold_every_layer(cache: KvCache) -> None:
    assert all(group.block_bytes <= cache.block_bytes for group in cache.groups)
    assert all(group.layers > 0 for group in cache.groups)


_VALUES = (
    st.none() | st.booleans() | st.integers(-2, 300) | st.text(max_size=3) | st.lists(st.integers(0, 9), max_size=3)
)
_KEYS = st.sampled_from(
    [
        "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "vocab_size", "num_experts", "num_experts_per_tok", "n_shared_experts",
        "first_k_dense_replace", "decoder_sparse_step", "mlp_only_layers", "layer_types", "sliding_window",
        "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "index_topk",
        "index_head_dim", "index_n_heads", "quantization_config", "max_position_embeddings", "partial_rotary_factor",
        "draft_vocab_size", "target_hidden_size", "num_aux_hidden_states", "eagle_config", "tie_word_embeddings",
    ]
)  # fmt: skip
_QUANTIZATION = st.fixed_dictionaries(
    {"quant_method": st.sampled_from(["fp8", "awq", "gptq", "mxfp4", "compressed-tensors", "modelopt", "gguf"])},
    optional={
        "weight_block_size": _VALUES, "bits": _VALUES, "group_size": _VALUES, "quant_algo": _VALUES,
        "config_groups": _VALUES | st.just({"group_0": {"weights": {"num_bits": 4, "group_size": 32}}}),
    },
)  # fmt: skip


@settings(max_examples=300)
@given(
    architecture=st.sampled_from([*DECODER_LAYERS, "NewForCausalLM"]),
    base=configs(),
    changes=st.dictionaries(_KEYS, _VALUES | _QUANTIZATION, max_size=6),
)
def test_no_config_is_a_fault_of_ours(architecture: str, base: dict[str, Any], changes: dict[str, Any]) -> None:
    """Whatever a config.json holds, its weights and layers are counted, or it is said why they are not."""
    is_latent = architecture.startswith(("Deepseek", "Glm4MoeLite"))
    model = model_of(
        base | {"architectures": [architecture], "model_type": "deepseek_v3" if is_latent else "x"} | changes, "0.33.0"
    )
    found = decoder_of(model, None, None)
    if isinstance(found, Decoder):
        assert all(
            line.size > 0 for lines in stage_lines(found, Split(tensor=2, pipeline=2), Holder.TARGET) for line in lines
        )
    assert_counted(model)


def assert_counted(model: Model) -> None:
    target = target_caches(model, TERMS)
    if isinstance(target, str):
        assert target
        return
    layers = tuple(layer for caches in target.layers for layer in caches)
    assert all(layer.page_bytes > 0 and layer.block_tokens > 0 for layer in layers)
    if layers:
        request = KvRequest(max_model_len_tokens=Tokens(4096), in_flight_tokens=Tokens(64))
        found = kv_cache_of(layers, request, packs_blocks=packs_blocks(model))
        assert found if isinstance(found, str) else found.block_bytes > 0


_OTHER_KEYS = st.sampled_from(
    [
        "compress_ratios", "compress_rates", "sliding_window", "head_dim", "index_head_dim", "num_hidden_layers",
        "layer_types", "layers_block_type", "full_attention_interval", "attn_layer_period", "attn_layer_offset",
        "hybrid_override_pattern", "linear_attn_config", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "mamba_num_heads", "mamba_head_dim",
        "n_groups", "ssm_state_size", "conv_kernel", "mamba_expand", "mamba_n_heads", "mamba_d_head", "mamba_d_ssm",
        "mamba_n_groups", "mamba_d_state", "mamba_d_conv", "conv_dim", "conv_L_cache", "num_heads", "expand",
        "state_size", "mamba_ssm_dtype", "mamba_ssm_cache_dtype", "sparse_attention_config", "kv_lora_rank",
    ]
)  # fmt: skip
_STATES = {
    "linear_num_key_heads": 8, "linear_num_value_heads": 8, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
    "conv_kernel": 4, "mamba_expand": 2, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_ssm": 512,
    "mamba_n_groups": 8, "mamba_d_state": 16, "mamba_d_conv": 4, "conv_dim": 512, "conv_L_cache": 3,
    "compress_ratios": [0, 4, 128] * 4, "sliding_window": 128, "index_head_dim": 128, "full_attention_interval": 4,
    "linear_attn_config": {"kda_layers": [1, 2, 3], "num_heads": 8, "head_dim": 128, "short_conv_kernel_size": 4},
}  # fmt: skip


@settings(max_examples=300)
@given(
    architecture=st.sampled_from([*STATE_LAYERS, "DeepseekV4ForCausalLM", "MiniMaxM3SparseForCausalLM"]),
    base=configs(),
    changes=st.dictionaries(_OTHER_KEYS, _VALUES | st.dictionaries(_OTHER_KEYS, _VALUES, max_size=3), max_size=4),
)
def test_no_config_of_states_or_compressed_contexts_is_a_fault_of_ours(
    architecture: str, base: dict[str, Any], changes: dict[str, Any]
) -> None:
    kind = "deepseek_v4" if architecture.startswith("Deepseek") else "x"

    assert_counted(model_of(base | _STATES | {"architectures": [architecture], "model_type": kind} | changes, "0.33.0"))

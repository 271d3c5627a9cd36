"""Widths of the tensors of DeepSeek V4's forward pass on one rank, from a resolved spec."""

from collections.abc import Mapping
from typing import Any

from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.facts.graph_memory import (
    FORKED_TOKENS,
    FORKED_TOKENS_VARIABLE,
    INDEXED_RATIO,
    PADDED_HEADS,
    SUPPORTED_HEADS,
)
from servespec.compiler.facts.memory import SCALED_FOUR_BIT_ELEMENTS
from servespec.compiler.facts.model_traits import ModelTraits
from servespec.compiler.memory.compress_ratios import compress_ratios
from servespec.compiler.memory.compressed_pass import CompressedPass, Index
from servespec.compiler.memory.config_sizes import merged_config, size_of
from servespec.compiler.memory.indexer_logits import indexer_row
from servespec.compiler.memory.model_pass import ContextScores
from servespec.compiler.memory.split import split_of
from servespec.compiler.model import Model
from servespec.compiler.resolve.request import engine_field, variable_count
from servespec.compiler.resolve.resolution import Resolution

_BF16_BYTES = 2
_FP32_BYTES = 4
_PLAIN_BACKEND = "FLASHINFER_MLA_SPARSE_DSV4"


def is_compressed(traits: ModelTraits) -> bool:
    """Whether attention has latent keys that no rank of a projection describes, as DeepSeek V4's."""
    return traits.is_mla and traits.kv_lora_rank is None


def compressed_pass(resolution: Resolution, model: Model) -> CompressedPass:
    """The target's whole one, without auxiliary outputs."""
    spec, traits, config = resolution.request.spec, model.traits, merged_config(model)
    split, ratios = split_of(spec), _ratios(model)
    heads = max(1, traits.num_attention_heads // split.tensor) if traits.num_attention_heads else 0
    width = _BF16_BYTES * (traits.head_size or 0)
    hidden = _BF16_BYTES * (traits.hidden_size or 0)
    has_fused_router = split.has_whole_shared_experts
    return CompressedPass(
        ratios=ratios,
        aux_layers=(),
        hidden=hidden,
        states=size_of(config, "hc_mult") or 1,
        token_ranks=split.tensor if split.has_whole_shared_experts else 1,
        matrix_ranks=split.tensor,
        compressed_queries=_BF16_BYTES * (traits.q_lora_rank or 0),
        latents=width,
        own_queries=heads * width,
        queries=_kernel_queries(resolution, heads) * width,
        output=_padded_heads(resolution, heads) * width,
        grouped=_BF16_BYTES * size_of(config, "o_groups") * size_of(config, "o_lora_rank") // split.tensor,
        compressor=_FP32_BYTES * 2 * (traits.head_size or 0),
        index=_index(resolution, config),
        scores=_scores(resolution, ratios),
        router=0 if has_fused_router else _FP32_BYTES * (traits.num_experts or 0),
        scale_group=_scale_group(traits),
        scale_bytes=1 if is_sm100(resolution.device) else _FP32_BYTES,
        forks_up_to=_forks_up_to(resolution),
    )


def _ratios(model: Model) -> tuple[int, ...]:
    """One of every layer; 0 where the config does not tell."""
    layers = model.traits.num_hidden_layers or 1
    written = merged_config(model).get("compress_ratios")
    known = compress_ratios(model) or (tuple(written) if isinstance(written, list) else ())
    ratios = tuple(ratio if isinstance(ratio, int) else 0 for ratio in known)[:layers]
    return ratios + (0,) * (layers - len(ratios))


def _padded_heads(resolution: Resolution, heads: int) -> int:
    """Of a kernel's queries and outputs.

    Sources: vllm/models/deepseek_v4/nvidia/flashmla.py: DeepseekV4FlashMLAAttention.get_padded_num_q_heads;
    vllm/models/deepseek_v4/nvidia/flashinfer_sparse.py: _pad_to_supported_q_heads.
    """
    if _uses_flashinfer(resolution):
        return next((count for count in SUPPORTED_HEADS.value if heads <= count), heads) if heads else 0
    return PADDED_HEADS.value * (1 if heads <= PADDED_HEADS.value else 2) if heads else 0


def _kernel_queries(resolution: Resolution, heads: int) -> int:
    """Heads of the queries that go with packed keys into a tensor of their own.

    Source: vllm/models/deepseek_v4/attention.py: DeepseekV4Attention._fused_qnorm_rope_kv_insert.
    """
    keeps_plain_rows = _uses_flashinfer(resolution) and resolution.device.compute_capability[0] != 12
    return 0 if keeps_plain_rows else _padded_heads(resolution, heads)


def _uses_flashinfer(resolution: Resolution) -> bool:
    """Source: vllm/models/deepseek_v4/nvidia/model.py: _select_dsv4_attn_cls."""
    named = engine_field(resolution.request.spec, "attention", "backend", None)
    return named == _PLAIN_BACKEND or (named is None and resolution.device.compute_capability[0] == 12)


def _index(resolution: Resolution, config: Mapping[str, Any]) -> Index:
    """Source: vllm/models/deepseek_v4/common/ops/fused_indexer_q.py: fused_indexer_q_rope_quant."""
    heads, width = size_of(config, "index_n_heads"), size_of(config, "index_head_dim")
    has_four_bits = engine_field(resolution.request.spec, "attention", "indexer_kv_dtype", None) == "mxfp4"
    in_four_bits = (heads * width // 2, heads * width // SCALED_FOUR_BIT_ELEMENTS.value)
    return Index(
        queries=_BF16_BYTES * heads * width,
        packed_queries=in_four_bits if has_four_bits else (heads * width,),
        weights=_BF16_BYTES * heads,
        scaled_weights=_FP32_BYTES * heads,
        compressor=_FP32_BYTES * 2 * width,
        chosen=_FP32_BYTES * size_of(config, "index_topk"),
    )


def _scores(resolution: Resolution, ratios: tuple[int, ...]) -> ContextScores | None:
    row = indexer_row(resolution)
    layers = frozenset(layer for layer, ratio in enumerate(ratios) if ratio == INDEXED_RATIO.value)
    return None if row is None else ContextScores(layers=layers, row=row)


def _scale_group(traits: ModelTraits) -> int:
    block = (traits.quantization_config or {}).get("weight_block_size")
    return int(block[0]) if traits.quantization_method == "fp8" and isinstance(block, list) and block else 0


def _forks_up_to(resolution: Resolution) -> int:
    written = variable_count(resolution.request.spec, FORKED_TOKENS_VARIABLE)
    return FORKED_TOKENS.value if written is None else written

"""Which layers of target and drafter keep KV, and how many bytes a block takes of each, from their config.json."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from servespec.compiler.facts.decoder_layers import DECODER_LAYERS
from servespec.compiler.facts.memory import INDEX_SCALE_ELEMENTS, SPARSE_FP8_TOKEN_BYTES
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.facts.mtp_layers import GEMMA4_DRAFTERS
from servespec.compiler.facts.state_layers import STATE_LAYERS
from servespec.compiler.memory.cache_terms import CacheTerms, terms_of
from servespec.compiler.memory.compress_ratios import block_draft_layers, compresses_context
from servespec.compiler.memory.compressed_layers import (
    compressed_layers,
    packs_blocks,
    window_layer,
)
from servespec.compiler.memory.config_sizes import is_size
from servespec.compiler.memory.kv_cache import KvCache, KvLayer, KvRequest, LayerKind
from servespec.compiler.memory.kv_groups import kv_cache_of
from servespec.compiler.memory.line import Holder
from servespec.compiler.memory.recurrent_sizes import has_states, layer_states, state_facts
from servespec.compiler.memory.sparse_index import layers_with_index
from servespec.compiler.memory.split import drafter_split_of, split_of
from servespec.compiler.memory.stage import WHOLE_MODEL, Stage
from servespec.compiler.memory.state_layers import hybrid_block_tokens, state_bytes, state_layer
from servespec.compiler.memory.windows import windows_of
from servespec.compiler.model import Model
from servespec.compiler.resolve.cache_dtype import draft_kv_cache_dtype
from servespec.compiler.resolve.request import engine_field, max_model_len, turns_on
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Bytes, Tokens

UNPACKS_LATENT = "VLLM_MLA_DISABLE"
"""Keys and values of every head in place of one vector for all.

Source: vllm/transformers_utils/model_arch_config_convertor.py: ModelArchConfigConvertorBase.get_head_size.
"""
_WITHOUT_CACHE = (None, "ngram", "ngram_gpu", "suffix")
_OTHER_LAYOUTS = (
    "global_head_dim",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "attention_chunk_size",
    "compress_ratios",
    "compress_rates",
    "block_configs",
    "per_layer_config",
    "H_cycles",
)
"""Keys of layers whose cache has a layout of its own."""

Layers = tuple[tuple[KvLayer, ...], ...]
"""The caches of each decoder layer."""


@dataclass(frozen=True, slots=True)
class TargetCaches:
    """The target's caches, and the terms that its drafter's are made by too."""

    layers: Layers
    terms: CacheTerms


def kv_cache_plan(resolution: Resolution, stage: Stage = WHOLE_MODEL) -> KvCache | str:
    """The cache on one pipeline stage, or why it cannot be told."""
    request = resolution.request
    length = max_model_len(request).value
    if not length:
        return "the longest context is not known"
    terms = terms_of(resolution, length)
    if isinstance(terms, str):
        return terms
    if request.target.traits.is_mla and turns_on(request.spec, UNPACKS_LATENT):
        return f"no formula is known for the cache of latent attention under `{UNPACKS_LATENT}`"
    target = target_caches(request.target, terms)
    if isinstance(target, str):
        return target
    drafter = _drafter_layers(resolution, target)
    if isinstance(drafter, str):
        return drafter
    layers = tuple(_on_stages(resolution, target.layers, drafter))
    if not layers:
        return "no layer keeps a cache"
    found = kv_cache_of(
        layers,
        _request(resolution, Tokens(length)),
        keeps_windows=not engine_field(request.spec, "scheduler", "disable_hybrid_kv_cache_manager", False),
        packs_blocks=packs_blocks(request.target),
        stage=stage.index,
    )
    if isinstance(found, KvCache) and not found.block_bytes:
        return "a pipeline stage holds no layer"
    return found


def _on_stages(resolution: Resolution, target: Layers, drafter: tuple[KvLayer, ...]) -> list[KvLayer]:
    """The drafter lives on the last stage."""
    stages = resolution.request.spec.parallel.pipeline_parallel_size
    counts = split_of(resolution.request.spec).layers(len(target))
    stage_of = [stage for stage, count in enumerate(counts) for _ in range(count)]
    own = [replace(layer, stage=stage) for stage, caches in zip(stage_of, target, strict=True) for layer in caches]
    return [*own, *(replace(layer, stage=stages - 1) for layer in drafter)]


def _request(resolution: Resolution, length: Tokens) -> KvRequest:
    """Source: vllm/config/vllm.py: VllmConfig.max_in_flight_tokens."""
    spec = resolution.request.spec
    pipelined = spec.parallel.pipeline_parallel_size
    overlaps = engine_field(spec, "scheduler", "async_scheduling", None) is not False
    batches = pipelined + 1 if overlaps else pipelined
    return KvRequest(
        max_model_len_tokens=length,
        in_flight_tokens=Tokens(batches * resolution.frame.max_num_batched_tokens),
        context_ranks=int(engine_field(spec, "parallel", "decode_context_parallel_size", 1) or 1),
        retained_tokens=_retained_tokens(resolution),
    )


def _retained_tokens(resolution: Resolution) -> int:
    """Modules that run in turn read past a prefill's end, so windows keep as many tokens more.

    Source: vllm/config/vllm.py: VllmConfig.num_prefill_lookahead_tokens.
    """
    draft = resolution.request.draft
    runs_in_turn = resolution.drafting.method.value == "mtp" and draft is not None and draft.mtp_modules > 1
    return max(0, resolution.frame.num_speculative_tokens - 1) if runs_in_turn else 0


def target_caches(model: Model, terms: CacheTerms) -> TargetCaches | str:
    """The target's caches on one rank, or why they cannot be told."""
    if has_states(model):
        return _hybrid(model, terms)
    found = layers_of(model, terms, Holder.TARGET)
    return found if isinstance(found, str) else TargetCaches(found, terms)


def is_known_layout(model: Model) -> bool:
    """Whether the engine's model was read, and not only its config."""
    names = model.traits.architectures
    return compresses_context(model) or any(name in DECODER_LAYERS or name in STATE_LAYERS for name in names)


# Attention


def layers_of(model: Model, terms: CacheTerms, holder: Holder) -> Layers | str:
    """Every cache of a model that has attention in all layers, on one rank, or why that cannot be told."""
    if compresses_context(model):
        return compressed_layers(model, terms)
    because = _has_other_layout(model)
    if because:
        return because
    return _attention_layers(model, terms, holder)


def _has_other_layout(model: Model) -> str:
    traits, text = model.traits, text_config(model.config)
    name = next(iter(traits.architectures), "a model without architectures")
    if has_states(model) or traits.is_encoder_decoder:
        return f"no formula is known for the states of `{name}`"
    keys = _OTHER_LAYOUTS if traits.is_mla else (*_OTHER_LAYOUTS, "kv_lora_rank")
    key = next((key for key in keys if text.get(key)), None)
    return f"no formula is known for the cache of a model with `{key}`" if key else ""


def _attention_layers(model: Model, terms: CacheTerms, holder: Holder) -> Layers | str:
    traits = model.traits
    if not is_size(traits.num_hidden_layers):
        return "config.json names no `num_hidden_layers`"
    if traits.is_mla:
        return _latent_layers(model, terms, holder, traits.num_hidden_layers)
    token_bytes = _token_bytes(model, terms)
    if isinstance(token_bytes, str):
        return token_bytes
    windows = windows_of(model, traits.num_hidden_layers)
    if isinstance(windows, str):
        return windows
    plain = tuple(_attention_layer(model, terms, holder, token_bytes, window) for window in windows)
    return _with_index(model, terms, plain)


def _token_bytes(model: Model, terms: CacheTerms) -> Bytes | str:
    """Keys and values of one token in one layer."""
    traits = model.traits
    if not is_size(traits.head_size) or not is_size(traits.num_key_value_heads):
        return "config.json names no size of heads"
    return Bytes(2 * terms.split.kv_heads(traits.num_key_value_heads) * traits.head_size * terms.element_bytes)


def _attention_layer(
    model: Model, terms: CacheTerms, holder: Holder, token_bytes: Bytes, window: int | None = None
) -> KvLayer:
    return KvLayer(
        holder=holder,
        kind=LayerKind.FULL if window is None else LayerKind.WINDOW,
        block_tokens=terms.block_tokens,
        page_bytes=Bytes(terms.block_tokens * token_bytes),
        window_tokens=window,
        content=(terms.split.kv_heads(model.traits.num_key_value_heads or 1), model.traits.head_size or 0),
    )


def _latent_layer(terms: CacheTerms, holder: Holder, token_bytes: int) -> KvLayer:
    return KvLayer(
        holder=holder,
        kind=LayerKind.LATENT,
        block_tokens=terms.block_tokens,
        page_bytes=Bytes(terms.block_tokens * token_bytes),
        content=(token_bytes,),
    )


def _latent_token_bytes(model: Model, terms: CacheTerms) -> int:
    """One vector for all heads, whole on each rank."""
    packed = model.traits.uses_sparse_index and packs_scales(terms)
    return SPARSE_FP8_TOKEN_BYTES.value if packed else (model.traits.head_size or 0) * terms.element_bytes


def packs_scales(terms: CacheTerms) -> bool:
    """Whether a backend of sparse attention keeps scales and positions beside an fp8 vector.

    Source: vllm/model_executor/layers/attention/mla_attention.py: _canonicalize_sparse_mla_kv_cache_dtype.
    """
    by_backend = {
        "FLASHMLA_SPARSE": ("fp8", "fp8_e4m3", "fp8_e5m2"),
        "FLASHINFER_MLA_SPARSE_SM120": ("auto", "bfloat16", "fp8", "fp8_e4m3"),
    }
    return terms.dtype == "fp8_ds_mla" or terms.dtype in by_backend.get(terms.backend, ())


def _latent_layers(model: Model, terms: CacheTerms, holder: Holder, layers: int) -> Layers | str:
    """The vectors, and beside them the keys of the sparse index where a layer has one.

    Source: vllm/models/deepseek_v32/attention.py: DeepseekV32Attention.
    """
    if not is_size(model.traits.head_size):
        return "config.json names no `kv_lora_rank`"
    vectors = _latent_layer(terms, holder, _latent_token_bytes(model, terms))
    if not model.traits.uses_sparse_index:
        return ((vectors,),) * layers
    width = text_config(model.config).get("index_head_dim")
    if not is_size(width):
        return "config.json names no `index_head_dim`"
    index_bytes = width + 4 * (width // INDEX_SCALE_ELEMENTS.value)
    index = _latent_layer(terms, holder, index_bytes)
    return tuple((vectors, index) if has else (vectors,) for has in layers_with_index(model, layers))


def _with_index(model: Model, terms: CacheTerms, layers: tuple[KvLayer, ...]) -> Layers | str:
    """MiniMax M3: the keys of an index beside those of attention, one head on every rank.

    Source: vllm/models/minimax_m3/common/indexer.py: MiniMaxM3IndexerCache.
    """
    section = text_config(model.config).get("sparse_attention_config")
    if not isinstance(section, Mapping):
        return tuple((layer,) for layer in layers)
    width, has_index = section.get("sparse_index_dim"), section.get("sparse_attention_freq")
    if not is_size(width) or not isinstance(has_index, list) or len(has_index) < len(layers):
        return "config.json names no `sparse_index_dim`, or no `sparse_attention_freq` for every layer"
    index = _latent_layer(terms, layers[0].holder, width * (1 if terms.index_type.startswith("fp8") else 2))
    return tuple((layer, index) if has else (layer,) for layer, has in zip(layers, has_index, strict=False))


# States


def _hybrid(model: Model, terms: CacheTerms) -> TargetCaches | str:
    """Attention and states; a page of attention is made as wide as a state, and a state is padded to it."""
    facts = state_facts(model)
    if facts is None:
        name = next(iter(model.traits.architectures), "a model without architectures")
        return f"no formula is known for the states of `{name}`"
    kinds, own_bytes = layer_states(model, facts), state_bytes(model, facts, terms)
    if isinstance(kinds, str) or isinstance(own_bytes, str):
        return kinds if isinstance(kinds, str) else str(own_bytes)
    if not any(kinds.attends):
        state = state_layer(model, facts, terms, own_bytes, None)
        return TargetCaches(tuple((state,) for _ in kinds.recurs), terms)
    token_bytes = _latent_token_bytes(model, terms) if model.traits.is_mla else _token_bytes(model, terms)
    if isinstance(token_bytes, str):
        return token_bytes
    if not is_size(token_bytes):
        return "config.json names no `kv_lora_rank`"
    wider = terms.with_block(hybrid_block_tokens(model, facts, terms, Bytes(token_bytes), own_bytes))
    page_bytes = Bytes(wider.block_tokens * token_bytes)
    attention = (
        _latent_layer(wider, Holder.TARGET, token_bytes)
        if model.traits.is_mla
        else _attention_layer(model, wider, Holder.TARGET, Bytes(token_bytes))
    )
    state = state_layer(model, facts, wider, own_bytes, page_bytes)
    pairs = zip(kinds.attends, kinds.recurs, strict=True)
    return TargetCaches(tuple((attention,) * attends + (state,) * recurs for attends, recurs in pairs), wider)


# The drafter


def _drafter_layers(resolution: Resolution, target: TargetCaches) -> tuple[KvLayer, ...] | str:
    request, method = resolution.request, resolution.drafting.method.value
    draft = request.draft
    if method in _WITHOUT_CACHE:
        return ()
    if draft is None:
        return "the draft model's config.json is not known"
    if draft.traits.model_type in GEMMA4_DRAFTERS.value:
        return ()
    if draft is request.target:
        is_alike = draft_kv_cache_dtype(request, method) == target.terms.dtype
        return _own_layers(draft, target, method) if is_alike else "no formula is known for own layers of another type"
    terms = _drafter_terms(resolution, target.terms)
    if isinstance(terms, str):
        return f"the drafter: {terms}"
    found = layers_of(draft, terms, Holder.DRAFTER)
    return f"the drafter: {found}" if isinstance(found, str) else tuple(layer for layers in found for layer in layers)


def _drafter_terms(resolution: Resolution, terms: CacheTerms) -> CacheTerms | str:
    """A draft model of its own has its own ranks, and any drafter may have another cached type."""
    request, method = resolution.request, resolution.drafting.method.value
    own = terms.with_split(drafter_split_of(request.spec)) if method == "draft_model" else terms
    dtype = draft_kv_cache_dtype(request, method)
    return own if dtype == own.dtype else own.with_dtype(dtype, request.spec)


def _own_layers(model: Model, target: TargetCaches, method: str | None) -> tuple[KvLayer, ...] | str:
    """MTP layers are of the kind of the target's last layer with attention, and have an index where any layer has.

    Those of compressed targets have windows.

    Source: vllm/models/deepseek_v4/nvidia/dspark.py: DSparkDeepseekV4Model.
    """
    count = block_draft_layers(model) if method == "dspark" and compresses_context(model) else model.draft_tokens
    if method not in ("mtp", "dspark") or not count or (method == "dspark" and not compresses_context(model)):
        return "the drafter's layers are not in config.json"
    if compresses_context(model):
        window = window_layer(model, target.terms, Holder.DRAFTER)
        return window if isinstance(window, str) else (window,) * count
    attention = [layers for layers in target.layers if any(layer.kind is not LayerKind.STATE for layer in layers)]
    if not attention:
        return "the drafter's layers are not in config.json"
    fullest = max(reversed(attention), key=len)
    own = tuple(replace(layer, holder=Holder.DRAFTER) for layer in fullest if layer.kind is not LayerKind.STATE)
    return own * count

"""Which layers of target and drafter keep KV, and how many bytes a token takes of each, from their config.json."""

from servespec.compiler.facts.decoder_layers import DECODER_LAYERS
from servespec.compiler.facts.memory import (
    ALTERNATING_WINDOWS,
    BLOCK_TOKENS,
    DEFAULT_BLOCK_TOKENS,
    INDEX_SCALE_ELEMENTS,
    SPARSE_FP8_TOKEN_BYTES,
)
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.memory.kv_cache import KvCache, KvLayer, KvRequest, kv_cache_of
from servespec.compiler.memory.line import Holder
from servespec.compiler.memory.split import Split, drafter_split_of, split_of
from servespec.compiler.memory.storage import dtype_bytes
from servespec.compiler.model import Model
from servespec.compiler.resolve.request import engine_field, max_model_len
from servespec.compiler.resolve.resolution import Resolution
from servespec.schema.spec import ServingSpec
from servespec.units import Bytes, Tokens

_WITHOUT_CACHE = (None, "ngram", "ngram_gpu", "suffix")
_OTHER_LAYOUTS = (
    "global_head_dim",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "attention_chunk_size",
    "compress_ratios",
    "sparse_attention_config",
)
"""Keys of layers whose cache has a layout of its own."""


def kv_cache_plan(resolution: Resolution, stage: int) -> KvCache | str:
    """The cache on one pipeline stage, or why it cannot be told."""
    request = resolution.request
    spec, split = request.spec, split_of(request.spec)
    length = max_model_len(request).value
    if not length:
        return "the longest context is not known"
    element_bytes = _element_bytes(spec, request.target)
    if element_bytes is None:
        return f"no formula is known for the cache type `{spec.memory.kv_cache_dtype}`"
    target = layers_of(request.target, split, element_bytes, Holder.TARGET)
    if isinstance(target, str):
        return target
    stages = split.layers(request.target.traits.num_hidden_layers or 0)
    first = sum(stages[:stage])
    own = tuple(_of_stage(target, first, stages[stage], request.target))
    drafter = _drafter_layers(resolution, element_bytes) if stage == len(stages) - 1 else ()
    if isinstance(drafter, str):
        return drafter
    if not own and not drafter:
        return "the widest stage holds no layer"
    return kv_cache_of(
        (*own, *drafter),
        _block_tokens(resolution),
        _request(resolution, Tokens(length)),
        keeps_windows=not engine_field(spec, "scheduler", "disable_hybrid_kv_cache_manager", False),
    )


def _of_stage(layers: tuple[KvLayer, ...], first: int, count: int, model: Model) -> tuple[KvLayer, ...]:
    """Layers with a sparse index keep two caches each."""
    each = len(layers) // (model.traits.num_hidden_layers or 1)
    return layers[first * each : (first + count) * each]


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
    )


def _block_tokens(resolution: Resolution) -> int:
    """Source: vllm/platforms/interface.py: Platform.update_block_size_for_backend."""
    written = resolution.request.spec.memory.block_size
    if written is not None:
        return written
    backend = resolution.candidates[0].backend if resolution.candidates else ""
    return BLOCK_TOKENS.get(backend, DEFAULT_BLOCK_TOKENS).value


def _element_bytes(spec: ServingSpec, target: Model) -> int | None:
    """Bytes of one cached element; None for packed types."""
    written = spec.memory.kv_cache_dtype
    name = target.traits.checkpoint_kv_cache_dtype if written in (None, "auto") else written
    if name is None:
        return dtype_bytes(spec.model.dtype)
    if name in ("bfloat16", "float16", "half"):
        return 2
    return 1 if name in ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "fp8_inc") else None


def layers_of(model: Model, split: Split, element_bytes: int, holder: Holder) -> tuple[KvLayer, ...] | str:
    """Every cache of a model on one rank, or why that cannot be told."""
    because = _has_other_layout(model)
    if because:
        return because
    traits = model.traits
    if not traits.num_hidden_layers:
        return "config.json names no `num_hidden_layers`"
    if traits.is_mla:
        return _latent_layers(model, element_bytes, holder)
    if not traits.head_size or not traits.num_key_value_heads:
        return "config.json names no size of heads"
    token_bytes = Bytes(2 * split.kv_heads(traits.num_key_value_heads) * traits.head_size * element_bytes)
    return tuple(
        KvLayer(holder=holder, token_bytes=token_bytes, window_tokens=window)
        for window in _windows(model, traits.num_hidden_layers)
    )


def _has_other_layout(model: Model) -> str:
    traits, text = model.traits, text_config(model.config)
    name = next(iter(traits.architectures), "a model without architectures")
    if traits.is_hybrid or traits.is_attention_free or traits.is_encoder_decoder:
        return f"no formula is known for the states of `{name}`"
    key = next((key for key in _OTHER_LAYOUTS if text.get(key)), None)
    return f"no formula is known for the cache of a model with `{key}`" if key else ""


def is_known_layout(model: Model) -> bool:
    """Whether the engine's model was read, and not only its config."""
    return not DECODER_LAYERS.keys().isdisjoint(model.traits.architectures)


def _latent_layers(model: Model, element_bytes: int, holder: Holder) -> tuple[KvLayer, ...] | str:
    """One vector for all heads, whole on each rank; beside it the keys of the sparse index.

    Source: vllm/model_executor/models/deepseek_v2.py: DeepseekV32IndexerCache.
    """
    traits = model.traits
    if not traits.head_size:
        return "config.json names no `kv_lora_rank`"
    packed = traits.uses_sparse_index and element_bytes == 1
    token_bytes = SPARSE_FP8_TOKEN_BYTES.value if packed else traits.head_size * element_bytes
    layer: tuple[KvLayer, ...] = (KvLayer(holder=holder, token_bytes=Bytes(token_bytes)),)
    if traits.uses_sparse_index:
        width = text_config(model.config).get("index_head_dim")
        if not isinstance(width, int) or width < 1:
            return "config.json names no `index_head_dim`"
        index_bytes = width + 4 * (width // INDEX_SCALE_ELEMENTS.value)
        layer = (*layer, KvLayer(holder=holder, token_bytes=Bytes(index_bytes)))
    return layer * (traits.num_hidden_layers or 0)


def _windows(model: Model, layers: int) -> tuple[int | None, ...]:
    """The window of each layer; a model that names a window and no layer types has it in all of them."""
    window = model.traits.sliding_window
    if window is None:
        return (None,) * layers
    if not set(ALTERNATING_WINDOWS.value).isdisjoint(model.traits.architectures):
        return tuple(None if index % 2 else window for index in range(layers))
    types = model.traits.layer_types
    if types is None:
        return (window,) * layers
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _drafter_layers(resolution: Resolution, element_bytes: int) -> tuple[KvLayer, ...] | str:
    request, method = resolution.request, resolution.drafting.method.value
    draft = request.draft
    if method in _WITHOUT_CACHE:
        return ()
    if draft is None:
        return "the draft model's config.json is not known"
    if draft.traits.model_type == "gemma4_mtp":
        return ()
    if draft is request.target:
        return _mtp_layers(draft, request.spec, method, element_bytes)
    split = drafter_split_of(request.spec) if method == "draft_model" else split_of(request.spec)
    found = layers_of(draft, split, element_bytes, Holder.DRAFTER)
    return f"the drafter: {found}" if isinstance(found, str) else found


def _mtp_layers(target: Model, spec: ServingSpec, method: str | None, element_bytes: int) -> tuple[KvLayer, ...] | str:
    if method != "mtp" or not target.draft_tokens:
        return "the drafter's layers are not in config.json"
    found = layers_of(target, split_of(spec), element_bytes, Holder.DRAFTER)
    if isinstance(found, str):
        return found
    each = len(found) // (target.traits.num_hidden_layers or 1)
    return found[-each:] * target.draft_tokens

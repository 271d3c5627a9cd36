"""Caches of layers that compress their context: DeepSeek V4's windows, compressed keys, index and partial states.

Source: vllm/models/deepseek_v4/attention.py, compressor.py, and vllm/v1/attention/backends/mla/sparse_swa.py.
"""

from collections.abc import Iterator

from servespec.compiler.facts.memory import (
    COMPRESSED_ALIGNMENT,
    COMPRESSED_BLOCK_TOKENS,
    COMPRESSED_INDEX_RATIO,
    COMPRESSED_STATE_BLOCK_TOKENS,
    COMPRESSED_TOKEN_BYTES,
    COMPRESSED_WINDOW_BLOCK_TOKENS,
    INDEX_SCALE_ELEMENTS,
    PLAIN_ALIGNMENT,
    SCALED_FOUR_BIT_ELEMENTS,
)
from servespec.compiler.facts.model_traits import text_config
from servespec.compiler.memory.cache_terms import CacheTerms
from servespec.compiler.memory.compress_ratios import compress_ratios, compresses_context
from servespec.compiler.memory.config_sizes import is_size
from servespec.compiler.memory.kv_cache import KvLayer, LayerKind
from servespec.compiler.memory.line import Holder
from servespec.compiler.model import Model
from servespec.units import Bytes

_STATE_BYTES = 4
"""Bytes of one element of a partial state, which is fp32."""
_PLAIN_BACKEND = "FLASHINFER_MLA_SPARSE_DSV4"
"""The backend that keeps rows of plain elements, but for compute capability 12.x.

Source: vllm/models/deepseek_v4/nvidia/model.py: _select_dsv4_attn_cls.
"""


def packs_blocks(model: Model) -> bool:
    """The index lies beside the compressed keys, which asks for blocks outermost.

    Source: vllm/v1/attention/backends/mla/indexer.py: DeepseekV4IndexerBackend.
    """
    return compresses_context(model) and COMPRESSED_INDEX_RATIO.value in compress_ratios(model)


def compressed_layers(model: Model, terms: CacheTerms) -> tuple[tuple[KvLayer, ...], ...] | str:
    """The caches of every layer of the target."""
    because = _refusal(model, terms)
    if because:
        return because
    return tuple(tuple(_layer(model, terms, ratio)) for ratio in compress_ratios(model))


def window_layer(model: Model, terms: CacheTerms, holder: Holder) -> KvLayer | str:
    """The one cache of a layer that compresses nothing, as drafters of such a target have them."""
    return _refusal(model, terms) or _window(model, terms, holder)


def _refusal(model: Model, terms: CacheTerms) -> str:
    if not _is_plain(terms) and terms.dtype != "auto" and terms.element_bytes != 1:
        return "the packed cache of this backend takes fp8 alone"
    if terms.block_tokens % COMPRESSED_BLOCK_TOKENS.value:
        return f"blocks of {terms.block_tokens} tokens are no multiple of {COMPRESSED_BLOCK_TOKENS.value}"
    text = text_config(model.config)
    missing = [key for key in ("head_dim", "sliding_window", "index_head_dim") if not is_size(text.get(key))]
    return f"config.json names no {', '.join(f'`{key}`' for key in missing)}" if missing else ""


def _is_plain(terms: CacheTerms) -> bool:
    return terms.backend == _PLAIN_BACKEND and terms.compute_capability[0] != 12


def _layer(model: Model, terms: CacheTerms, ratio: int) -> Iterator[KvLayer]:
    yield _window(model, terms, Holder.TARGET)
    if ratio <= 1:
        return
    text = text_config(model.config)
    head, index = text["head_dim"], text["index_head_dim"]
    states = terms.block_tokens // ratio
    yield _kept(terms, terms.block_tokens, states * _row_bytes(model, terms))
    yield _partial_state(terms, ratio, head)
    if ratio == COMPRESSED_INDEX_RATIO.value:
        yield _kept(terms, terms.block_tokens, states * _index_bytes(terms, index))
        yield _partial_state(terms, ratio, index)


def _row_bytes(model: Model, terms: CacheTerms) -> int:
    head: int = text_config(model.config)["head_dim"]
    return head * terms.element_bytes if _is_plain(terms) else COMPRESSED_TOKEN_BYTES.value


def _index_bytes(terms: CacheTerms, width: int) -> int:
    """Keys of the index with their scales, in 4 or 8 bits."""
    if terms.index_type == "mxfp4":
        return width // 2 + width // SCALED_FOUR_BIT_ELEMENTS.value
    return width + 4 * (width // INDEX_SCALE_ELEMENTS.value)


def _aligned(terms: CacheTerms, page_bytes: int) -> Bytes:
    unit = (PLAIN_ALIGNMENT if _is_plain(terms) else COMPRESSED_ALIGNMENT).value
    return Bytes(-(-page_bytes // unit) * unit)


def _window(model: Model, terms: CacheTerms, holder: Holder) -> KvLayer:
    block_tokens = COMPRESSED_WINDOW_BLOCK_TOKENS.value
    return KvLayer(
        holder=holder,
        kind=LayerKind.LATENT_WINDOW,
        block_tokens=block_tokens,
        page_bytes=_aligned(terms, block_tokens * _row_bytes(model, terms)),
        window_tokens=text_config(model.config)["sliding_window"],
    )


def _kept(terms: CacheTerms, block_tokens: int, page_bytes: int) -> KvLayer:
    return KvLayer(
        holder=Holder.TARGET,
        kind=LayerKind.LATENT,
        block_tokens=block_tokens,
        page_bytes=_aligned(terms, page_bytes),
    )


def _partial_state(terms: CacheTerms, ratio: int, width: int) -> KvLayer:
    """Sums and scores of the tokens that are not compressed yet; neighbouring windows overlap at the lower ratio.

    Source: vllm/models/deepseek_v4/compressor.py: CompressorStateCache.
    """
    overlaps = 2 if ratio == COMPRESSED_INDEX_RATIO.value else 1
    block_tokens = COMPRESSED_STATE_BLOCK_TOKENS[ratio].value
    return KvLayer(
        holder=Holder.TARGET,
        kind=LayerKind.LATENT_WINDOW,
        block_tokens=block_tokens,
        page_bytes=_aligned(terms, block_tokens * 2 * overlaps * width * _STATE_BYTES),
        window_tokens=overlaps * ratio,
    )

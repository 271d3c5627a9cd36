"""How the engine groups the layers of a cache, so that the blocks of all groups come from one pool.

Source: vllm/v1/core/kv_cache_planning.py: get_kv_cache_groups.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from servespec.compiler.memory.kv_cache import (
    EVERY_TOKEN,
    WINDOWS,
    KvCache,
    KvLayer,
    KvRequest,
    LayerKind,
    group_of,
)
from servespec.units import Bytes

Layers = tuple[KvLayer, ...]


def kv_cache_of(
    layers: Layers, request: KvRequest, *, keeps_windows: bool = True, packs_blocks: bool = False, stage: int = 0
) -> KvCache | str:
    """The cache of at least one layer as one pipeline stage holds it, or why the engine refuses these layers.

    Without ``keeps_windows``, windows beside full layers hold every token.  ``packs_blocks`` says that the layout has
    the blocks outermost, so that pages of several sizes lie side by side in one.
    """
    assert layers
    kinds = {layer.kind for layer in layers}
    if not keeps_windows and LayerKind.LATENT_WINDOW in kinds and not kinds.isdisjoint(EVERY_TOKEN):
        return "windows of latent layers cannot hold every token, so they need the hybrid KV cache manager"
    kept = layers if keeps_windows else _without_windows(layers)
    found = _groups(kept, packs_blocks=packs_blocks)
    if isinstance(found, str):
        return found
    if not keeps_windows and len(found) > 1:
        return "layers of several kinds need the hybrid KV cache manager, which the spec turns off"
    return KvCache(groups=tuple(group_of(group, stage) for group in found), request=request)


def _without_windows(layers: Layers) -> Layers:
    """Source: vllm/v1/core/kv_cache_planning.py: unify_hybrid_kv_cache_specs."""
    full_tokens = {layer.block_tokens for layer in layers if layer.kind in EVERY_TOKEN}
    if not full_tokens:
        return layers
    return tuple(_of_every_token(layer, min(full_tokens)) if layer.kind in WINDOWS else layer for layer in layers)


def _of_every_token(layer: KvLayer, block_tokens: int) -> KvLayer:
    kind = LayerKind.FULL if layer.kind is LayerKind.WINDOW else LayerKind.LATENT
    page_bytes = Bytes(layer.page_bytes * block_tokens // layer.block_tokens)
    return replace(layer, kind=kind, window_tokens=None, block_tokens=block_tokens, page_bytes=page_bytes)


def _groups(layers: Layers, *, packs_blocks: bool) -> tuple[Layers, ...] | str:
    if _is_uniform(layers):
        return (layers,)
    if packs_blocks and len({layer.page_bytes for layer in layers}) > 1:
        packed = tuple(_packed(layers))
        whole = sum(map(len, packed)) == len(layers) and all(packed)
        return packed if whole else "groups of windows with pages of several sizes leave out layers in the engine"
    unified = _unified(layers)
    if isinstance(unified, str):
        return _whole_latent(layers) or unified
    return tuple(_of_equal_pages(unified))


def _is_uniform(layers: Layers) -> bool:
    """Whether all need the same number of blocks, so that pages of any size share one table.

    Source: vllm/v1/kv_cache_interface.py: UniformTypeKVCacheSpecs.is_uniform_type.
    """
    first = layers[0]
    return all(layer.block_tokens == first.block_tokens and _is_alike(first, layer) for layer in layers)


def _is_alike(first: KvLayer, layer: KvLayer) -> bool:
    if first.kind in EVERY_TOKEN:
        return layer.kind in EVERY_TOKEN
    if first.kind is LayerKind.STATE:
        own = (layer.kind, layer.state_blocks, layer.page_bytes)
        return own == (first.kind, first.state_blocks, first.page_bytes)
    kinds = WINDOWS if first.kind is LayerKind.WINDOW else (first.kind,)
    return layer.kind in kinds and layer.window_tokens == first.window_tokens


# Pages of one size


def _unified(layers: Layers) -> Layers | str:
    """All pages as wide as the widest: more tokens where that divides, padding where the kernel takes it.

    Source: vllm/v1/core/kv_cache_planning.py: unify_kv_cache_spec_page_size.
    """
    widest = max(layer.page_bytes for layer in layers)
    for layer in layers:
        if layer.kind is LayerKind.LATENT and widest % layer.page_bytes:
            return f"latent pages of {layer.page_bytes} bytes cannot be padded to {widest}, so the engine refuses them"
    return tuple(_widened(layer, widest) for layer in layers)


def _widened(layer: KvLayer, page_bytes: Bytes) -> KvLayer:
    if layer.kind is LayerKind.STATE or page_bytes % layer.page_bytes:
        return replace(layer, page_bytes=page_bytes)
    tokens = layer.block_tokens * (page_bytes // layer.page_bytes)
    return replace(layer, block_tokens=tokens, page_bytes=page_bytes)


def _whole_latent(layers: Layers) -> tuple[Layers, ...] | None:
    """Latent layers beside plain windows, where the windows may hold every token instead.

    Source: vllm/v1/core/kv_cache_planning.py: _try_get_full_allocation_fallback_groups.
    """
    kinds = {layer.kind for layer in layers}
    if LayerKind.WINDOW not in kinds or LayerKind.LATENT_WINDOW in kinds:
        return None
    promoted = _without_windows(layers)
    return (promoted,) if _is_uniform(promoted) else None


def _of_equal_pages(layers: Layers) -> Iterator[Layers]:
    """Layers of one kind, split so that each group has as many.

    Source: vllm/v1/core/kv_cache_planning.py: _get_kv_cache_groups_uniform_page_size.
    """
    kinds = _sorted_into(layers, _kind_of)
    fewest, most = min(map(len, kinds)), max(map(len, kinds))
    size = most if most < fewest * 1.5 else fewest
    for kind in kinds:
        count = ceil(len(kind) / size)
        yield from (kind[first::count] for first in range(count))


def _kind_of(layer: KvLayer) -> tuple[object, ...]:
    return layer.kind, layer.window_tokens, layer.block_tokens, layer.state_blocks, layer.content


def _sorted_into(layers: Layers, key: Callable[[KvLayer], object]) -> list[Layers]:
    found: dict[object, list[KvLayer]] = {}
    for layer in layers:
        found.setdefault(key(layer), []).append(layer)
    return [tuple(kind) for kind in found.values()]


# Pages of several sizes, side by side in a block


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers that may share a block table, by the size of their page.

    A bucket with as many layers of each size repeats one pattern, and can be split along it.
    """

    layers: Layers
    by_page: tuple[Layers, ...]

    @property
    def is_balanced(self) -> bool:
        return len({len(same) for same in self.by_page}) == 1

    @property
    def repeats(self) -> int:
        return max(len(same) for same in self.by_page)

    def widest_bytes(self, groups: int) -> int:
        """Of the largest of that many groups."""
        return sum(ceil(len(same) / groups) * same[0].page_bytes for same in self.by_page)


def _packed(layers: Layers) -> Iterator[Layers]:
    """Source: vllm/v1/core/kv_cache_planning.py: _get_packed_kv_cache_groups."""
    buckets = _buckets(layers)
    repeats = _repeats_per_group(buckets)
    least_bytes = max(_least_bytes(bucket, repeats) for bucket in buckets)
    for bucket in buckets:
        groups = _groups_for(bucket, repeats)
        if _is_state(bucket, repeats):
            fitting = max(least_bytes // bucket.layers[0].page_bytes, 1)
            groups = max(groups, ceil(len(bucket.layers) / fitting))
        yield from _split(bucket, groups)


def _buckets(layers: Layers) -> list[_Bucket]:
    found: list[list[KvLayer]] = []
    for layer in layers:
        bucket = next((one for one in found if _is_uniform((*one, layer))), None)
        if bucket is None:
            found.append([layer])
        else:
            bucket.append(layer)
    return [_Bucket(tuple(one), tuple(_sorted_into(tuple(one), lambda layer: layer.page_bytes))) for one in found]


def _repeats_per_group(buckets: list[_Bucket]) -> int | None:
    """None where no bucket has a pattern of several pages that has to stay whole."""
    whole = [bucket.repeats for bucket in buckets if bucket.is_balanced and len(bucket.by_page) > 1]
    if not whole:
        return None
    return _least_padding([bucket.repeats for bucket in buckets if bucket.is_balanced], max(whole))


def _least_padding(counts: list[int], least: int) -> int:
    """The size of a group that pads these counts least, the largest of equals.

    Source: vllm/v1/core/kv_cache_planning.py: _approximate_gcd.
    """
    sizes = range(least, max(*counts, least) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))


def _groups_for(bucket: _Bucket, repeats: int | None) -> int:
    return ceil(bucket.repeats / repeats) if bucket.is_balanced and repeats is not None else 1


def _is_state(bucket: _Bucket, repeats: int | None) -> bool:
    """Whether a bucket goes down to one state a group rather than widen the block."""
    kind = bucket.layers[0].kind
    return kind is LayerKind.STATE or (repeats is None and kind in WINDOWS)


def _least_bytes(bucket: _Bucket, repeats: int | None) -> int:
    groups = len(bucket.layers) if _is_state(bucket, repeats) else _groups_for(bucket, repeats)
    return bucket.widest_bytes(groups)


def _split(bucket: _Bucket, groups: int) -> Iterator[Layers]:
    if groups == 1:
        yield bucket.layers
        return
    pattern = list(zip(*bucket.by_page, strict=False))
    for first in range(groups):
        yield tuple(layer for repeat in pattern[first::groups] for layer in repeat)

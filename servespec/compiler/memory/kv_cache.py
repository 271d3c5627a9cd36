"""The KV cache: what a block takes of one rank, what one request needs, and how many tokens some bytes hold."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from servespec.compiler.memory.line import Holder
from servespec.units import Bytes, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayer:
    """One layer's cache on one rank; ``window_tokens`` is None where all of a request's tokens are kept."""

    holder: Holder
    token_bytes: Bytes
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers that share a block table. Each layer's part of a block is a page; pages may be padded to one size."""

    layers: int
    block_tokens: int
    block_bytes: Bytes
    window_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRequest:
    """What a request may hold: its longest context, and tokens that are scheduled and not yet settled.

    ``context_ranks`` share the tokens of one request.
    """

    max_model_len_tokens: Tokens
    in_flight_tokens: Tokens
    context_ranks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """The groups, which draw their blocks from one pool, so that a block is as wide as the widest of them."""

    groups: tuple[KvGroup, ...]
    request: KvRequest

    @property
    def block_bytes(self) -> Bytes:
        return max(group.block_bytes for group in self.groups)

    @property
    def request_blocks(self) -> int:
        """Blocks of one request at its longest, over all groups.

        Source: vllm/v1/core/kv_cache_utils.py: get_max_concurrency_for_kv_cache_config.
        """
        return sum(_request_blocks(group, self.request) for group in self.groups)

    @property
    def smallest_bytes(self) -> Bytes:
        """The least cache that the engine starts with: one longest request, and the block that is held back.

        Source: vllm/v1/core/kv_cache_planning.py: get_kv_cache_configs.
        """
        return Bytes((self.request_blocks + 1) * self.block_bytes)

    def blocks(self, cache_bytes: int) -> int:
        return max(0, cache_bytes) // self.block_bytes

    def concurrency(self, cache_bytes: int) -> float:
        """Requests at ``max_model_len`` that the cache holds at a time."""
        return self.blocks(cache_bytes) / self.request_blocks

    def tokens(self, cache_bytes: int) -> Tokens:
        """As the engine says them: the concurrency in tokens, cut to whole ones.

        Source: vllm/v1/core/kv_cache_utils.py: get_kv_cache_capacity.
        """
        return Tokens(int(self.concurrency(cache_bytes) * self.request.max_model_len_tokens))

    def at(self, max_model_len_tokens: int) -> "KvCache":
        """The same cache for requests of another longest context."""
        return replace(self, request=replace(self.request, max_model_len_tokens=Tokens(max_model_len_tokens)))


def _request_blocks(group: KvGroup, request: KvRequest) -> int:
    """A window's block may start within it, hence one more.

    Source: vllm/v1/kv_cache_interface.py: SlidingWindowSpec.max_admission_blocks_per_request.
    """
    own_tokens = ceil(request.max_model_len_tokens / request.context_ranks)
    if group.window_tokens is None:
        return ceil(own_tokens / group.block_tokens)
    held = min(group.window_tokens - 1 + request.in_flight_tokens, request.max_model_len_tokens)
    return ceil(held / group.block_tokens) + 1


def kv_cache_of(
    layers: tuple[KvLayer, ...], block_tokens: int, request: KvRequest, *, keeps_windows: bool = True
) -> KvCache:
    """The cache of at least one layer. Without ``keeps_windows``, windows beside full layers hold every token.

    Source: vllm/v1/core/kv_cache_planning.py: get_kv_cache_groups.
    """
    assert layers
    has_full = any(layer.window_tokens is None for layer in layers)
    kept = tuple(replace(layer, window_tokens=None) for layer in layers) if has_full and not keeps_windows else layers
    if len({layer.window_tokens for layer in kept}) == 1:
        return KvCache(groups=(_one_group(kept, block_tokens),), request=request)
    return KvCache(groups=_groups(kept, block_tokens), request=request)


def _one_group(layers: tuple[KvLayer, ...], block_tokens: int) -> KvGroup:
    return KvGroup(
        layers=len(layers),
        block_tokens=block_tokens,
        block_bytes=Bytes(block_tokens * sum(layer.token_bytes for layer in layers)),
        window_tokens=layers[0].window_tokens,
    )


_Kind = tuple[int | None, int, int]
"""A window, the tokens of one block, and the bytes of one token."""


def _groups(layers: tuple[KvLayer, ...], block_tokens: int) -> tuple[KvGroup, ...]:
    """Layers of one kind, split so that each group has as many.

    Source: vllm/v1/core/kv_cache_planning.py: _get_kv_cache_groups_uniform_page_size.
    """
    page_bytes = block_tokens * max(layer.token_bytes for layer in layers)
    kinds: Mapping[_Kind, int] = Counter(_kind(layer, block_tokens, page_bytes) for layer in layers)
    fewest, most = min(kinds.values()), max(kinds.values())
    size = most if most < fewest * 1.5 else fewest
    return tuple(
        KvGroup(
            layers=min(size, count),
            block_tokens=tokens,
            block_bytes=Bytes(ceil(count / ceil(count / size)) * page_bytes),
            window_tokens=window,
        )
        for (window, tokens, _), count in kinds.items()
        for _ in range(ceil(count / size))
    )


def _kind(layer: KvLayer, block_tokens: int, page_bytes: int) -> _Kind:
    """A page that divides the widest takes more tokens; any other is padded.

    Source: vllm/v1/core/kv_cache_planning.py: unify_kv_cache_spec_page_size.
    """
    own_bytes = block_tokens * layer.token_bytes
    ratio = page_bytes // own_bytes if page_bytes % own_bytes == 0 else 1
    return layer.window_tokens, block_tokens * ratio, layer.token_bytes

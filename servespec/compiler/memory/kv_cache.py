"""The KV cache: what a block takes of one rank, what one request needs, and how many tokens some bytes hold."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from servespec.compiler.memory.line import Holder
from servespec.units import Bytes, Tokens


class LayerKind(StrEnum):
    """What a layer keeps of a request. ``LATENT`` is one vector for all heads, whose pages cannot be padded.

    Source: vllm/v1/kv_cache_interface.py: KVCacheSpecKind.
    """

    FULL = "full"
    LATENT = "latent"
    WINDOW = "window"
    LATENT_WINDOW = "latent window"
    STATE = "state"


WINDOWS = (LayerKind.WINDOW, LayerKind.LATENT_WINDOW)
EVERY_TOKEN = (LayerKind.FULL, LayerKind.LATENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayer:
    """One cache of one layer on one rank; a layer may have several.

    A page is a layer's part of a block of ``block_tokens``.  ``content`` is what has to be equal beside these for two
    layers to share a block table, most often heads and their size.  ``state_blocks`` are those of one request, for a
    state; ``stage`` is the pipeline stage that holds the layer.
    """

    holder: Holder
    kind: LayerKind
    block_tokens: int
    page_bytes: Bytes
    window_tokens: int | None = None
    state_blocks: int = 0
    content: tuple[int, ...] = ()
    stage: int = 0

    def __post_init__(self) -> None:
        assert (self.kind in WINDOWS) == (self.window_tokens is not None), self
        assert (self.kind is LayerKind.STATE) == (self.state_blocks > 0), self


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRequest:
    """What a request may hold: its longest context, and tokens that are scheduled and not yet settled.

    ``context_ranks`` share the tokens of one request; ``retained_tokens`` are kept below a window for a drafter.
    """

    max_model_len_tokens: Tokens
    in_flight_tokens: Tokens
    context_ranks: int = 1
    retained_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers that share a block table; ``layers`` and ``block_bytes`` are of one pipeline stage."""

    kind: LayerKind
    layers: int
    block_tokens: int
    block_bytes: Bytes
    window_tokens: int | None
    state_blocks: int

    def request_blocks(self, request: KvRequest) -> int:
        """A window's block may start within it, hence one more.

        Source: vllm/v1/kv_cache_interface.py: SlidingWindowSpec.max_admission_blocks_per_request.
        """
        if self.kind is LayerKind.STATE:
            return self.state_blocks
        if self.window_tokens is None:
            return ceil(ceil(request.max_model_len_tokens / request.context_ranks) / self.block_tokens)
        needed = self.window_tokens - 1 + request.retained_tokens + request.in_flight_tokens
        return ceil(min(needed, request.max_model_len_tokens) / self.block_tokens) + 1


def group_of(layers: Iterable[KvLayer], stage: int) -> KvGroup:
    """A group of at least one layer, as that stage holds it."""
    whole = tuple(layers)
    own = [layer for layer in whole if layer.stage == stage]
    first = whole[0]
    return KvGroup(
        kind=first.kind,
        layers=len(own),
        block_tokens=first.block_tokens,
        block_bytes=Bytes(sum(layer.page_bytes for layer in own)),
        window_tokens=first.window_tokens,
        state_blocks=first.state_blocks,
    )


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
        return sum(group.request_blocks(self.request) for group in self.groups)

    @property
    def has_states(self) -> bool:
        return any(group.kind is LayerKind.STATE for group in self.groups)

    @property
    def smallest_bytes(self) -> Bytes:
        """The least cache that the engine starts with: one longest request, and the block that is held back.

        Source: vllm/v1/core/kv_cache_planning.py: get_kv_cache_configs.
        """
        return Bytes((self.request_blocks + 1) * self.block_bytes)

    @property
    def bytes_per_token(self) -> float:
        """Of a request at its longest, with what its last blocks leave empty."""
        return self.request_blocks * self.block_bytes / self.request.max_model_len_tokens

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

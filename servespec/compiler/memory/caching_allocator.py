"""A model of PyTorch's caching allocator on one stream: what is reserved, and which request made it grow.

A request takes the smallest free block that holds it and cuts it to size; without one, it makes a new segment.  A
segment goes back to the device only as a whole, so one small block that stays alive keeps all of it.
Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp: DeviceCachingAllocator.malloc.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from servespec.compiler.facts.graph_memory import (
    BLOCK_STEP,
    OWN_SEGMENT,
    SEGMENT_STEP,
    SHARED_SEGMENT,
    SMALL_BLOCK,
    SMALL_SEGMENT,
)
from servespec.units import Bytes


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment; neighbours that are free are merged."""

    size_bytes: int
    segment: "_Segment"
    is_free: bool = False


@dataclass(slots=True, eq=False)
class _Segment:
    is_small: bool
    size_bytes: int
    blocks: list[Block] = field(default_factory=list)


class Allocator(Protocol):
    """What tensors are taken from; ``grown_bytes`` counts growth by the owner whose request caused it."""

    grown_bytes: Counter[str]

    @property
    def reserved_bytes(self) -> Bytes: ...

    @property
    def kept_bytes(self) -> Bytes:
        """What is left when all that is wholly free has been given back."""

    def take(self, size_bytes: int, owner: str) -> Block: ...

    def give(self, *blocks: Block) -> None: ...

    def release(self) -> None:
        """Gives back what is wholly free."""

    def layout(self, *named: Block) -> Any:
        """All that decides what becomes of the next requests, where only the named blocks will be given back."""


class CachingAllocator:
    """Segments of one stream; ``grown_bytes`` counts new segments by the owner whose request made them."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self.grown_bytes: Counter[str] = Counter()

    @property
    def reserved_bytes(self) -> Bytes:
        return Bytes(sum(segment.size_bytes for segment in self._segments))

    @property
    def kept_bytes(self) -> Bytes:
        kept = (one.size_bytes for one in self._segments if any(not block.is_free for block in one.blocks))
        return Bytes(sum(kept))

    def take(self, size_bytes: int, owner: str) -> Block:
        """A block of at least that size."""
        size = _rounded(max(size_bytes, 1), BLOCK_STEP.value)
        block = self._best_fit(size) or self._grow(size, owner)
        block.is_free = False
        _cut(block, size)
        return block

    def give(self, *blocks: Block) -> None:
        for block in blocks:
            assert not block.is_free, block
            block.is_free = True
            _merge(block.segment)

    def release(self) -> None:
        self._segments = [one for one in self._segments if any(not block.is_free for block in one.blocks)]

    def layout(self, *named: Block) -> Any:
        names = {id(block): name for name, block in enumerate(named)}
        return tuple(
            (segment.is_small, tuple((one.size_bytes, one.is_free, names.get(id(one))) for one in segment.blocks))
            for segment in self._segments
        )

    def _best_fit(self, size: int) -> Block | None:
        is_small = size <= SMALL_BLOCK.value
        fitting = (
            block
            for segment in self._segments
            if segment.is_small == is_small
            for block in segment.blocks
            if block.is_free and block.size_bytes >= size
        )
        return min(fitting, key=lambda block: block.size_bytes, default=None)

    def _grow(self, size: int, owner: str) -> Block:
        segment = _Segment(is_small=size <= SMALL_BLOCK.value, size_bytes=_segment_bytes(size))
        block = Block(segment.size_bytes, segment, is_free=True)
        segment.blocks.append(block)
        self._segments.append(segment)
        self.grown_bytes[owner] += segment.size_bytes
        return block


class PerfectAllocator:
    """One segment without gaps: what is taken at once, at the most.  No allocator reserves less."""

    def __init__(self) -> None:
        self._whole = _Segment(is_small=False, size_bytes=0)
        self._taken_bytes = 0
        self.grown_bytes: Counter[str] = Counter()

    @property
    def reserved_bytes(self) -> Bytes:
        return Bytes(self._whole.size_bytes)

    @property
    def kept_bytes(self) -> Bytes:
        return Bytes(self._taken_bytes)

    def take(self, size_bytes: int, owner: str) -> Block:
        self._taken_bytes += size_bytes
        growth = max(self._taken_bytes - self._whole.size_bytes, 0)
        self._whole.size_bytes += growth
        self.grown_bytes[owner] += growth
        return Block(size_bytes, self._whole)

    def give(self, *blocks: Block) -> None:
        for block in blocks:
            assert not block.is_free, block
            block.is_free = True
            self._taken_bytes -= block.size_bytes

    def release(self) -> None:
        self._whole.size_bytes = self._taken_bytes

    def layout(self, *named: Block) -> Any:
        return self._taken_bytes, self._whole.size_bytes, tuple(block.size_bytes for block in named)


def _segment_bytes(size: int) -> int:
    if size <= SMALL_BLOCK.value:
        return SMALL_SEGMENT.value
    return SHARED_SEGMENT.value if size < OWN_SEGMENT.value else _rounded(size, SEGMENT_STEP.value)


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step


def _cut(block: Block, size: int) -> None:
    """The rest of a large block stays with it where it is no more than a small block."""
    rest = block.size_bytes - size
    if rest < BLOCK_STEP.value or (not block.segment.is_small and rest <= SMALL_BLOCK.value):
        return
    block.size_bytes = size
    blocks = block.segment.blocks
    blocks.insert(blocks.index(block) + 1, Block(rest, block.segment, is_free=True))


def _merge(segment: _Segment) -> None:
    merged: list[Block] = []
    for block in segment.blocks:
        if merged and merged[-1].is_free and block.is_free:
            merged[-1].size_bytes += block.size_bytes
        else:
            merged.append(block)
    segment.blocks[:] = merged

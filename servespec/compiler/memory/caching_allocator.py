"""A model of PyTorch's caching allocator: what is reserved, and which request made it grow.

A request takes the smallest free block of its stream that holds it and cuts it to size; without one, it makes a new
segment.  A segment goes back to the device only as a whole, so one small block that stays alive keeps all of it.
Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp: DeviceCachingAllocator.malloc.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from servespec.compiler.facts.graph_memory import (
    BLOCK_STEP,
    OWN_SEGMENT,
    SEGMENT_STEP,
    SHARED_SEGMENT,
    SMALL_BLOCK,
    SMALL_SEGMENT,
)
from servespec.units import Bytes

CAPTURE_STREAM: Final = 0
"""The stream that a manager captures on; others are those that a model forks off it."""


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment; neighbours that are free are merged."""

    size_bytes: int
    segment: "_Segment"
    is_free: bool = False


_Use = tuple[int, bool]
"""What a segment serves: a stream, and requests that are small or are not."""


@dataclass(slots=True, eq=False)
class _Segment:
    use: _Use
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

    @property
    def widest_free_bytes(self) -> Bytes:
        """The largest block that is free."""

    def take(self, size_bytes: int, owner: str, stream: int = CAPTURE_STREAM, /) -> Block: ...

    def give(self, *blocks: Block) -> None: ...

    def release(self) -> None:
        """Gives back what is wholly free."""

    def copy(self) -> "Allocator":
        """Another one in the same state; blocks that are taken now are not its blocks."""

    def layout(self, *named: Block) -> Any:
        """All that decides what becomes of the next requests, where only the named blocks will be given back."""


class CachingAllocator:
    """Segments of all streams; ``grown_bytes`` counts new segments by the owner whose request made them."""

    def __init__(self) -> None:
        self._segments: dict[_Use, list[_Segment]] = {}
        self.grown_bytes: Counter[str] = Counter()

    @property
    def reserved_bytes(self) -> Bytes:
        return Bytes(sum(segment.size_bytes for segment in self._all_segments))

    @property
    def kept_bytes(self) -> Bytes:
        kept = (one.size_bytes for one in self._all_segments if any(not block.is_free for block in one.blocks))
        return Bytes(sum(kept))

    @property
    def widest_free_bytes(self) -> Bytes:
        free = (block.size_bytes for one in self._all_segments for block in one.blocks if block.is_free)
        return Bytes(max(free, default=0))

    @property
    def _all_segments(self) -> tuple[_Segment, ...]:
        return tuple(segment for segments in self._segments.values() for segment in segments)

    def take(self, size_bytes: int, owner: str, stream: int = CAPTURE_STREAM, /) -> Block:
        """A block of at least that size."""
        size = _rounded(max(size_bytes, 1), BLOCK_STEP.value)
        use = (stream, size <= SMALL_BLOCK.value)
        block = self._best_fit(size, use) or self._grow(size, owner, use)
        block.is_free = False
        _cut(block, size)
        return block

    def give(self, *blocks: Block) -> None:
        for block in blocks:
            assert not block.is_free, block
            block.is_free = True
            _merge(block)

    def release(self) -> None:
        for segments in self._segments.values():
            segments[:] = [one for one in segments if any(not block.is_free for block in one.blocks)]

    def copy(self) -> "CachingAllocator":
        other = CachingAllocator()
        other.grown_bytes = self.grown_bytes.copy()
        for one in self._all_segments:
            segment = _Segment(one.use, one.size_bytes)
            segment.blocks += (Block(each.size_bytes, segment, each.is_free) for each in one.blocks)
            other._segments.setdefault(one.use, []).append(segment)
        return other

    def layout(self, *named: Block) -> Any:
        names = {id(block): name for name, block in enumerate(named)}
        return tuple(
            (segment.use, tuple((one.size_bytes, one.is_free, names.get(id(one))) for one in segment.blocks))
            for segment in self._all_segments
        )

    def _best_fit(self, size: int, use: _Use) -> Block | None:
        """Of blocks of one size, the one that lies first."""
        best: Block | None = None
        for segment in self._segments.get(use, ()):
            for block in segment.blocks:
                if block.is_free and block.size_bytes >= size and (best is None or block.size_bytes < best.size_bytes):
                    best = block
        return best

    def _grow(self, size: int, owner: str, use: _Use) -> Block:
        segment = _Segment(use, size_bytes=_segment_bytes(size))
        block = Block(segment.size_bytes, segment, is_free=True)
        segment.blocks.append(block)
        self._segments.setdefault(use, []).append(segment)
        self.grown_bytes[owner] += segment.size_bytes
        return block


class PerfectAllocator:
    """One segment without gaps: what is taken at once, at the most.  No allocator reserves less."""

    def __init__(self) -> None:
        self._whole = _Segment(use=(CAPTURE_STREAM, False), size_bytes=0)
        self._taken_bytes = 0
        self.grown_bytes: Counter[str] = Counter()

    @property
    def reserved_bytes(self) -> Bytes:
        return Bytes(self._whole.size_bytes)

    @property
    def kept_bytes(self) -> Bytes:
        return Bytes(self._taken_bytes)

    @property
    def widest_free_bytes(self) -> Bytes:
        return Bytes(self._whole.size_bytes - self._taken_bytes)

    def take(self, size_bytes: int, owner: str, _stream: int = CAPTURE_STREAM, /) -> Block:
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

    def copy(self) -> "PerfectAllocator":
        other = PerfectAllocator()
        other._whole.size_bytes, other._taken_bytes = self._whole.size_bytes, self._taken_bytes
        other.grown_bytes = self.grown_bytes.copy()
        return other

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
    rest, (_, is_small) = block.size_bytes - size, block.segment.use
    if rest < BLOCK_STEP.value or (not is_small and rest <= SMALL_BLOCK.value):
        return
    block.size_bytes = size
    blocks = block.segment.blocks
    blocks.insert(blocks.index(block) + 1, Block(rest, block.segment, is_free=True))


def _merge(block: Block) -> None:
    """With the neighbours that are free; the first of them is what is left."""
    blocks = block.segment.blocks
    place = blocks.index(block)
    if place + 1 < len(blocks) and blocks[place + 1].is_free:
        block.size_bytes += blocks.pop(place + 1).size_bytes
    if place and blocks[place - 1].is_free:
        blocks[place - 1].size_bytes += blocks.pop(place).size_bytes

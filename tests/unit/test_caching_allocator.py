"""The allocator's model against cases worked out by hand, and its laws."""

from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.memory.caching_allocator import CachingAllocator, PerfectAllocator

MIB = 1 << 20


def test_a_block_of_its_own_segment_is_rounded_to_two_mebibytes() -> None:
    memory = CachingAllocator()

    memory.take(11 * MIB, "a")

    assert memory.reserved_bytes == 12 * MIB


def test_blocks_below_ten_mebibytes_share_a_segment() -> None:
    memory = CachingAllocator()

    for _ in range(4):
        memory.take(5 * MIB, "a")

    assert memory.reserved_bytes == 20 * MIB


def test_the_smallest_block_that_fits_is_cut() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB, "a"), memory.take(40 * MIB, "b"))

    memory.take(30 * MIB, "c")

    assert memory.kept_bytes == 40 * MIB
    assert memory.grown_bytes == {"a": 100 * MIB, "b": 40 * MIB}


def test_one_small_tensor_keeps_a_whole_segment() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(4096 * MIB, "accumulators"))

    memory.take(64 * MIB, "outputs")

    assert memory.kept_bytes == 4096 * MIB
    assert "outputs" not in memory.grown_bytes


def test_neighbours_that_are_free_are_one_again() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB, "a"))
    memory.give(*[memory.take(25 * MIB, "b") for _ in range(4)])

    memory.take(100 * MIB, "c")

    assert memory.reserved_bytes == 100 * MIB


def test_streams_share_no_segment() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB, "a"))

    forked = memory.take(30 * MIB, "b", 1)

    assert memory.grown_bytes == {"a": 100 * MIB, "b": 30 * MIB}
    memory.give(forked)
    memory.take(30 * MIB, "c", 1)
    assert "c" not in memory.grown_bytes


def test_a_copy_goes_its_own_way() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB, "a"))
    memory.take(60 * MIB, "b")

    other = memory.copy()
    other.take(50 * MIB, "c")

    assert other.reserved_bytes == 150 * MIB
    assert other.grown_bytes == {"a": 100 * MIB, "c": 50 * MIB}
    assert memory.reserved_bytes == memory.kept_bytes == 100 * MIB
    memory.take(40 * MIB, "d")
    assert "d" not in memory.grown_bytes


def test_the_widest_free_block_may_be_the_rest_of_a_segment() -> None:
    memory = CachingAllocator()
    whole, small = (memory.take(size * MIB, "a") for size in (100, 30))
    assert memory.widest_free_bytes == 0

    memory.give(whole, small)
    memory.take(40 * MIB, "b")

    assert memory.widest_free_bytes == 60 * MIB


def test_only_wholly_free_segments_are_given_back() -> None:
    memory = CachingAllocator()
    kept, *free = [memory.take(size * MIB, "a") for size in (30, 20, 40)]
    memory.give(kept, *free)
    memory.take(25 * MIB, "b")

    memory.release()

    assert memory.reserved_bytes == memory.kept_bytes == 30 * MIB


def test_without_gaps_the_most_that_is_taken_at_once_is_reserved() -> None:
    memory = PerfectAllocator()
    first = memory.take(100 * MIB, "a")
    second = memory.take(40 * MIB, "b")
    memory.give(first)

    memory.take(90 * MIB, "c")
    third = memory.take(30 * MIB, "d")
    memory.give(second, third)

    assert memory.reserved_bytes == 160 * MIB
    assert memory.kept_bytes == 90 * MIB
    assert memory.widest_free_bytes == 70 * MIB
    assert +memory.grown_bytes == {"a": 100 * MIB, "b": 40 * MIB, "d": 20 * MIB}


@given(st.lists(st.integers(1, 600 * MIB), max_size=12), st.data())
def test_what_is_given_back_is_kept_by_nothing(sizes: list[int], data: st.DataObject) -> None:
    memory = CachingAllocator()
    blocks = [memory.take(size, str(index)) for index, size in enumerate(sizes)]
    assert memory.reserved_bytes == sum(memory.grown_bytes.values()) >= sum(sizes)

    memory.give(*data.draw(st.permutations(blocks)))

    assert memory.kept_bytes == 0
    before = memory.reserved_bytes
    for size in sizes:
        memory.give(memory.take(size, "again"))
    assert memory.reserved_bytes == before

"""What DeepSeek V4's forward pass takes, counted by hand, and what allocator traces of its captures say."""

from dataclasses import replace

import pytest

from servespec.compiler.memory.caching_allocator import CachingAllocator, PerfectAllocator
from servespec.compiler.memory.compressed_pass import CompressedPass, Index
from servespec.compiler.memory.indexer_logits import IndexerRow
from servespec.compiler.memory.model_pass import CONVERTED_SCORES, SCORES, Attention, ContextScores

GIB = 1 << 30
HIDDEN, STATES, RANKS, HEAD, HEADS, PADDED = 8192, 4, 4, 1024, 16, 64
POSITIONS = 1 << 18
FLASH = CompressedPass(
    ratios=(0, 0, *(4, 128) * 20, 4),
    aux_layers=(41, 42, 43),
    hidden=HIDDEN,
    states=STATES,
    token_ranks=RANKS,
    matrix_ranks=RANKS,
    compressed_queries=2048,
    latents=HEAD,
    own_queries=HEADS * HEAD,
    queries=PADDED * HEAD,
    output=PADDED * HEAD,
    grouped=4096,
    compressor=4096,
    index=Index(
        queries=16384, packed_queries=(4096, 256), weights=128, scaled_weights=256, compressor=1024, chosen=2048
    ),
    scores=ContextScores(
        layers=frozenset(range(2, 43, 2)),
        row=IndexerRow(positions=POSITIONS, scored_bytes=2 * POSITIONS, converted_bytes=4 * POSITIONS),
    ),
    scale_group=128,
    forks_up_to=1024,
)
"""DeepSeek V4 Flash on four ranks that share experts and tokens, at a context of 1M."""
PLANNED = (8192, *range(7680, 0, -256), 128, 64, 32, 16, 8, 4, 2, 1)
STOCK = (*range(1024, 256, -16), *range(256, 0, -8), 4, 2, 1)


def most_bytes(forward: CompressedPass) -> int:
    memory = PerfectAllocator()
    memory.give(*forward.run(memory, 4, Attention.LEFT_OUT).all)
    assert memory.kept_bytes == 0
    return memory.reserved_bytes


@pytest.mark.parametrize("token_ranks", [1, 4])
def test_only_what_is_between_attention_calls_is_shared_by_ranks(token_ranks: int) -> None:
    """Most is alive where a window's queries go into the kernel's: states twice, and what attention has made."""
    forward = replace(FLASH, ratios=(0, 0), aux_layers=(), scale_group=0, token_ranks=token_ranks)
    states = 2 * STATES * HIDDEN + HIDDEN
    attention = PADDED * HEAD + (2048 + HEAD) + 2048 + HEAD + HEADS * HEAD + PADDED * HEAD
    gathered = HIDDEN

    assert most_bytes(forward) == 4 // token_ranks * states + 4 * (attention + gathered)


def pool_of(sizes: tuple[int, ...]) -> CachingAllocator:
    """After all PIECEWISE graphs, which keep their auxiliary outputs."""
    memory = CachingAllocator()
    for tokens in sizes:
        memory.give(*FLASH.run(memory, tokens, Attention.LEFT_OUT).hidden)
    return memory


@pytest.mark.parametrize(
    ("sizes", "full_tokens", "piecewise_gib", "full_gib", "converted_segments"),
    [(STOCK, 1024, 0.912, 2.674, 2), (PLANNED, 4096, 3.531, 10.525, 2), (PLANNED, 8192, 3.531, 13.654, 1)],
)
def test_pools_that_were_traced(
    sizes: tuple[int, ...], full_tokens: int, piecewise_gib: float, full_gib: float, converted_segments: int
) -> None:
    """Attention outputs of 4,096 tokens are cut from the scores' segment, and those of 8,192 have one of their own."""
    memory = pool_of(sizes)
    assert memory.reserved_bytes / GIB == pytest.approx(piecewise_gib, rel=0.005)
    before = memory.grown_bytes.copy()

    FLASH.run(memory, full_tokens, Attention.OF_ANY_CONTEXT)

    grown = memory.grown_bytes - before
    assert sum(grown.values()) / GIB == pytest.approx(full_gib, rel=0.01)
    assert grown[SCORES] == full_tokens * POSITIONS * 2
    assert grown[CONVERTED_SCORES] == converted_segments * full_tokens * POSITIONS * 4


def test_a_short_context_is_not_scored() -> None:
    memory = PerfectAllocator()

    FLASH.run(memory, 4096, Attention.OF_SHORT_CONTEXT)

    assert not {SCORES, CONVERTED_SCORES} & set(+memory.grown_bytes)


def test_a_stage_that_hands_its_states_on_makes_no_hidden_state_of_them() -> None:
    memory = PerfectAllocator()
    outputs = replace(FLASH, token_ranks=1, hands_on_states=True).run(memory, 4, Attention.LEFT_OUT)

    assert [block.size_bytes for block in outputs.hidden] == [4 * STATES * HIDDEN]
    assert [block.size_bytes for block in outputs.auxiliary] == [4 * HIDDEN] * 3

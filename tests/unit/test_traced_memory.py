"""The ledger beside the allocator's own history of one launch: Qwen3-8B without drafts on one H200.

The engine ran there on torch 2.11, whose Inductor does not write queries where the first norm was, as later ones do.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from servespec.compiler.memory.caching_allocator import Block, CachingAllocator
from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.ledger import Ledger
from servespec.compiler.memory.line import MemoryLine
from servespec.compiler.memory.model_pass import Attention
from tests.plans import REPOSITORY, compiled, spec_of

MIB: Final = 1 << 20
TOKENS: Final = 8192
LAYERS: Final = 36
TRACE: Final = json.loads((REPOSITORY / "docs/measurements/2026-12-01-h200-memory-trace.json").read_bytes())
CAPTURE: Final = TRACE["captures"]["ModelCudaGraphManager-PIECEWISE"]

pytestmark = pytest.mark.usefixtures("quiet_shell")


def peak_line(**sections: Any) -> MemoryLine:
    scheduler = {"max_num_seqs": 512, "max_num_batched_tokens": TOKENS}
    engine = {"version": "0.33.0", "lowering": "extension"}
    ledger = compiled(spec_of("qwen3-8b", "h200", scheduler=scheduler, engine=engine, **sections)).ledger
    assert isinstance(ledger, Ledger)
    (line,) = [line for line in ledger.lines if line.owner == "peak of a step"]
    return line


def held_above_what_is_left(run: dict[str, Any]) -> int:
    return int(run["peak_bytes"]) - sum(one["bytes"] for one in run["left"])


def test_a_first_launch_peaks_where_a_kernel_is_tried_on_an_embedding() -> None:
    """Of what is left the trace has the tensors of a MiB and more: the rest is 19 MiB."""
    first = TRACE["profile"][0]

    assert [one["bytes"] for one in first["at_peak"]] == [151936 * 4096 * 2, TOKENS * 4096 * 2, TOKENS * 4096 * 2]
    assert peak_line().size == pytest.approx(held_above_what_is_left(first), abs=19 * MIB)


def test_once_all_is_compiled_a_step_peaks_in_its_mlp() -> None:
    assert peak_line(remedies={"kv_from_measurement": True}).size == pytest.approx(
        held_above_what_is_left(TRACE["profile"][1]), abs=MIB
    )


def test_the_allocators_segments_follow_from_what_was_taken_and_given_back() -> None:
    memory, alive = CachingAllocator(), dict[int, Block]()
    for number, *size in CAPTURE["events"]:
        if size:
            alive[number] = memory.take(size[0], "traced")
        else:
            memory.give(alive.pop(-number))

    assert sorted(one.size_bytes for one in memory._all_segments) == CAPTURE["segments_bytes"]


# The pieces of the model


class Watched(CachingAllocator):
    """Notes what is taken and given back, as the trace does."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[list[int]] = []
        self.numbers: dict[int, int] = {}
        self.blocks: list[Block] = []

    def take(self, size_bytes: int, owner: str, stream: int = 0, /) -> Block:
        block = super().take(size_bytes, owner, stream)
        self.blocks.append(block)
        self.events.append([len(self.events) + 1, size_bytes])
        self.numbers[id(block)] = self.events[-1][0]
        return block

    def give(self, *blocks: Block) -> None:
        self.events += [[-self.numbers[id(block)]] for block in blocks]
        super().give(*blocks)


def played() -> list[list[int]]:
    memory, hidden = Watched(), 8192
    widths = {"projected": 12288, "query": hidden, "key": 2048, "output": hidden, "wide": 49152, "gated": 24576}
    forward = ForwardPass(
        layers=LAYERS, aux_layers=(), hidden=hidden, stream=hidden, router=0, is_compiled=True, **widths
    )
    forward.run(memory, TOKENS, Attention.LEFT_OUT)
    return memory.events


def lives(events: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """The size of every tensor of 8 MiB and more, and how many of those were taken while it was there."""
    large = [(number, size[0] if size else 0) for number, *size in events]
    taken = [(number, size) for number, size in large if size >= 8 * MIB]
    order = {number: place for place, (number, _) in enumerate(taken)}
    ends = {number: len(taken) for number, _ in taken}
    count = 0
    for number, size in large:
        if number in order:
            count += 1
        elif -number in ends and not size:
            ends[-number] = count
    return ((size, ends[number] - order[number] - 1) for number, size in taken)


PIECE: Final = 9
"""Large tensors between two attention calls."""


def test_tensors_live_as_long_as_traced_from_the_second_piece_on() -> None:
    """The ledger stops once a piece leaves memory as the one before did, as traced pieces do from the second on."""
    traced, own = list(lives(CAPTURE["events"])), list(lives(played()))
    wide = (384 * MIB, 1)  # after what attention's matrix and the MLP's norm make
    second, own_second = traced.index(wide) - 2, own.index(wide) - 2
    middle = traced[second : second + PIECE * (LAYERS - 2)]

    assert [size // MIB for size, _ in traced[:second]] == [64, 64, 96, 16, 64, 64]
    assert middle[: 2 * PIECE] == own[own_second : own_second + 2 * PIECE]
    assert middle[PIECE:] == middle[:-PIECE]

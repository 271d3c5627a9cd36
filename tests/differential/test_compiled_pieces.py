"""The buffers of a compiled piece, held against the code that Inductor writes for such a piece on an H200.

The pieces are written in plain torch, as the engine's layers compute them where their own kernels are off; see
`inductor_for_gpu.py`, which needs no GPU.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.caching_allocator import Block, CachingAllocator
from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.model_pass import Attention
from tests.differential.inductor_for_gpu import WIDTHS, Widths

pytest.importorskip("torch")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

BF16_BYTES = 2
Event = tuple[str, int]
"""A buffer that is taken or given back, by its bytes of a token."""


@pytest.fixture(scope="module")
def written() -> Mapping[str, str]:
    """What Inductor writes for each piece; the program pretends to have a GPU, so that it is one of its own."""
    program = Path(__file__).with_name("inductor_for_gpu.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes: dict[str, str] = json.loads(done.stdout)
    return codes


_TAKEN = re.compile(r"^ *(buf\d+) = empty_strided_cuda\(\(s\d+, ([\d, ]+)\), .*torch\.bfloat16\)", re.MULTILINE)
_LATER = re.compile(r"^ *(buf\d+) = .*; del (buf\d+)  # reuse|^ *del (buf\d+)$", re.MULTILINE)


def events_in(code: str) -> list[Event]:
    """A buffer that serves again is one that goes on; what norms sum, in FP32, is little."""
    sizes: dict[str, int] = {}
    found: list[tuple[int, Event]] = []
    for match in _TAKEN.finditer(code):
        sizes[match[1]] = BF16_BYTES * prod(int(factor) for factor in match[2].split(",") if factor.strip())
        found.append((match.start(), ("take", sizes[match[1]])))
    for match in _LATER.finditer(code):
        later, before, given = match.groups()
        if given in sizes:
            found.append((match.start(), ("give", sizes[given])))
        elif before in sizes:
            sizes[later] = sizes[before]
    return [event for _, event in sorted(found)]


# What the ledger plays


class Watched(CachingAllocator):
    """Notes what is taken and given back."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.asked: dict[int, int] = {}
        self.taken: list[Block] = []

    def take(self, size_bytes: int, owner: str, stream: int = 0, /) -> Block:
        block = super().take(size_bytes, owner, stream)
        self.asked[id(block)] = size_bytes
        self.taken.append(block)
        self.events.append(("take", size_bytes))
        return block

    def give(self, *blocks: Block) -> None:
        self.events += [("give", self.asked[id(block)]) for block in blocks]
        super().give(*blocks)


def pass_of(of: Widths, **changes: Any) -> ForwardPass:
    elements = {
        "hidden": of.hidden, "stream": of.hidden, "projected": of.projected, "query": of.query, "key": of.key,
        "output": of.query, "wide": 2 * of.inner, "gated": of.inner, "router": 0,
    }  # fmt: skip
    widths = {name: BF16_BYTES * count for name, count in elements.items()}
    return ForwardPass(**{"layers": 2, "aux_layers": (), **widths, **changes, "is_compiled": True})


ATTENTION = -1
"""Stands for an attention call, by the bytes of its accumulators."""


def played(forward: ForwardPass) -> Iterator[list[Event]]:
    """The events of each piece; what it was given goes when it returns, as no code of its own says."""
    memory = Watched()
    marked = 1 << 20
    ForwardPass(**{**_fields(forward), "accumulators": (marked,)}).run(memory, 1, Attention.OF_SHORT_CONTEXT)
    piece: list[Event] = []
    for event in memory.events:
        if event == ("give", marked):
            yield piece
            piece = []
        elif event != ("take", marked):
            piece.append(event)


def _fields(forward: ForwardPass) -> dict[str, Any]:
    return {name: getattr(forward, name) for name in ForwardPass.__dataclass_fields__}


def in_order(events: list[Event]) -> list[tuple[int, list[int]]]:
    """Each buffer that is taken, with what is given back before the next one, whichever first.

    One that is given back and taken again is one that goes on: which of both Inductor writes turns on where it expects
    the most to be held.
    """
    left: list[Event] = []
    for kind, width in events:
        if kind == "take" and ("give", width) in left:
            left.remove(("give", width))
        else:
            left.append((kind, width))
    found: list[tuple[int, list[int]]] = [(0, [])]
    for kind, width in left:
        if kind == "take":
            found.append((width, []))
        else:
            found[-1][1].append(width)
    return [(width, sorted(given)) for width, given in found]


@pytest.mark.parametrize("name", WIDTHS)
def test_buffers_come_and_go_as_inductor_writes_them(written: Mapping[str, str], name: str) -> None:
    forward = pass_of(WIDTHS[name])
    _, second, *_ = played(forward)

    # Attention gave back what it read, and the piece's caller lets go of what the piece was given.
    after_attention = [("give", forward.projected), ("give", forward.query), ("give", forward.key)]
    returned = [("give", forward.output), ("give", forward.stream)]
    assert second[:3] == after_attention
    assert second[-2:] == returned
    assert in_order(second[3:-2]) == in_order(events_in(written[f"between layers, {name}"]))


@pytest.mark.parametrize("name", WIDTHS)
def test_the_first_piece_makes_queries_where_its_norm_was(written: Mapping[str, str], name: str) -> None:
    first, *_ = played(pass_of(WIDTHS[name]))

    assert in_order(first) == in_order(events_in(written[f"before the first attention, {name}"]))


def made_beside_the_norm(code: str) -> tuple[list[str], list[str]]:
    """What one kernel makes before queries, keys and values, in the order in which it is taken; and what is returned.

    The last of it but what the drafter reads is what their matrix reads.
    """
    names = [match[1] for match in _TAKEN.finditer(code)]
    returned = re.search(r"^ *return \((buf.*), \)$", code, re.MULTILINE)
    assert returned is not None
    last = max(at for at, name in enumerate(names) if re.search(rf"extern_kernels.mm\(buf\d+, .* out={name}\)", code))
    return names[:last], re.findall(r"buf\d+", returned[1])


@pytest.mark.parametrize("name", WIDTHS)
def test_the_residual_is_taken_before_what_the_matrix_reads(written: Mapping[str, str], name: str) -> None:
    """As an allocator's trace has it: `tests/unit/test_traced_memory.py` holds the ledger to that."""
    code = written[f"between layers, {name}"]

    (*_, first, second), (*_, residual) = made_beside_the_norm(code)

    assert first == residual
    assert f"extern_kernels.mm({second}," in code


@pytest.mark.parametrize("name", WIDTHS)
def test_what_the_drafter_reads_is_made_last(written: Mapping[str, str], name: str) -> None:
    code, forward = written[f"before a layer that is read, {name}"], pass_of(WIDTHS[name], aux_layers=(1,))
    _, second, *_ = played(forward)
    assert in_order(second[3:-2]) == in_order(events_in(code))

    (*_, first, second, third), (*_, residual, auxiliary) = made_beside_the_norm(code)
    assert (first, third) == (residual, auxiliary)
    assert f"extern_kernels.mm({second}," in code
    memory = Watched()
    outputs = forward.run(memory, 1, Attention.LEFT_OUT)
    place = max(at for at, block in enumerate(memory.taken) if block is outputs.auxiliary[0])
    assert [width for kind, width in memory.events if kind == "take"][place + 1] == forward.projected


@pytest.mark.parametrize("name", WIDTHS)
def test_a_draft_head_reads_embedding_and_hidden_state_in_one_buffer(written: Mapping[str, str], name: str) -> None:
    of = WIDTHS[name]
    forward = pass_of(of, first_operand=2 * BF16_BYTES * of.hidden)

    first, *_ = played(forward)

    # The residual is what the head is called with.
    assert first[0] == ("take", forward.stream)
    assert in_order(first[1:]) == in_order(events_in(written[f"draft head, {name}"]))

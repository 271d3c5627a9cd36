"""The buffers of a compiled piece, held against the code that Inductor writes for such a piece.

The pieces are written here in plain torch, as the engine's layers compute them where their own kernels are off, and
compiled for the CPU: which buffers there are, and when one serves again, is decided before a device's code is made.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest

from servespec.compiler.memory.caching_allocator import Block, CachingAllocator
from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.model_pass import Attention

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own
]

TOKENS, BF16_BYTES = 512, 2
Event = tuple[str, int]
"""A buffer that is taken or given back, by its bytes of a token."""


@dataclass(frozen=True)
class Widths:
    """In elements of a token."""

    hidden: int
    query: int
    key: int
    inner: int
    head: int = 32

    @property
    def projected(self) -> int:
        return self.query + 2 * self.key


EVEN = Widths(hidden=256, query=256, key=64, inner=768)
NARROW = Widths(hidden=128, query=256, key=128, inner=384)
ODD = Widths(hidden=256, query=512, key=64, inner=768)
SHARED = Widths(hidden=256, query=128, key=32, inner=384)
"""As wide as its queries; narrower than them, and as wide as its keys; neither; and a rank's part of a model."""


# The pieces in torch


def norm(x: Any, weight: Any, residual: Any = None) -> Any:
    """Source: vllm/model_executor/layers/layernorm.py: RMSNorm.forward_native."""
    kind, x = x.dtype, x.float()
    if residual is not None:
        x = x + residual.float()
        residual = x.to(kind)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    x = x.to(kind) * weight
    return x if residual is None else (x, residual)


def turned(x: Any, positions: Any, cache: Any) -> Any:
    """Source: vllm/model_executor/layers/rotary_embedding: RotaryEmbedding.forward_native."""
    cos, sin = (part.unsqueeze(-2).to(x.dtype) for part in cache.index_select(0, positions).chunk(2, -1))
    one, other = x.chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1)


def heads(x: Any, of: Widths) -> Any:
    return x.view(x.shape[0], -1, of.head)


def projected(x: Any, of: Widths, weight: Any, positions: Any, cache: Any, norms: Any = None) -> Any:
    """Queries, keys, values and the buffer for what attention will write."""
    query, key, value = (heads(part, of) for part in (x @ weight).split([of.query, of.key, of.key], -1))
    if norms is not None:
        query, key = norm(query, norms[0]), norm(key, norms[1])
    output = torch.empty(x.shape[0], of.query, dtype=x.dtype)
    return turned(query, positions, cache), turned(key, positions, cache), value, output


def mlp(x: Any, of: Widths, wide: Any, down: Any) -> Any:
    both = x @ wide
    return (torch.nn.functional.silu(both[:, : of.inner]) * both[:, of.inner :]) @ down


def random(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.bfloat16) * 0.02


def between_layers(of: Widths) -> tuple[Callable[..., Any], list[Any]]:
    """From one attention to the next, and its arguments; those of as many tokens first."""

    def piece(attended: Any, residual: Any, positions: Any, *weights: Any) -> Any:
        out, first, wide, down, second, qkv, of_query, of_key, cache = weights
        x, residual = norm(attended @ out, first, residual)
        x, residual = norm(mlp(x, of, wide, down), second, residual)
        return (*projected(x, of, qkv, positions, cache, (of_query, of_key)), residual)

    h, q = of.hidden, of.query
    weights = [random(q, h), random(h), random(h, 2 * of.inner), random(of.inner, h), random(h)]
    weights += [random(h, of.projected), random(of.head), random(of.head), torch.randn(4096, of.head)]
    return piece, [random(TOKENS, q), random(TOKENS, h), torch.arange(TOKENS), *weights]


def draft_head_before_attention(of: Widths) -> tuple[Callable[..., Any], list[Any]]:
    """Source: vllm/model_executor/models/llama_eagle3.py: LlamaDecoderLayer.forward."""

    def piece(tokens: Any, hidden: Any, positions: Any, *weights: Any) -> Any:
        embedding, first, second, qkv, cache = weights
        embedded = norm(torch.nn.functional.embedding(tokens, embedding), first)
        return projected(torch.cat([embedded, norm(hidden, second)], -1), of, qkv, positions, cache)

    h = of.hidden
    weights = [random(100, h), random(h), random(h), random(2 * h, of.projected), torch.randn(4096, of.head)]
    return piece, [torch.randint(0, 100, (TOKENS,)), random(TOKENS, h), torch.arange(TOKENS), *weights]


def written_by_inductor(piece: Callable[..., Any], arguments: list[Any]) -> str:
    """The code that calls the kernels of a piece, for any number of tokens."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    for argument in arguments[:3]:
        torch._dynamo.mark_dynamic(argument, 0)
    with torch.inference_mode():
        _, (code,) = run_and_get_code(torch.compile(piece, fullgraph=True), *arguments)
    text: str = code
    return text[text.index("def call(") :]


_TAKEN = re.compile(r"^ *(buf\d+) = empty_strided_cpu\(\(s\d+, ([\d, ]+)\), .*torch\.bfloat16\)", re.MULTILINE)
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

    def take(self, size_bytes: int, owner: str, stream: int = 0, /) -> Block:
        block = super().take(size_bytes, owner, stream)
        self.asked[id(block)] = size_bytes
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
    return ForwardPass(layers=2, aux_layers=(), **{**widths, **changes}, is_compiled=True)


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
    """Each buffer that is taken, with what is given back before the next one, whichever first."""
    found: list[tuple[int, list[int]]] = [(0, [])]
    for kind, width in events:
        if kind == "take":
            found.append((width, []))
        else:
            found[-1][1].append(width)
    return [(width, sorted(given)) for width, given in found]


@pytest.mark.parametrize("of", [EVEN, NARROW, ODD, SHARED])
def test_buffers_come_and_go_as_inductor_writes_them(of: Widths) -> None:
    written = in_order(events_in(written_by_inductor(*between_layers(of))))
    forward = pass_of(of)
    _, second, *_ = played(forward)

    # Attention gave back what it read, and the piece's caller lets go of what the piece was given.
    after_attention = [("give", forward.projected), ("give", forward.query), ("give", forward.key)]
    returned = [("give", forward.output), ("give", forward.stream)]
    assert second[:3] == after_attention
    assert second[-2:] == returned
    assert in_order(second[3:-2]) == written


@pytest.mark.parametrize("of", [EVEN, NARROW])
def test_a_draft_head_reads_embedding_and_hidden_state_in_one_buffer(of: Widths) -> None:
    written = in_order(events_in(written_by_inductor(*draft_head_before_attention(of))))
    forward = pass_of(of, first_operand=2 * BF16_BYTES * of.hidden)

    first, *_ = played(forward)

    # The residual is what the head is called with.
    assert first[0] == ("take", forward.stream)
    assert in_order(first[1:]) == written

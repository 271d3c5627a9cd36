"""The three default grids of capture sizes, in closed form.

A grid captures a size wherever padding to the next one would cost more than a share epsilon of the step's time.
Source: vLLM pull request "separate prefill/decode graph sizes", Configuration and Appendix A.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from servespec.compiler.facts.graph_sizes import (
    DECODE_EPSILON,
    INTERACTIVITY_UP_TO,
    PREFILL_EPSILON,
    PREFILL_LINEAR_FROM,
)
from servespec.units import Requests, Tokens, TokensPerRequest


@dataclass(frozen=True, slots=True)
class DecodeGrid:
    """Request counts from 1 to a cap; the stride follows 10 * epsilon * n^(2/3)."""

    epsilon: float = DECODE_EPSILON.value

    def sizes(self, cap_requests: Requests) -> tuple[Requests, ...]:
        return tuple(Requests(n) for n in ladder(cap_requests, self._stride))

    def _stride(self, requests: int) -> int:
        return floor_to_power_of_two(10 * self.epsilon * requests ** (2 / 3))


@dataclass(frozen=True, slots=True)
class PrefillGrid:
    """Token counts from 1 to a cap; the stride follows 2 * epsilon * max(t, 4096), at most t."""

    epsilon: float = PREFILL_EPSILON.value
    every_small_count: bool = False

    def sizes(self, cap_tokens: Tokens) -> tuple[Tokens, ...]:
        sizes = set(ladder(cap_tokens, self._stride))
        if self.every_small_count:
            sizes.update(range(1, min(cap_tokens, INTERACTIVITY_UP_TO.value) + 1))
        return tuple(Tokens(t) for t in sorted(sizes))

    def _stride(self, tokens: int) -> int:
        widest = 2 * self.epsilon * max(tokens, PREFILL_LINEAR_FROM.value)
        return floor_to_power_of_two(min(tokens, widest))


def adaptive_verification_sizes(cap_tokens: Tokens) -> tuple[Tokens, ...]:
    """1, 2, 4, 8, then four sizes a doubling to 1024, every 128 to 4096, every 256, and the cap."""
    return tuple(Tokens(t) for t in ladder(cap_tokens, _adaptive_verification_stride))


def sparse_verification_sizes(cap_tokens: Tokens, query_len: TokensPerRequest) -> tuple[Tokens, ...]:
    """Powers of two, whole decodes of the counts of the decode grid, and the cap."""
    whole = {count * query_len for count in DecodeGrid().sizes(Requests(cap_tokens // query_len))}
    powers = {1 << bit for bit in range(cap_tokens.bit_length()) if 1 << bit <= cap_tokens}
    return tuple(Tokens(size) for size in sorted({*whole, *powers, cap_tokens} - {0}))


def _adaptive_verification_stride(tokens: int) -> int:
    if tokens < 8:
        return tokens
    if tokens < 1024:
        return floor_to_power_of_two(tokens) // 4
    return 128 if tokens < 4096 else 256


def ladder(cap: int, stride_at: Callable[[int], int]) -> Iterator[int]:
    """1, then from each size the next multiple of its stride, and last the cap itself."""
    size = 1
    while size < cap:
        yield size
        size = next_multiple(size, stride_at(size))
    if cap >= 1:
        yield cap


def next_multiple(size: int, stride: int) -> int:
    """The first multiple of ``stride`` above ``size``."""
    return (size // stride + 1) * stride


def floor_to_power_of_two(value: float) -> int:
    """The largest power of two that is not above ``value``, at least 1."""
    return 1 << max(0, int(value).bit_length() - 1)

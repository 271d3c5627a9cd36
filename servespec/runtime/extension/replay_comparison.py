"""One output of a step, from a graph and twice from eager runs, bit for bit."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_ROWS: Final = 64
"""Compared at a time, because logits widened to 64 bits would not fit beside the KV cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``equal``: graph and eager, bit for bit; ``eager_reproduces``: two eager runs.

    The largest differences are of graph and eager, over numbers only; ``not_numbers`` counts where one of the two is
    infinite or not a number and they differ.
    """

    equal: bool
    eager_reproduces: bool
    values: int
    differing: int = 0
    largest_absolute: float = 0.0
    largest_relative: float = 0.0
    not_numbers: int = 0


def compare(graph: Any, eager: Any, eager_again: Any) -> Comparison:
    """Of three tensors of one shape and type.

    Raises ValueError where their shapes or types differ.
    """
    if not (_kind(graph) == _kind(eager) == _kind(eager_again)):
        kinds = ", ".join(f"{kind} {shape}" for kind, shape in map(_kind, (graph, eager, eager_again)))
        raise ValueError(f"outputs of different shapes or types: {kinds}")
    reproduces = same_bits(eager, eager_again)
    if same_bits(graph, eager):
        return Comparison(equal=True, eager_reproduces=reproduces, values=graph.numel())
    return _difference(graph, eager, reproduces)


def same_bits(one: Any, other: Any) -> bool:
    """Unlike ``==``, tells 0.0 from -0.0 and finds a NaN equal to itself."""
    import torch

    return bool(torch.equal(_bytes(one), _bytes(other)))


def _kind(tensor: Any) -> tuple[str, tuple[int, ...]]:
    return str(tensor.dtype), tuple(tensor.shape)


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _difference(graph: Any, eager: Any, reproduces: bool) -> Comparison:
    not_numbers = 0
    absolute = relative = 0.0
    for one, other in _rows(graph, eager):
        finite = one.isfinite() & other.isfinite()
        both_nan = one.isnan() & other.isnan()
        not_numbers += int(((one != other) & ~finite & ~both_nan).sum())
        apart = (one - other).abs()[finite]
        if apart.numel():
            scale = one.abs().maximum(other.abs())[finite].clamp(min=1e-30)
            absolute = max(absolute, float(apart.max()))
            relative = max(relative, float((apart / scale).max()))
    return Comparison(
        equal=False,
        eager_reproduces=reproduces,
        values=graph.numel(),
        differing=_differing(graph, eager),
        largest_absolute=absolute,
        largest_relative=relative,
        not_numbers=not_numbers,
    )


def _differing(graph: Any, eager: Any) -> int:
    """How many values have other bits."""
    apart = (_bytes(graph) != _bytes(eager)).reshape(graph.numel(), -1)
    return int(apart.any(dim=1).sum())


def _rows(graph: Any, eager: Any) -> Iterator[tuple[Any, Any]]:
    for one, other in zip(graph.split(_ROWS), eager.split(_ROWS), strict=True):
        yield one.double(), other.double()

"""One tensor of a rank: whose it is, its sides, and its bytes under a quantization."""

from dataclasses import dataclass
from enum import StrEnum

from servespec.compiler.memory.storage import ModelStorage
from servespec.units import Bytes


class Role(StrEnum):
    """What a matrix belongs to, the owner of its bytes."""

    VOCABULARY = "embedding and output head"
    ATTENTION = "attention"
    MLP = "MLP"
    EXPERTS = "routed experts"
    SMALL = "norms, routers and biases"


FP32_ELEMENTS = 2
"""An fp32 element in elements of a half type, which small tensors are counted in."""
_LINEAR = (Role.ATTENTION, Role.MLP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """``copies`` equal matrices of one rank; ``is_plain`` ones are never quantized.

    ``modules`` are the checkpoint's names of what is joined in it, below its layer.
    """

    role: Role
    rows: int
    columns: int
    copies: int = 1
    is_plain: bool = False
    modules: tuple[str, ...] = ()

    def size_bytes(self, storage: ModelStorage) -> Bytes:
        stored = storage.plain
        if not self.is_plain and self.role is Role.EXPERTS:
            stored = storage.expert
        elif not self.is_plain and self.role in _LINEAR:
            stored = storage.linear
        return Bytes(self.copies * stored.size_bytes(self.rows, self.columns))


def small(elements: int) -> Matrix:
    """Norms, routers, biases and tables, which nothing quantizes."""
    return Matrix(role=Role.SMALL, rows=1, columns=elements)

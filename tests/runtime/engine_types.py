"""Stand-ins for the types by which an engine names its graphs."""

from dataclasses import dataclass
from enum import Enum


class Mode(Enum):
    """As the engine's CUDAGraphMode."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2


@dataclass(frozen=True)
class Descriptor:
    """As the engine's BatchExecutionDescriptor."""

    cg_mode: Mode
    num_tokens: int
    num_reqs: int | None = None
    uniform_token_count: int | None = None
    max_query_len: int | None = None
    num_active_loras: int = 0
    num_ubatches: int = 1

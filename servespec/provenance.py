"""Where a number or a value came from.

A number copied from an engine or a device is :class:`Sourced`; a value of a spec after resolution is
:class:`Resolved`; a quantity of bytes carries a :class:`Basis`.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")

PRESET_PREFIX = "preset:"
"""`preset:NAME` stands wherever a command takes a spec, and is the name of its file."""


@dataclass(frozen=True, slots=True)
class Sourced(Generic[T]):
    """A value copied from elsewhere.

    ``package`` and ``version`` name a distribution, ``path`` a file in it, ``quote`` a piece of that file
    (white space ignored) in which the value stands; a contract test finds each quote in the real file.
    For what no distribution holds, ``package`` is the name of the document and ``path`` and ``quote`` say
    where in it.
    """

    value: T
    unit: str
    package: str
    version: str
    path: str
    quote: str
    note: str = ""


class Origin(StrEnum):
    """Who filled in a resolved value."""

    SPEC = "spec"
    PRESET = "preset"
    ENGINE_DEFAULT = "engine_default"
    DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class Resolved(Generic[T]):
    """A value with nothing left to a default; ``because`` is one sentence for a person."""

    value: T
    origin: Origin
    because: str


class Basis(IntEnum):
    """How well a quantity is known; the worst one wins when quantities are combined."""

    EXACT = 0
    MEASURED = 1
    BOUND = 2
    ESTIMATE = 3

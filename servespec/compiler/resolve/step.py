"""What a resolution says about itself: the changes it made and what the engine would refuse.

These are plain data.  The checks turn them into diagnostics, because only they know the places in a spec.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a value, in the engine's order.

    ``because`` is one sentence for a person; ``source`` names the engine's file and symbol.
    """

    because: str
    before: str
    after: str
    source: str


class Weight(StrEnum):
    """What the engine does about a finding: stop, go on with a warning, or nothing that we can foresee."""

    REFUSED = "refused"
    WARNED = "warned"
    UNKNOWN = "unknown"


class TypedField(NamedTuple):
    """A field of a help, which is typed with its section where the spec has none."""

    section: str
    name: str
    value: int | str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something about ``field`` that the engine refuses, warns of, or that cannot be decided here.

    ``help`` says what to type instead, '' where the reason says all that can be said; its `{}` stand for ``typed``.
    """

    field: str
    because: str
    source: str
    weight: Weight = Weight.REFUSED
    help: str = ""
    typed: tuple[TypedField, ...] = ()

    @property
    def message(self) -> str:
        return f"`{self.field}`: {self.because}"


def refused(findings: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
    """Those that stop the engine."""
    return tuple(finding for finding in findings if finding.weight is Weight.REFUSED)

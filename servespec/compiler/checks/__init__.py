"""What a person should know about a plan before launch: tuples of small checks, each one rule or two."""

from servespec.compiler.checks import (
    costs,
    coverage,
    drafts,
    list_readers,
    load,
    lowering,
    memory,
    remedies,
    resolved,
    specialized_decode,
    state_blocks,
)
from servespec.compiler.checks.subject import Check, Findable
from servespec.diagnostics import Diagnostic

__all__ = ["CHECKS", "Findable", "findings_of"]

CHECKS: tuple[Check, ...] = (
    *resolved.CHECKS,
    *coverage.CHECKS,
    *drafts.CHECKS,
    *costs.CHECKS,
    *load.CHECKS,
    *lowering.CHECKS,
    *list_readers.CHECKS,
    *remedies.CHECKS,
    *memory.CHECKS,
    *state_blocks.CHECKS,
    *specialized_decode.CHECKS,
)


def findings_of(subject: Findable) -> tuple[Diagnostic, ...]:
    """Every finding about the plan."""
    return tuple(finding for check in CHECKS for finding in check(subject))

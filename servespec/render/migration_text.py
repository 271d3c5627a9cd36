"""What a migration changes: the fields in words, and the graphs beside those of the engine and of the plan before."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servespec.compiler.comparison import compared, graphs_compared
from servespec.render.comparison_text import comparison_text

Json = Mapping[str, Any]

ENGINE, BEFORE, AFTER = "the engine's own use of the legacy fields", "the plan before", "the plan after"


def migration_text(spec: str, changes: Sequence[str], before: Json, after: Json) -> str:
    """``before`` is a plan with the unmodified engine beside it.

    The plan before has its own graphs where one list cannot give what servespec makes of the legacy fields, so both
    are compared unless they are the same.
    """
    return "\n\n".join([f"{spec}:", "\n".join(f"  {line}" for line in changes), *_comparisons(before, after)])


def _comparisons(before: Json, after: Json) -> Iterator[str]:
    yield comparison_text(compared(before, after, (BEFORE, AFTER))).rstrip("\n")
    if not graphs_compared(before["stock"], before, (ENGINE, BEFORE))["same"]:
        yield comparison_text(graphs_compared(before["stock"], after, (ENGINE, AFTER))).rstrip("\n")

"""How often drafts are accepted, for the terminal and for a spec."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def acceptance_summary(document: Json) -> str:
    """`2.31 tokens of a request in a step, over 12,345 drafts`"""
    return f"{document['acceptance_length']:.2f} tokens of a request in a step, over {document['drafts']:,} drafts"


def acceptance_line(document: Json) -> str:
    """As `speculative.dynamic` takes it."""
    return f"acceptance_rates: [{', '.join(f'{rate:g}' for rate in document['acceptance_rates'])}]\n"

"""Whether the prompts of a bench were new to its servers."""

from collections.abc import Mapping
from typing import Any


def prompts_words(bench: Mapping[str, Any]) -> str:
    """A sentence of benches of before each load of each round had prompts of its own."""
    if bench["design"].get("fresh_prompts"):
        return ""
    return "Its prompts were the same in every cell, so that the prefix cache held them and hardly any were prefilled. "

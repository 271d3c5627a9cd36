"""What tiers serve under traffic, for the terminal, made from its JSON form."""

from collections.abc import Iterator, Mapping
from typing import Any

from servespec.render.alignment import aligned

Json = Mapping[str, Any]


def traffic_text(document: Json) -> str:
    rates = ", ".join(f"{rate:g}" for rate in document["acceptance_rates"])
    heading = (
        f"predicted by {document['measured_by']}, drafts accepted by position: {rates}\n"
        f"prompts of {document['input_tokens']} tokens, answers of {document['output_tokens']}; "
        f"{document['prompts_per_request']} requests for each at a time, the next as soon as one is answered\n"
    )
    return f"{heading}\n{aligned(list(traffic_rows(document)))}\n"


def traffic_rows(document: Json) -> Iterator[tuple[str, ...]]:
    """A header, then each load: tokens a second of the tiers, how many times each fixed K's, steps that prompts mix."""
    first = document["loads"][0]
    fixed = [f"x K={one['num_speculative_tokens']}" for one in first["fixed"]]
    yield ("requests", "tokens/s", *fixed, "x none", "best K", "mixed steps")
    for load in document["loads"]:
        tiers, without = load["tiers"], load["without_speculation"]
        best = max(load["fixed"], key=lambda one: one["tokens_per_second"])
        yield (
            str(load["requests"]),
            f"{tiers['tokens_per_second']:.0f}",
            *(_times(tiers, one) for one in load["fixed"]),
            "-" if without is None else _times(tiers, without),
            str(best["num_speculative_tokens"]),
            f"{tiers['mixed_steps'] / (tiers['mixed_steps'] + tiers['decode_steps']):.0%}",
        )


def _times(one: Json, other: Json) -> str:
    return f"{one['tokens_per_second'] / other['tokens_per_second']:.2f}"

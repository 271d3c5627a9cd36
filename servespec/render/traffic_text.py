"""What tiers serve under traffic, for the terminal, made from its JSON form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servespec.render.alignment import aligned

Json = Mapping[str, Any]


def traffic_text(document: Json) -> str:
    rates = ", ".join(f"{rate:g}" for rate in document["acceptance_rates"])
    heading = (
        f"predicted by {document['measured_by']}, drafts accepted by position: {rates}\n"
        f"prompts of {document['input_tokens']} tokens, answers of {document['output_tokens']}; "
        f"for each request at a time {document['prompts_per_request']} in all, the next as soon as one is answered\n"
        f"each takes {document['front_end_seconds'] * 1000:g} ms of client and API server, and those sent together "
        f"pass together:\n{_why_so_long(document)}\n"
    )
    return f"{heading}\n{aligned(list(traffic_rows(document)))}\n"


def _why_so_long(document: Json) -> str:
    fitted_on = document["front_end_fitted_on"]
    if fitted_on is None:
        return "as `--front-end-ms` says"
    return f"fitted on {fitted_on}, of short prompts, with answers streamed by 16 tokens"


def traffic_rows(document: Json) -> Iterator[tuple[str, ...]]:
    """A header, then each load: tokens a second of the tiers, how many times each fixed K's, steps that prompts mix."""
    first = document["loads"][0]
    fixed = [f"x K={one['num_speculative_tokens']}" for one in first["fixed"]]
    yield ("requests", "tokens/s", *fixed, "x none", "best K", "mixed steps")
    for load in document["loads"]:
        tiers, without = load["tiers"], load["without_speculation"]
        yield (
            str(load["requests"]),
            f"{tiers['tokens_per_second']:.0f}",
            *(_times(tiers, one) for one in load["fixed"]),
            "-" if without is None else _times(tiers, without),
            _best(load["fixed"]),
            f"{tiers['mixed_steps'] / (tiers['mixed_steps'] + tiers['decode_steps']):.0%}",
        )


def _best(fixed: Sequence[Json]) -> str:
    """Every K where all serve alike, as with answers of one token."""
    most = max(one["tokens_per_second"] for one in fixed)
    best = [str(one["num_speculative_tokens"]) for one in fixed if one["tokens_per_second"] == most]
    return best[0] if len(best) == 1 else ", ".join(best)


def _times(one: Json, other: Json) -> str:
    return f"{one['tokens_per_second'] / other['tokens_per_second']:.2f}"

"""What a curve predicts of the tiers that it chose, as rows of cells, made from a plan's JSON form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def predicted_by(tiers: Json) -> str:
    """Whose prediction it is, as a sentence without its end."""
    rates = ", ".join(f"{rate:.2f}" for rate in tiers["acceptance_rates"])
    return (
        f"Steady batches, predicted by {tiers['measured_by']}; drafts accepted by position: {rates} "
        f"({tiers['acceptance']}); `servespec predict` plays prompts and answers too"
    )


def headers_of(tiers: Json) -> tuple[str, ...]:
    """The gains are of the tiers over a server with one K, and over one that never drafts."""
    candidates = [one["num_speculative_tokens"] for one in tiers["predicted"][0]["fixed"]]
    return ("requests", "K", "tokens/s", *(f"x K={k}" for k in candidates), "x none")


def rows_of(tiers: Json) -> Iterator[Sequence[str]]:
    for row in tiers["predicted"]:
        fixed = {one["num_speculative_tokens"]: one["tokens_per_second"] for one in row["fixed"]}
        chosen, k = fixed[row["num_speculative_tokens"]], row["num_speculative_tokens"]
        without = row["without_speculation"]
        gains = (*(chosen / other for other in fixed.values()), None if without is None else chosen / without)
        yield (str(row["requests"]), str(k), f"{chosen:.0f}", *("" if one is None else f"{one:.2f}" for one in gains))

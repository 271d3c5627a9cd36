"""Where graphs pay, as rows of cells, made from a plan's JSON form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

HEADERS = ("steps", "sizes", "as", "waits for", "eager / graph")


def rows_of(gains: Json) -> Iterator[Sequence[str]]:
    for one in gains["sizes"]:
        kind = "with prompts" if one["query_len"] is None else f"decode q={one['query_len']}"
        first, last = one["from_size"], one["to_size"]
        sizes = f"{first}" if first == last else f"{first} to {last}"
        low, high = f"{one['least_gain']:.2f}", f"{one['most_gain']:.2f}"
        yield kind, f"{sizes} {one['unit']}", one["mode"], one["bound"], low if low == high else f"{low} to {high}"

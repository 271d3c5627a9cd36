"""What remedies of graph memory save, from a plan's JSON form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servespec.render.alignment import aligned
from servespec.render.memory_rows import bar, gib

Json = Mapping[str, Any]

SAVINGS = "graph memory that remedies save"
SAVING_HEADERS = ("remedy", "GiB", "error bar", "state")
_STATES = {
    "in_force": "in force",
    "off": "off",
    "not_there": "not there yet",
}
_BY_AUTO = " (auto: measured on this architecture)"


def remedy_words(plan: Json) -> str:
    """Those in force; one that the spec left to `auto` says what turned it on."""
    return ", ".join(f"{one}{_BY_AUTO}" if f"remedies.{one}" in plan["resolved"] else one for one in plan["remedies"])


def saving_rows(savings: Sequence[Json]) -> Iterator[tuple[str, str, str, str]]:
    """Under `SAVING_HEADERS`."""
    for one in savings:
        yield one["remedy"], gib(one["saved_bytes"]), bar(one["low_bytes"], one["high_bytes"]), _STATES[one["state"]]


def savings_text(savings: Sequence[Json]) -> str:
    return "\n".join([f"{SAVINGS}, GiB (switches under `remedies`)", aligned(list(saving_rows(savings)))])

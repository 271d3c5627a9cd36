"""How the target's steps of one cell ran: what a server's `/metrics` counted meanwhile."""

import http.client
import re
from collections import Counter
from typing import Any, Final

from servespec.runtime.own_server import own_opener

_SERIES: Final = re.compile(r'^servespec:target_(\w+)_total\{(?:.*?,)?mode="(\w+)".*\} (\S+)$', re.MULTILINE)
_COUNTED: Final = ("steps", "unpadded_tokens", "padding_tokens")
_TIMEOUT_SECONDS = 10

Counted = Counter[tuple[str, str]]
"""By mode and what is counted: steps, unpadded tokens, padding tokens."""


def counted_steps(base_url: str) -> Counted:
    """Over all engines; empty where the server does not tell."""
    try:
        with own_opener().open(f"{base_url}/metrics", timeout=_TIMEOUT_SECONDS) as answer:
            return parsed(answer.read().decode())
    except (OSError, http.client.HTTPException, UnicodeDecodeError):
        return Counter()


def parsed(text: str) -> Counted:
    found: Counted = Counter()
    for what, mode, value in _SERIES.findall(text):
        found[mode, what] += int(float(value))
    return found


def steps_between(before: Counted, after: Counted) -> dict[str, Any] | None:
    """The steps of each mode with their tokens, in the engine's words; None where none was counted."""
    modes = sorted({mode for mode, _ in after - before})
    return {mode: {what: after[mode, what] - before[mode, what] for what in _COUNTED} for mode in modes} or None

"""How often drafts are accepted, read off a running server's metrics or a result of `vllm bench serve`.

Source: vllm/v1/spec_decode/metrics.py: SpecDecodingProm; vllm/benchmarks/serve.py: benchmark.
"""

import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.config_rules import R020, R021
from servespec.runtime.json_mapping import json_mapping

_COUNTERS: Final = re.compile(
    r"^vllm:spec_decode_num_(?P<what>drafts|draft_tokens|accepted_tokens_per_pos)_total"
    r"(?:\{(?P<labels>.*)\})? (?P<value>\S+)$",
    re.MULTILINE,
)
_POSITION: Final = re.compile(r'position="(\d+)"')
_TIMEOUT_SECONDS: Final = 10
_FEWEST_OF_K: Final = 0.95
"""Of all drafts that K would have made; below it steps drafted less than K, and late positions look bad."""
_DIGITS: Final = 4
MOST_SECONDS: Final = 86_400
"""A day: traffic of longer than that is what a server counts since its start."""

Counts = Counter[str]
"""`drafts`, `draft_tokens`, and accepted tokens by position from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAcceptance:
    """``rates`` by position; ``drafts`` is how many verified steps of a request they are of."""

    source: str
    rates: tuple[float, ...]
    drafts: int
    findings: tuple[Diagnostic, ...] = ()

    @property
    def acceptance_length(self) -> float:
        return 1 + sum(self.rates)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "drafts": self.drafts,
            "acceptance_rates": list(self.rates),
            "acceptance_length": round(self.acceptance_length, _DIGITS),
        }


def measured_acceptance(
    source: str, seconds: float, sleep: Callable[[float], object] = time.sleep
) -> MeasuredAcceptance:
    """From the server at a URL, over ``seconds`` or since its start where they are 0; or from a file.

    Raises SpecError where there is nothing to read, where nothing was drafted, or where it is no acceptance.
    """
    if not 0 <= seconds <= MOST_SECONDS:
        raise _refused(source, f"`--seconds` is `{seconds:g}`", f"write 0 to {MOST_SECONDS}")
    if not source.startswith(("http://", "https://")):
        return _of_file(source)
    before: Counts = Counter()
    if seconds > 0:
        before = _counts(source)
        sleep(seconds)
    counts = _counts(source)
    counts.subtract(before)
    return _of_counts(source, counts)


# A server


def _counts(url: str) -> Counts:
    text = _metrics(url)
    counts: Counts = Counter()
    for found in _COUNTERS.finditer(text):
        position = _POSITION.search(found["labels"] or "")
        name = position[1] if position and found["what"] == "accepted_tokens_per_pos" else found["what"]
        counts[name] += _count(url, found["what"], found["value"])
    if not counts:
        help_text = "serve with `speculative`, and leave statistics on (`disable-log-stats` takes them away)"
        raise _refused(url, "the server says nothing of drafts", help_text)
    return counts


def _count(url: str, what: str, text: str) -> int:
    with suppress(ValueError, OverflowError):
        return int(float(text))
    help_text = "read the server's `/metrics`: another program may answer there"
    raise _refused(url, f"the server counts `{text}` in `{what}`, which is no number", help_text)


def _metrics(url: str) -> str:
    help_text = "name the address of a running vLLM server, such as `http://127.0.0.1:8000`"
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise _refused(url, f"`{url}` is no address: {str(error).lower()}", help_text) from None
    path = parts.path.rstrip("/")
    target = urllib.parse.urlunsplit(parts._replace(path=path if path.endswith("/metrics") else f"{path}/metrics"))
    try:
        with urllib.request.urlopen(target, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - http or https
            return str(answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(url, f"`{target}` answers with status {error.code}", help_text) from None
    except urllib.error.URLError as error:
        raise _refused(url, f"`{target}` cannot be read: {_reason(error).lower()}", help_text) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _refused(url, f"`{target}` cannot be read: {str(error).lower()}", help_text) from None


def _of_counts(source: str, counts: Mapping[str, int]) -> MeasuredAcceptance:
    drafts = counts["drafts"]
    if drafts < 0:
        raise _refused(source, "the server was started again meanwhile", "read it again")
    if drafts == 0:
        raise _refused(source, "nothing was drafted yet", "send it requests like those that it will serve")
    positions = sorted(int(name) for name in counts if name.isdecimal())
    if not positions or positions != list(range(len(positions))):
        shown = ", ".join(f"`{position}`" for position in positions) or "no position"
        message = f"the server counts accepted drafts of {shown}, not of `0` and each one after it"
        raise _refused(source, message, "read the server's own `/metrics`, whole and as it writes them")
    rates = [counts[str(position)] / drafts for position in positions]
    return _acceptance(source, rates, drafts, counts["draft_tokens"])


def _short_drafts(source: str, draft_tokens: int, drafts: int, positions: int) -> tuple[Diagnostic, ...]:
    if draft_tokens >= _FEWEST_OF_K * drafts * positions:
        return ()
    message = f"steps drafted {draft_tokens / drafts:.2f} tokens of a request on average, and K is {positions}"
    help_text = "late positions were drafted less often than they count: measure on a server with a fixed K"
    return (R021.at(Place(source), message, help_text),)


# A file


def _of_file(source: str) -> MeasuredAcceptance:
    try:
        data = json_mapping(Path(source).read_bytes())
    except OSError as error:
        message = f"`{source}` cannot be read: {(error.strerror or 'unreadable').lower()}"
        raise _refused(source, message, "name a server's address, or a result of `vllm bench serve`") from None
    found = data or {}
    rates, drafts = found.get("spec_decode_per_position_acceptance_rates"), found.get("spec_decode_num_drafts")
    if not isinstance(rates, list) or not rates or type(drafts) is not int:
        raise _refused(source, f"`{source}` has no rates of accepted drafts", _SAVE_ONE)
    if drafts <= 0:
        raise _refused(source, f"`{source}` has rates of {drafts} drafts", _SAVE_ONE)
    tokens = found.get("spec_decode_draft_tokens", drafts * len(rates))
    if type(tokens) is not int or tokens < 0:
        raise _refused(source, f"`{source}` counts `{tokens}` draft tokens", _SAVE_ONE)
    return _acceptance(source, rates, drafts, tokens)


_SAVE_ONE: Final = "write one with `vllm bench serve --save-result` on a server that speculates"


# Both


def _acceptance(source: str, rates: Sequence[object], drafts: int, draft_tokens: int) -> MeasuredAcceptance:
    shares = tuple(_shares(source, rates))
    for position, (before, after) in enumerate(pairwise(shares), start=2):
        if after > before:
            message = f"position {position} is accepted more often (`{after:g}`) than the one before it (`{before:g}`)"
            raise _refused(source, message, _NO_SHARES)
    return MeasuredAcceptance(
        source=source,
        rates=tuple(round(share, _DIGITS) for share in shares),
        drafts=drafts,
        findings=_short_drafts(source, draft_tokens, drafts, len(shares)),
    )


def _shares(source: str, rates: Sequence[object]) -> Iterator[float]:
    for position, rate in enumerate(rates, start=1):
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise _refused(
                source, f"position {position} is accepted `{rate}` of the time, which is no share", _NO_SHARES
            )
        yield float(rate)


_NO_SHARES: Final = "shares of all drafts lie in 0 to 1 and never rise: the file or server is no source of them"


def _refused(source: str, message: str, help_text: str) -> SpecError:
    return SpecError([R020.at(Place(source), message, help_text)])


def _reason(error: urllib.error.URLError) -> str:
    """Without the number that the system gives it."""
    return getattr(error.reason, "strerror", None) or str(error.reason)

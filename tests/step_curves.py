"""Documents of step times made of formulas, in the form that `servespec steps` writes: synthetic, for tests alone."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from servespec.compiler.memory.measurement import identity_of
from servespec.runtime.step_times_document import STEP_TIMES_FORMAT
from tests.plans import Json, compiled

Seconds = Callable[[int, int], float]
"""Of a decode of n requests with K drafts each."""

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def roofline(*, floor: float = 5e-3, linear_from_tokens: int = 300, draft_share: float = 0.06) -> Seconds:
    """Flat while weights are read, linear in tokens above; each draft adds a share of a floor and of its rows."""

    def seconds(requests: int, drafts: int) -> float:
        tokens = requests * (1 + drafts)
        target = floor * max(1.0, tokens / linear_from_tokens)
        return target + drafts * draft_share * floor * max(1.0, requests / linear_from_tokens)

    return seconds


def step_document(
    identity: Mapping[str, str],
    seconds: Seconds,
    drafts: Iterable[int],
    sizes: Iterable[int] = SIZES,
    *,
    spread: float = 0.0,
    drafter_share: float = 0.1,
    eager: Seconds | None = None,
) -> Json:
    """``spread`` is the distance of the quartiles as a share, ``drafter_share`` what of a step drafting takes.

    With ``eager`` each size was also timed without graphs.
    """
    return {
        "format": STEP_TIMES_FORMAT,
        "servespec": "0.1.0",
        "versions": {},
        "device": [],
        "driver": None,
        "date": "2026-11-30",
        "command": "synthetic",
        "spec_text": "",
        "identity": dict(identity),
        "engine": {"name": "vllm", "version": "0.33.0"},
        "planned_device": "h200",
        "folder": "",
        "workers": {"expected": 1, "complete": 1},
        "seconds": 0.0,
        "sizes": [
            _decode(n, k, [_mode("FULL", n * (1 + k), seconds(n, k), spread, drafter_share, eager and eager(n, k))])
            for k in drafts
            for n in sizes
        ],
        "diagnostics": [],
    }


def _decode(requests: int, drafts: int, modes: list[Json]) -> Json:
    return {
        "kind": "decode",
        "requests": requests,
        "tokens": requests * (1 + drafts),
        "query_len": 1 + drafts,
        "next_drafts": drafts,
        "because": None,
        "error": None,
        "modes": modes,
    }


def _mode(mode: str, tokens: int, seconds: float, spread: float, drafter_share: float, eager: float | None) -> Json:
    parts = {"target": seconds * (1 - drafter_share), "sampling": 0.0, "drafter": seconds * drafter_share}
    ratio = None if eager is None else eager / seconds
    gain = None if ratio is None else {"ratio": ratio, "low_95": ratio * 0.98, "high_95": ratio * 1.02}
    return {
        "mode": mode,
        "padded_tokens": tokens,
        "repeats": 9,
        "median_seconds": seconds,
        "spread_seconds": seconds * spread,
        "parts": parts,
        "eager_over_graph": gain,
        "target_eager_over_graph": None,
        "drafter_eager_over_graph": None,
        "verdict": None if ratio is None else "pays" if ratio > 1.02 else "undecided",
    }


def identity_for(spec: Json) -> dict[str, str]:
    """That of a launch of ``spec``, which must not name a curve itself."""
    return identity_of(compiled(spec).to_json())


def written(folder: Path, document: Json, name: str = "curve.json") -> str:
    """The path of the document, written down."""
    path = folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)

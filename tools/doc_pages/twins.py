"""Twins: arms of a bench whose servers run the same steps for one request, so that no way to serve tells them apart."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from doc_pages.markdown import sentences, table
from servespec.runtime.bench.ratios import geometric_mean, interval_95
from servespec.schema.parse import parse_spec
from servespec.schema.source import SpecSource, read_source
from servespec.schema.spec import SpeculativeSection

Json = Mapping[str, Any]

TPOT: Final = "mean_tpot_ms"
_OF_MORE_REQUESTS: Final = ("num_speculative_tokens", "dynamic", "load_aware")
"""Fields of drafting that say K by load; what they are at one request is compared by itself."""
_GRID_OF_CHOSEN_DRAFTS: Final = "adaptive_verification_grid"
_RATES: Final = "synthetic_acceptance_rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """``arm`` over ``over`` in time per output token at one request, a ratio for each round of ``file``.

    ``has_load_aware`` says whether one of them chooses its drafts from more requests on.
    """

    file: str
    arm: str
    over: str
    num_speculative_tokens: int
    ratios: tuple[float, ...]
    has_load_aware: bool = False

    @property
    def distance(self) -> float:
        """How much longer the slower one takes, as a share."""
        ratio = geometric_mean(self.ratios)
        return max(ratio, 1 / ratio) - 1

    @property
    def interval_holds_one(self) -> bool:
        low, high = interval_95(self.ratios)
        return low is None or high is None or low <= 1 <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """K at one request, and all else in a spec that its steps follow from."""

    num_speculative_tokens: int
    rest: str
    is_load_aware: bool = field(compare=False)


def twins_of(file: str, bench: Json, by_curve: int) -> Iterator[Twins]:
    """Every pair of twins in a bench; ``by_curve`` is K at one request where a curve chose an arm's tiers."""
    steps = {arm: _steps_of_one_request(one, by_curve) for arm, one in bench["arms"].items()}
    for one in bench["ratios"]:
        mine, its = steps[one["arm"]], steps[one["over"]]
        if (one["metric"], one["concurrency"]) != (TPOT, 1) or mine is None or its is None or mine != its:
            continue
        yield Twins(
            file=file,
            arm=one["arm"],
            over=one["over"],
            num_speculative_tokens=mine.num_speculative_tokens,
            ratios=tuple(one["ratios"]),
            has_load_aware=mine.is_load_aware or its.is_load_aware,
        )


def _steps_of_one_request(arm: Json, by_curve: int) -> _Steps | None:
    """None where the engine chooses drafts step by step."""
    source = arm_source(arm["texts"])
    section = section_of(source)
    drafts = _drafts_of_one_request(section, by_curve)
    if drafts is None:
        return None
    rest = {name: value for name, value in source.data.items() if name != "serve"}
    rest["compilation"] = _without(rest.get("compilation"), _GRID_OF_CHOSEN_DRAFTS)
    if section is not None:
        rest["speculative"] = _without(rest["speculative"], *_OF_MORE_REQUESTS)
        if _RATES in rest["speculative"]:
            rest["speculative"][_RATES] = rest["speculative"][_RATES][:drafts]
    return _Steps(
        num_speculative_tokens=drafts,
        rest=json.dumps([arm["lowering"], rest], sort_keys=True),
        is_load_aware=section is not None and section.load_aware is not None,
    )


def _drafts_of_one_request(section: SpeculativeSection | None, by_curve: int) -> int | None:
    if section is None:
        return 0
    if section.enable_adaptive_verification or _chooses_at_one(section):
        return None
    if section.curve_tiers is not None:
        return by_curve
    if section.written_tiers:
        return section.written_tiers[0].num_speculative_tokens
    return section.num_speculative_tokens


def _chooses_at_one(section: SpeculativeSection) -> bool:
    """The knee of a curve, which ``auto`` takes, lies above one request."""
    asked = section.load_aware
    return asked is not None and asked.from_requests == 1


def _without(section: Json | None, *names: str) -> dict[str, Any]:
    return {name: value for name, value in (section or {}).items() if name not in names}


def arm_source(texts: Mapping[str, str]) -> SpecSource:
    """The one spec of an arm."""
    ((name, text),) = texts.items()
    return read_source(text, name)


def section_of(source: SpecSource) -> SpeculativeSection | None:
    spec = parse_spec(source).spec
    assert spec is not None
    return spec.speculative


def distance_of(found: Sequence[Twins]) -> float:
    """The farthest that any two of them were apart."""
    return max(one.distance for one in found)


def twins_section(found: Sequence[Twins]) -> Iterator[str]:
    """What equal servers tell of a ratio, and of its interval."""
    yield "## Twins"
    yield sentences(
        "Arms of one bench whose specs differ only in what they draft for more requests run the same steps for one: "
        "they are twins. "
        "A load-aware arm below its knee is one too: it verifies every draft there, as with a fixed K. "
        "Ratios of mean time per output token at 1 request, geometric mean of the pairs and its interval at 95 %. "
        "That time leaves out the first step, which the engine pads to a decode's width only where K is fixed. "
        "With more requests batches vary from server to server."
    )
    yield table(
        ("file", "arms", "K", "ratio", "lowest to highest pair", "pairs"),
        [
            (
                f"[{one.file}](../measurements/{one.file})",
                f"{one.arm} / {one.over}",
                str(one.num_speculative_tokens),
                interval_words(one.ratios),
                f"{min(one.ratios):.3f} to {max(one.ratios):.3f}",
                str(len(one.ratios)),
            )
            for one in found
        ],
    )
    holding = sum(one.interval_holds_one for one in found)
    plain = [one for one in found if not one.has_load_aware]
    yield sentences(
        f"They differ by up to {distance_of(found):.1%}, by up to {distance_of(plain):.1%} where none is load-aware, "
        f"and steadily: {holding or 'none'} of the {len(found)} intervals {'holds' if holding == 1 else 'hold'} 1. "
        "Side by side every arm is launched once, and an interval of its rounds does not contain how far two equal "
        "servers differ. "
        "So a ratio within that distance of 1 decides nothing between two ways to serve, however narrow its interval. "
        "Why they differ is not known."
    )


def interval_words(ratios: Sequence[float]) -> str:
    low, high = interval_95(ratios)
    shown = f"{geometric_mean(ratios):.3f}"
    return shown if low is None or high is None else f"{shown} ({low:.3f} to {high:.3f})"

"""`speculative.dynamic: {from_curve: ...}` resolved: the tiers that measured steps choose, and what they promise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from servespec.compiler import plan_rules as rules
from servespec.compiler.curves.acceptance import Acceptance, engine_rates_of_length, rates_of_length
from servespec.compiler.curves.profile import Profile
from servespec.compiler.curves.tiers import Candidate, Prediction, best_tiers, predictions
from servespec.compiler.graphs.tiers import Tier
from servespec.compiler.resolve.drafting import Drafting
from servespec.diagnostics import Diagnostic
from servespec.schema.source import SpecSource
from servespec.schema.spec import CurveTiers, SpeculativeSection
from servespec.units import Requests

_PATH = ("speculative", "dynamic")
_AGAIN = "run `servespec profile` on this spec again"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierChoice:
    """Tiers by a curve, with what it predicts of them and of each candidate alone."""

    profile: Profile
    acceptance: Acceptance
    candidates: tuple[int, ...]
    tolerance: float
    tiers: tuple[Tier, ...]
    predictions: tuple[Prediction, ...]

    @property
    def ranges(self) -> tuple[tuple[int, int | None, int], ...]:
        """The last one has no end, as that of written tiers."""
        ends = [*(tier.to_requests for tier in self.tiers[:-1]), None]
        return tuple(
            (tier.from_requests, end, tier.num_speculative_tokens) for tier, end in zip(self.tiers, ends, strict=True)
        )


def with_curve_tiers(
    drafting: Drafting,
    section: SpeculativeSection | None,
    profile: Profile | None,
    max_num_seqs: Requests,
    source: SpecSource,
) -> tuple[Drafting, TierChoice | None]:
    """``drafting`` with the tiers that a curve chooses, where the spec asks for one; its findings say what is amiss."""
    asked = section.curve_tiers if section is not None else None
    if section is None or asked is None:
        return drafting, None
    if profile is None:
        finding = rules.R119.at(source.place_of_key((*_PATH, "from_curve")), "the curve is not at hand", _AGAIN)
        return replace(drafting, findings=(*drafting.findings, finding)), None
    k = drafting.num_speculative_tokens.value
    candidates = asked.candidates or tuple(one for one in profile.by_drafts if one <= k)
    acceptance = acceptance_of(asked, section, k)
    faults = tuple(_faults(asked, profile, acceptance, candidates, max_num_seqs, k, source))
    if faults:
        return replace(drafting, findings=(*drafting.findings, *faults)), None
    choice = _choice(asked, profile, acceptance, candidates, max_num_seqs)
    return replace(drafting, ranges=choice.ranges), choice


def acceptance_of(asked: CurveTiers, section: SpeculativeSection, num_speculative_tokens: int) -> Acceptance:
    """As the spec says it, or as the engine is told to pretend."""
    if asked.acceptance_rates is not None:
        return Acceptance(asked.acceptance_rates, "`acceptance_rates` of the spec")
    if asked.acceptance_length is not None:
        rates = rates_of_length(asked.acceptance_length, num_speculative_tokens)
        because = f"`acceptance_length: {asked.acceptance_length:g}` of the spec, each draft accepted alike"
        return Acceptance(rates, because)
    written = section.engine_fields.get("synthetic_acceptance_rates")
    if isinstance(written, list):
        return Acceptance(tuple(float(rate) for rate in written), "`synthetic_acceptance_rates` of the spec")
    length = section.engine_fields.get("synthetic_acceptance_length")
    number = float(length) if isinstance(length, int | float) else 1.0
    rates = engine_rates_of_length(number, num_speculative_tokens)
    return Acceptance(rates, "`synthetic_acceptance_length` of the spec, as the engine spreads it")


def _faults(
    asked: CurveTiers,
    profile: Profile,
    acceptance: Acceptance,
    candidates: Sequence[int],
    max_num_seqs: Requests,
    num_speculative_tokens: int,
    source: SpecSource,
) -> Iterator[Diagnostic]:
    curve_place = source.place_of((*_PATH, "from_curve"))
    timed = ", ".join(f"`{k}`" for k in profile.by_drafts)
    for at, k in enumerate(asked.candidates or ()):
        place = source.place_of((*_PATH, "candidates", at))
        if k > num_speculative_tokens:
            message = f"the candidate `{k}` is above K, which is `{num_speculative_tokens}`"
            yield rules.R119.at(place, message, "delete the candidate")
        elif k not in profile.by_drafts:
            message = f"`{profile.name}` has no steps with K = {k}; it has {timed}"
            yield rules.R119.at(place, message, f"delete the candidate, or {_AGAIN} with it")
    if not candidates:
        message = f"`{profile.name}` has steps with K = {timed} alone, all above K = {num_speculative_tokens}"
        yield rules.R119.at(curve_place, message, _AGAIN)
    widest = max(candidates, default=0)
    if widest > len(acceptance.rates):
        message = f"there are rates of {len(acceptance.rates)} positions, and the widest candidate is {widest}"
        place = source.place_of((*_PATH, "acceptance_rates"))
        yield rules.R119.at(place, message, f"write one for each of {widest} drafts")
    for (first, last), ks in _reaches(profile, candidates).items():
        if first > 1 or last < max_num_seqs:
            message = (
                f"`{profile.name}` has steps of {first} to {last} requests with K = {', '.join(map(str, ks))}, and a "
                f"batch has 1 to {max_num_seqs}"
            )
            lower = f"write `scheduler.max_num_seqs: {last}`, or " if first == 1 else ""
            yield rules.R119.at(curve_place, message, f"{lower}{_AGAIN}")


def _reaches(profile: Profile, candidates: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """The K that were timed for the same first and last number of requests."""
    found: dict[tuple[int, int], list[int]] = {}
    for k in candidates:
        if k in profile.by_drafts:
            found.setdefault((profile.by_drafts[k].first, profile.by_drafts[k].last), []).append(k)
    return found


def _choice(
    asked: CurveTiers, profile: Profile, acceptance: Acceptance, ks: Sequence[int], max_num_seqs: Requests
) -> TierChoice:
    candidates = [
        Candidate(num_speculative_tokens=k, tokens_per_step=acceptance.tokens_per_step(k), steps=profile.by_drafts[k])
        for k in sorted(set(ks))
    ]
    tiers = best_tiers(candidates, max_num_seqs, asked.tolerance)
    return TierChoice(
        profile=profile,
        acceptance=acceptance,
        candidates=tuple(one.num_speculative_tokens for one in candidates),
        tolerance=asked.tolerance,
        tiers=tiers,
        predictions=tuple(predictions(candidates, tiers, profile.without)),
    )

"""Whether the curve that a spec names is of the engine that the plan starts, and which tiers it chose."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from servespec.compiler import plan_rules as rules
from servespec.compiler.captured import stock_list_of
from servespec.compiler.curves.profile import Profile, curve_identity
from servespec.compiler.curves.tiers import gain_range, gain_range_over_none
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.split import decode_source
from servespec.compiler.launch_identity import differing_names
from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.plan import Plan
from servespec.compiler.resolve.curve_tiers import TierChoice
from servespec.diagnostics import Diagnostic, Place

_ENGINE: Final = "engine"


def curve_findings(plan: Plan) -> Iterator[Diagnostic]:
    """Nothing where the spec names no curve."""
    request, choice = plan.resolution.request, plan.resolution.tier_choice
    profile, speculative = request.profile, request.spec.speculative
    files = speculative.curve_files if speculative is not None else None
    if profile is None or files is None:
        return
    place = request.source.place_of(("speculative", files[0], "from_curve"))
    others = differing_names(profile.identity, curve_identity(identity_of(plan.to_json())))
    if others == (_ENGINE,):
        message = f"`{profile.name}` was measured on {profile.identity.get(_ENGINE, 'an engine that it does not name')}"
        yield rules.P144.at(place, message, "run `servespec profile` on this spec again")
    elif others:
        names = ", ".join(f"`{name}`" for name in others)
        message = f"`{profile.name}` was measured with another {names}"
        yield rules.P143.at(place, message, "run `servespec profile` on this spec, and name what it writes")
        return
    if gaps := _gaps(plan, profile):
        shown = ", ".join(f"{before} and {after} requests" for before, after in gaps[:_MOST_SIZES])
        more = f" and in {len(gaps) - _MOST_SIZES} more places" if len(gaps) > _MOST_SIZES else ""
        message = f"`{profile.name}` has nothing between {shown}{more}"
        yield rules.P153.at(place, message, "run `servespec profile` again with `--requests auto`")
    if choice is None:
        yield from _knee(plan, profile, place)
        return
    if other := _other_graphs(plan, choice):
        shown = ", ".join(f"{requests} requests with K = {k}" for requests, k in other[:_MOST_SIZES])
        more = f" and {len(other) - _MOST_SIZES} more" if len(other) > _MOST_SIZES else ""
        message = f"`{profile.name}` has {shown}{more} with other decode graphs than this spec captures"
        yield rules.P145.at(place, message, "run `servespec profile` on this spec again")
    yield rules.P142.at(place, _words(choice), f"write it by hand as `dynamic: {written_tiers(choice)}`")


_WIDEST_GAP: Final = 4
"""Chosen: of docs/measurements/2026-12-01-h200-steps-8b-fp8-2.json every second power of two gave tiers that lose up to
4 % at one batch by the whole curve, every third one 8 %, and the first and last size alone 50 %."""


def _gaps(plan: Plan, profile: Profile) -> list[tuple[int, int]]:
    """Neighbours among the timed sizes that batches lie between and that are far apart, of any K that is read."""
    frame, choice = plan.resolution.frame, plan.resolution.tier_choice
    read = (frame.num_speculative_tokens,) if choice is None else choice.candidates
    pairs = {pair for k in read if k in profile.by_drafts for pair in pairwise(profile.by_drafts[k].sizes)}
    return sorted(pair for pair in pairs if pair[0] < frame.max_num_seqs and pair[1] > _WIDEST_GAP * pair[0])


def _other_graphs(plan: Plan, choice: TierChoice) -> list[tuple[int, int]]:
    """Timed sizes of the candidates that had a FULL graph where the spec's decode fields give none, or vice versa."""
    resolution = plan.resolution
    frame = resolution.frame
    source = decode_source(frame, resolution.fields, resolution.defaults, stock_list_of(resolution))
    budget = source.budget_tokens or frame.max_num_batched_tokens
    captures_full = frame.mode.decode_mode() is CudaGraphMode.FULL

    def is_full(requests: int, k: int) -> bool:
        return captures_full and requests <= source.cap_requests and requests * (1 + k) <= budget

    timed = choice.profile.on_full_graphs.items()
    return [
        (requests, k)
        for (requests, k), was_full in sorted(timed)
        if k in choice.candidates and requests <= frame.max_num_seqs and was_full != is_full(requests, k)
    ]


_MOST_SIZES: Final = 3


def _knee(plan: Plan, profile: Profile, place: Place) -> Iterator[Diagnostic]:
    """Where `load_aware` asks for it, and the curve has one."""
    frame = plan.resolution.frame
    k, knee = frame.num_speculative_tokens, frame.adaptive_from_requests
    if knee == 1:
        return
    curve = profile.by_drafts[k]
    after = next(size for size in curve.sizes if size > knee)
    before_steps, after_steps = (1 / curve.seconds_at(size) for size in (knee, after))
    message = (
        f"`{profile.name}` has its knee at {knee} requests: with K = {k} a server makes {before_steps:.0f} steps a "
        f"second there, and {after_steps:.0f} at {after}"
    )
    yield rules.P154.at(place, message, f"write it by hand as `load_aware: {{from_requests: {knee}}}`")


def _words(choice: TierChoice) -> str:
    tiers = ", ".join(
        f"K = {tier.num_speculative_tokens} for {tier.from_requests} to {tier.to_requests} requests"
        for tier in choice.tiers
    )
    over_none = gain_range_over_none(choice.predictions)
    gains = [_gain_words(choice, k) for k in choice.candidates]
    if over_none is not None:
        gains.append(f"{over_none[0]:.2f}x to {over_none[1]:.2f}x of no speculation")
    return f"`{choice.profile.name}` chose {tiers}; predicted {', '.join(gains)}"


def _gain_words(choice: TierChoice, num_speculative_tokens: int) -> str:
    low, high = gain_range(choice.predictions, num_speculative_tokens)
    return f"{low:.2f}x to {high:.2f}x of K = {num_speculative_tokens} fixed"


def written_tiers(choice: TierChoice) -> str:
    """The tiers as a spec writes them."""
    words = [f"{{up_to: {tier.to_requests}, {_k_words(tier.num_speculative_tokens)}}}" for tier in choice.tiers[:-1]]
    return f"[{', '.join([*words, f'{{{_k_words(choice.tiers[-1].num_speculative_tokens)}}}'])}]"


def _k_words(num_speculative_tokens: int) -> str:
    return f"num_speculative_tokens: {num_speculative_tokens}"

"""Whether the curve that a spec names is of the engine that the plan starts, and which tiers it chose."""

from collections.abc import Iterator
from typing import Final

from servespec.compiler import plan_rules as rules
from servespec.compiler.captured import stock_list_of
from servespec.compiler.curves.profile import curve_identity
from servespec.compiler.curves.tiers import gain_range
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.split import decode_source
from servespec.compiler.launch_identity import differing_names
from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.plan import Plan
from servespec.compiler.resolve.curve_tiers import TierChoice
from servespec.diagnostics import Diagnostic

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
    if choice is None:
        return
    if other := _other_graphs(plan, choice):
        shown = ", ".join(f"{requests} requests with K = {k}" for requests, k in other[:_MOST_SIZES])
        more = f" and {len(other) - _MOST_SIZES} more" if len(other) > _MOST_SIZES else ""
        message = f"`{profile.name}` has {shown}{more} with other decode graphs than this spec captures"
        yield rules.P145.at(place, message, "run `servespec profile` on this spec again")
    yield rules.P142.at(place, _words(choice), f"write it by hand as `dynamic: {written_tiers(choice)}`")


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


def _words(choice: TierChoice) -> str:
    tiers = ", ".join(
        f"K = {tier.num_speculative_tokens} for {tier.from_requests} to {tier.to_requests} requests"
        for tier in choice.tiers
    )
    gains = ", ".join(_gain_words(choice, k) for k in choice.candidates)
    return f"`{choice.profile.name}` chose {tiers}; predicted {gains}"


def _gain_words(choice: TierChoice, num_speculative_tokens: int) -> str:
    low, high = gain_range(choice.predictions, num_speculative_tokens)
    return f"{low:.2f}x to {high:.2f}x of K = {num_speculative_tokens} fixed"


def written_tiers(choice: TierChoice) -> str:
    """The tiers as a spec writes them."""
    words = [f"{{up_to: {tier.to_requests}, {_k_words(tier.num_speculative_tokens)}}}" for tier in choice.tiers[:-1]]
    return f"[{', '.join([*words, f'{{{_k_words(choice.tiers[-1].num_speculative_tokens)}}}'])}]"


def _k_words(num_speculative_tokens: int) -> str:
    return f"num_speculative_tokens: {num_speculative_tokens}"

"""Whether the curve that chose a plan's tiers is of the engine that the plan starts, and what it chose."""

from collections.abc import Iterator
from typing import Final

from servespec.compiler import plan_rules as rules
from servespec.compiler.curves.profile import curve_identity, identity_differences
from servespec.compiler.curves.tiers import gain_range
from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.plan import Plan
from servespec.compiler.resolve.curve_tiers import TierChoice
from servespec.diagnostics import Diagnostic

_ENGINE: Final = "engine"
_PATH: Final = ("speculative", "dynamic", "from_curve")


def curve_findings(plan: Plan) -> Iterator[Diagnostic]:
    """Nothing where the spec has its own tiers or none."""
    choice = plan.resolution.tier_choice
    if choice is None:
        return
    place = plan.resolution.request.source.place_of(_PATH)
    profile = choice.profile
    others = identity_differences(profile.identity, curve_identity(identity_of(plan.to_json())))
    if others == (_ENGINE,):
        message = f"`{profile.name}` was measured on {profile.identity[_ENGINE]}"
        yield rules.P144.at(place, message, "run `servespec profile` on this spec again")
    elif others:
        names = ", ".join(f"`{name}`" for name in others)
        message = f"`{profile.name}` was measured with another {names}"
        yield rules.P143.at(place, message, "run `servespec profile` on this spec, and name what it writes")
        return
    yield rules.P142.at(place, _words(choice), f"write it by hand as `dynamic: {written_tiers(choice)}`")


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

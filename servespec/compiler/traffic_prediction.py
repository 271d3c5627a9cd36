"""Tiers that a curve chose under traffic: what they serve beside every fixed K, as JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from servespec.compiler.curves.closed_loop import Dice, DraftsOf, Served, StepTimes, Traffic, served
from servespec.compiler.curves.mixed_steps import MixedSteps
from servespec.compiler.curves.step_curve import StepCurve
from servespec.compiler.graphs.tiers import Tier, tier_of
from servespec.compiler.memory.document import memory_json
from servespec.compiler.plan import Plan
from servespec.compiler.plan_rules import R126
from servespec.compiler.resolve.curve_tiers import TierChoice
from servespec.compiler.resolve.request import max_model_len
from servespec.compiler.traffic import TrafficAsked, traffic_findings
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.units import Requests, Tokens

_SPEED_DIGITS: Final = 1
FRONT_END_SECONDS: Final = 0.0014
"""Fitted: what a request takes of the way through a bench's client and the API server, with prompts of 32 tokens and
answers that are streamed by 16.  It is the value, of 0.2 ms apart, that errs least from 64 requests on in the bench of
``FITTED_ON``; docs/reference/curves.md has what it does to benches that it was not fitted on.  API servers took 2.4 to
2.7 ms of processor time a request in them, the streaming of its answer included.
"""
FITTED_ON: Final = "docs/measurements/2026-12-01-h200-bench-tiers-8b-fp8-2.json"


def predicted_traffic(
    plan: Plan,
    asked: TrafficAsked,
    new_dice: Callable[[], Dice],
    through: Callable[[Sequence[int]], Iterable[int]] = iter,
    front_end_seconds: float = FRONT_END_SECONDS,
) -> dict[str, Any]:
    """What the plan's tiers serve, each fixed K of its curve, and a server that never drafts where that was timed.

    All of them get dice of their own.  ``through`` goes through the loads one by one, and may tell of it; each request
    takes ``front_end_seconds`` of the front end.
    Raises SpecError where the plan has no tiers by a curve, or the curve does not reach what is asked.
    """
    choice = plan.resolution.tier_choice
    if choice is None:
        place = plan.resolution.request.source.place_of_key(("speculative",))
        message = "its tiers are not chosen by a curve, so that no times are at hand"
        section = plan.resolution.request.spec.speculative
        instead = " in the place of `load_aware`" if section is not None and section.load_aware is not None else ""
        help_text = f"write `speculative.dynamic: {{from_curve: FILE}}`{instead}; `servespec profile` writes the file"
        raise SpecError([R126.at(place, message, help_text)])
    limits = plan.resolution.limits
    budget = Tokens(limits.max_num_scheduled_tokens.value or limits.max_num_batched_tokens.value)
    faults = tuple(_faults(asked, choice, budget, plan))
    if faults:
        raise SpecError(faults)
    mixed = choice.profile.mixed_steps
    assert mixed is not None
    return {
        "measured_by": choice.profile.name,
        "acceptance_rates": list(choice.acceptance.rates),
        "input_tokens": asked.input_tokens,
        "output_tokens": asked.output_tokens,
        "prompts_per_request": asked.prompts_per_request,
        "front_end_seconds": front_end_seconds,
        "front_end_fitted_on": FITTED_ON if front_end_seconds == FRONT_END_SECONDS else None,
        "loads": [
            _load_json(choice, mixed, budget, _traffic(asked, clients, front_end_seconds), new_dice)
            for clients in through(asked.concurrencies)
        ],
    }


def _faults(asked: TrafficAsked, choice: TierChoice, budget: Tokens, plan: Plan) -> Iterator[Diagnostic]:
    request, limits = plan.resolution.request, plan.resolution.limits
    yield from traffic_findings(asked, max_model_len(request).value, int(limits.max_num_seqs.value), R126)
    yield from _beyond_cache(asked, plan)
    place = request.source.place_of(("speculative", "dynamic", "from_curve"))
    mixed = choice.profile.mixed_steps
    if mixed is None:
        yield R126.at(place, f"`{choice.profile.name}` has no steps with prompts", "run `servespec profile` again")
    elif mixed.last < budget:
        message = (
            f"`{choice.profile.name}` has steps with prompts of up to {mixed.last} tokens, and a step has {budget}"
        )
        yield R126.at(place, message, f"run `servespec profile` with `--tokens` up to {budget}")


def _beyond_cache(asked: TrafficAsked, plan: Plan) -> Iterator[Diagnostic]:
    """Requests for which the engine would stop others, by the high end of what its cache holds."""
    held = memory_json(plan.stages)["totals"]["kv_cache_high_tokens"] if plan.stages else None
    most = max(asked.concurrencies, default=0)
    needed = most * asked.tokens_per_request
    if held is not None and needed > held:
        message = (
            f"{most} requests of {asked.tokens_per_request} tokens need {needed:,} tokens of KV cache, "
            f"and it has {held:,}"
        )
        yield R126.at(Place("--concurrency"), message, "lower it: the engine would stop requests to make room")


def _traffic(asked: TrafficAsked, clients: int, front_end_seconds: float) -> Traffic:
    return Traffic(
        clients=Requests(clients),
        requests=Requests(clients * asked.prompts_per_request),
        input_tokens=asked.input_tokens,
        output_tokens=asked.output_tokens,
        front_end_seconds=front_end_seconds,
    )


def _load_json(
    choice: TierChoice,
    mixed: MixedSteps,
    budget: Tokens,
    traffic: Traffic,
    new_dice: Callable[[], Dice],
) -> dict[str, Any]:
    profile, rates = choice.profile, choice.acceptance.rates

    def played(decode: Mapping[int, StepCurve], drafts_of: DraftsOf, mixed: MixedSteps = mixed) -> dict[str, Any]:
        times = StepTimes(decode=decode, mixed=mixed, budget_tokens=budget)
        return _served_json(served(traffic, times, rates, drafts_of, new_dice()))

    without = profile.without
    if without is not None and not (without.first == 1 and traffic.clients <= without.last):
        without = None
    return {
        "requests": int(traffic.clients),
        "tiers": played(profile.by_drafts, _by_tiers(choice.tiers)),
        "fixed": [{"num_speculative_tokens": k, **played(profile.by_drafts, _fixed(k))} for k in choice.candidates],
        "without_speculation": None
        if without is None
        else played({0: without}, _fixed(0), replace(mixed, drafter=None)),
    }


def _by_tiers(tiers: Sequence[Tier]) -> DraftsOf:
    def drafts_of(requests: Requests) -> int:
        tier = tier_of(tiers, requests)
        assert tier is not None
        return tier.num_speculative_tokens

    return drafts_of


def _fixed(k: int) -> DraftsOf:
    return lambda _: k


def _served_json(one: Served) -> dict[str, Any]:
    return {
        "tokens_per_second": round(one.tokens_per_second, _SPEED_DIGITS),
        "decode_steps": one.decode_steps,
        "mixed_steps": one.mixed_steps,
    }

"""Tiers that a curve chose under traffic: what they serve beside every fixed K, as JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from servespec.compiler.curves.closed_loop import Dice, DraftsOf, Served, StepTimes, Traffic, served
from servespec.compiler.curves.mixed_steps import MixedSteps
from servespec.compiler.curves.step_curve import StepCurve
from servespec.compiler.graphs.tiers import Tier
from servespec.compiler.plan import Plan
from servespec.compiler.plan_rules import R126
from servespec.compiler.resolve.curve_tiers import TierChoice
from servespec.compiler.resolve.request import max_model_len
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.units import Requests, Tokens

_SPEED_DIGITS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficAsked:
    """Requests at a time, each size one row; and of each request its prompt, its answer, and how many there are."""

    concurrencies: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    prompts_per_request: int


def predicted_traffic(
    plan: Plan,
    asked: TrafficAsked,
    new_dice: Callable[[], Dice],
    through: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> dict[str, Any]:
    """What the plan's tiers serve, each fixed K of its curve, and a server that never drafts where that was timed.

    All of them get dice of their own.  ``through`` goes through the loads one by one, and may tell of it.
    Raises SpecError where the plan has no tiers by a curve, or the curve does not reach what is asked.
    """
    choice = plan.resolution.tier_choice
    if choice is None:
        place = plan.resolution.request.source.place_of_key(("speculative",))
        message = "its tiers are not chosen by a curve, so that no times are at hand"
        help_text = "write `speculative.dynamic: {from_curve: FILE}`; `servespec profile` writes the file"
        raise SpecError([R126.at(place, message, help_text)])
    limits = plan.resolution.limits
    budget = Tokens(limits.max_num_scheduled_tokens.value or limits.max_num_batched_tokens.value)
    faults = tuple(_faults(asked, choice, int(limits.max_num_seqs.value), budget, plan))
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
        "loads": [
            _load_json(choice, mixed, budget, asked, clients, new_dice) for clients in through(asked.concurrencies)
        ],
    }


def _faults(
    asked: TrafficAsked, choice: TierChoice, max_num_seqs: int, budget: Tokens, plan: Plan
) -> Iterator[Diagnostic]:
    yield from _faults_of_options(asked, max_num_seqs)
    yield from _faults_of_requests(asked, plan)
    place = plan.resolution.request.source.place_of(("speculative", "dynamic", "from_curve"))
    mixed = choice.profile.mixed_steps
    if mixed is None:
        yield R126.at(place, f"`{choice.profile.name}` has no steps with prompts", "run `servespec profile` again")
    elif mixed.last < budget:
        message = (
            f"`{choice.profile.name}` has steps with prompts of up to {mixed.last} tokens, and a step has {budget}"
        )
        yield R126.at(place, message, f"run `servespec profile` with `--tokens` up to {budget}")


def _faults_of_options(asked: TrafficAsked, max_num_seqs: int) -> Iterator[Diagnostic]:
    numbers = {
        "--input-tokens": asked.input_tokens,
        "--output-tokens": asked.output_tokens,
        "--prompts": asked.prompts_per_request,
        **{f"--concurrency {one}": one for one in asked.concurrencies},
    }
    for option, number in numbers.items():
        if number < 1:
            yield R126.at(Place(option), f"`{option}` is `{number}`", "write 1 or more")
    place, most = Place("--concurrency"), max(asked.concurrencies, default=0)
    if len(set(asked.concurrencies)) < len(asked.concurrencies):
        yield R126.at(place, "a concurrency is named twice", "name each once")
    if most > max_num_seqs:
        message = f"concurrency {most} is above `scheduler.max_num_seqs` {max_num_seqs}"
        yield R126.at(place, message, "lower it: the rest would wait in the queue")


def _faults_of_requests(asked: TrafficAsked, plan: Plan) -> Iterator[Diagnostic]:
    """What the engine refuses of such requests, and what it would take turns with."""
    needed, limit = asked.input_tokens + asked.output_tokens, max_model_len(plan.resolution.request).value
    if limit is not None and needed > limit:
        message = f"requests of {needed} tokens are longer than `model.max_model_len` {limit}"
        yield R126.at(Place("--input-tokens"), message, "shorten them, or raise `model.max_model_len`")
    memory, most = plan.to_json()["memory"], max(asked.concurrencies, default=0)
    held = None if memory is None else memory["totals"]["kv_cache_high_tokens"]
    if held is not None and most * needed > held:
        message = f"{most} requests of {needed} tokens need {most * needed:,} tokens of KV cache, and it has {held:,}"
        yield R126.at(Place("--concurrency"), message, "lower it: the engine would stop requests to make room")


def _load_json(
    choice: TierChoice,
    mixed: MixedSteps,
    budget: Tokens,
    asked: TrafficAsked,
    clients: int,
    new_dice: Callable[[], Dice],
) -> dict[str, Any]:
    traffic = Traffic(
        clients=Requests(clients),
        requests=Requests(clients * asked.prompts_per_request),
        input_tokens=asked.input_tokens,
        output_tokens=asked.output_tokens,
    )
    profile, rates = choice.profile, choice.acceptance.rates

    def played(decode: Mapping[int, StepCurve], drafts_of: DraftsOf, mixed: MixedSteps = mixed) -> dict[str, Any]:
        times = StepTimes(decode=decode, mixed=mixed, budget_tokens=budget)
        return _served_json(served(traffic, times, rates, drafts_of, new_dice()))

    without = profile.without
    return {
        "requests": clients,
        "tiers": played(profile.by_drafts, _by_tiers(choice.tiers)),
        "fixed": [{"num_speculative_tokens": k, **played(profile.by_drafts, _fixed(k))} for k in choice.candidates],
        "without_speculation": None
        if without is None
        else played({0: without}, _fixed(0), replace(mixed, drafter=None)),
    }


def _by_tiers(tiers: Sequence[Tier]) -> DraftsOf:
    return lambda requests: next(one.num_speculative_tokens for one in tiers if requests <= one.to_requests)


def _fixed(k: int) -> DraftsOf:
    return lambda _: k


def _served_json(one: Served) -> dict[str, Any]:
    return {
        "tokens_per_second": round(one.tokens_per_second, _SPEED_DIGITS),
        "decode_steps": one.decode_steps,
        "mixed_steps": one.mixed_steps,
    }

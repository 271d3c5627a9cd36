"""`speculative.load_aware` resolved: from how many requests on a step verifies adaptively."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from servespec.compiler import plan_rules as rules
from servespec.compiler.curves.profile import Profile
from servespec.compiler.curves.step_curve import StepCurve
from servespec.compiler.resolve.config_mode import ADAPTIVE
from servespec.compiler.resolve.step import Refusal
from servespec.diagnostics import Diagnostic, Place
from servespec.provenance import Origin, Resolved
from servespec.schema.source import SpecSource
from servespec.schema.spec import SpeculativeSection
from servespec.units import Requests

_PATH = ("speculative", "load_aware")


@dataclass(frozen=True, slots=True)
class LoadAware:
    """``from_requests`` is 1 where every load is meant, and None of ``value`` where the spec does not ask for it."""

    value: Resolved[int] | None
    findings: tuple[Diagnostic, ...] = ()

    @property
    def from_requests(self) -> Requests:
        return Requests(1 if self.value is None else self.value.value)


def resolve_load_aware(
    section: SpeculativeSection | None,
    profile: Profile | None,
    num_speculative_tokens: int,
    max_num_seqs: Requests,
    source: SpecSource,
) -> LoadAware:
    """As the spec writes it, or the knee of its curve."""
    asked = section.load_aware if section is not None else None
    if asked is None:
        return LoadAware(None)
    place = source.place_of((*_PATH, "from_requests"))
    found = _from_requests(asked.from_requests, profile, num_speculative_tokens, max_num_seqs, place)
    if isinstance(found, Diagnostic):
        return LoadAware(Resolved(1, Origin.DERIVED, "unknown"), (found,))
    return LoadAware(found, tuple(_never(found.value, max_num_seqs, place)))


def named_as_written(refusals: Iterable[Refusal], section: SpeculativeSection | None) -> tuple[Refusal, ...]:
    """What is about adaptive verification names the field that asks for it."""
    if section is None or section.load_aware is None or section.enable_adaptive_verification:
        return tuple(refusals)
    return tuple(replace(one, field=".".join(_PATH)) if one.field == ADAPTIVE else one for one in refusals)


def _from_requests(
    asked: int | Literal["auto"],
    profile: Profile | None,
    num_speculative_tokens: int,
    max_num_seqs: Requests,
    place: Place,
) -> Resolved[int] | Diagnostic:
    if isinstance(asked, int):
        return Resolved(asked, Origin.SPEC, "set in the spec")
    curve = None if profile is None else profile.by_drafts.get(num_speculative_tokens)
    if profile is None or curve is None:
        name = "the curve" if profile is None else f"`{profile.name}`"
        message = f"{name} has no steps with K = {num_speculative_tokens}"
        help_text = "run `servespec profile` on this spec again, or write a number of requests"
        return rules.R119.at(place, message, help_text)
    upper = upper_load(curve, max_num_seqs)
    if len(upper) < _FEWEST_SIZES:
        message = (
            f"`{profile.name}` has {len(upper)} sizes in the upper half of those to `max_num_seqs: {max_num_seqs}`"
        )
        help_text = f"profile {2 * _FEWEST_SIZES - 1} sizes or more within it, or write a number of requests"
        return rules.R122.at(place, message, help_text)
    knee = knee_of(curve, upper)
    if knee is None:
        message = (
            f"no step of `{profile.name}` takes longer than a smaller one by more than noise, from {upper[0]} to "
            f"{upper[-1]} requests: verifying fewer drafts would gain nothing"
        )
        return rules.R122.at(place, message, "delete `load_aware`, or write a number of requests")
    return Resolved(knee, Origin.DERIVED, f"the knee of `{profile.name}` with K = {num_speculative_tokens}")


def _never(from_requests: int, max_num_seqs: Requests, place: Place) -> Iterator[Diagnostic]:
    if from_requests > max_num_seqs:
        message = f"verification turns adaptive at {from_requests} requests, above `max_num_seqs: {max_num_seqs}`"
        yield rules.P147.at(place, message, "lower it, or delete `load_aware`")


_FEWEST_SIZES: Final = 3
"""Chosen: with fewer a knee would be wherever there is a pair."""


def upper_load(curve: StepCurve, max_num_seqs: Requests) -> tuple[int, ...]:
    """The upper half of the timed sizes that a server can have."""
    reached = tuple(size for size in curve.sizes if size <= max_num_seqs)
    return reached[len(reached) // 2 :]


def knee_of(curve: StepCurve, upper: Sequence[int]) -> int | None:
    """The size of ``upper`` from which steps per second fall most steeply; None where none falls beyond noise.

    Smaller sizes are left out: a step that starts to read more weights at a few requests is a drop too, and no reason
    to verify less.
    """
    falling = [pair for pair in pairwise(upper) if _is_beyond_noise(curve, *pair)]
    return max(falling, key=lambda pair: (_drop(curve, *pair), -pair[0]))[0] if falling else None


def _is_beyond_noise(curve: StepCurve, size: int, next_size: int) -> bool:
    """Noise is a share of each time, so that it is compared with the logarithm of their ratio."""
    rise = math.log(curve.seconds_at(next_size) / curve.seconds_at(size))
    return rise > max(math.hypot(curve.noise_at(size), curve.noise_at(next_size)), _ROUNDING)


_ROUNDING: Final = 1e-9
"""Of two equal times, whose logarithms were taken and taken back."""


def _drop(curve: StepCurve, size: int, next_size: int) -> float:
    """Steps per second that are lost from one size to the next, for each factor of e between them."""
    return (1 / curve.seconds_at(size) - 1 / curve.seconds_at(next_size)) / math.log(next_size / size)

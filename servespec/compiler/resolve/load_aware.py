"""`speculative.load_aware` resolved: from how many requests on a step verifies adaptively."""

import math
from dataclasses import dataclass
from itertools import pairwise

from servespec.compiler import plan_rules as rules
from servespec.compiler.curves.profile import Profile
from servespec.compiler.curves.step_curve import StepCurve
from servespec.diagnostics import Diagnostic
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
    if isinstance(asked.from_requests, int):
        written = Resolved(asked.from_requests, Origin.SPEC, "set in the spec")
        if asked.from_requests > max_num_seqs:
            message = (
                f"verification turns adaptive at {asked.from_requests} requests, above `max_num_seqs: {max_num_seqs}`"
            )
            return LoadAware(written, (rules.P147.at(place, message, "lower it, or delete `load_aware`"),))
        return LoadAware(written)
    curve = None if profile is None else profile.by_drafts.get(num_speculative_tokens)
    if profile is None or curve is None:
        name = "the curve" if profile is None else f"`{profile.name}`"
        message = f"{name} has no steps with K = {num_speculative_tokens}"
        help_text = "run `servespec profile` on this spec again, or write a number of requests"
        return LoadAware(Resolved(1, Origin.DERIVED, "unknown"), (rules.R119.at(place, message, help_text),))
    knee = knee_of(curve)
    because = f"the knee of `{profile.name}` with K = {num_speculative_tokens}"
    return LoadAware(Resolved(knee, Origin.DERIVED, because))


def knee_of(curve: StepCurve) -> int:
    """The size from which steps per second fall most steeply, of the upper half of the timed sizes.

    The lower half is left out: a step that starts to read more weights at a few requests is a drop too, and no reason
    to verify less.
    """
    upper = curve.sizes[len(curve.sizes) // 2 :]
    if len(upper) == 1:
        return upper[0]
    return max(pairwise(upper), key=lambda pair: (_drop(curve, *pair), -pair[0]))[0]


def _drop(curve: StepCurve, size: int, next_size: int) -> float:
    """Steps per second that are lost from one size to the next, for each factor of e between them."""
    return (1 / curve.seconds_at(size) - 1 / curve.seconds_at(next_size)) / math.log(next_size / size)

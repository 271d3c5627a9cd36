"""How counts and tiers relate to the load: replicas, tier edges, tiers that never apply."""

from collections.abc import Iterator

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable
from servespec.compiler.resolve.drafting import least_drafts
from servespec.diagnostics import Diagnostic


def _requests_per_rank(subject: Findable) -> Iterator[Diagnostic]:
    size = subject.resolution.request.spec.parallel.data_parallel_size
    if size > 1:
        seqs = subject.frame.max_num_seqs
        message = f"`max_num_seqs: {seqs}` bounds each of {size} replicas, {seqs * size} requests in all"
        help_text = f"for {seqs} requests in all write `max_num_seqs: {max(1, seqs // size)}`"
        yield rules.P117.at(subject.place("scheduler", "max_num_seqs"), message, help_text)


def _mixed_steps(subject: Findable) -> Iterator[Diagnostic]:
    steps = subject.coverage.mixed
    if steps:
        shown = ", ".join(f"{s.requests} requests ({s.tokens} tokens): {s.ran}" for s in steps)
        message = f"a step that mixes query lengths at a tier edge takes no FULL graph: {shown}"
        yield rules.P118.at(subject.place("speculative", "dynamic"), message)


def _unreachable_tiers(subject: Findable) -> Iterator[Diagnostic]:
    speculative = subject.resolution.request.spec.speculative
    if speculative is None:
        return
    first = 1
    for at, tier in enumerate(speculative.written_tiers):
        if first > subject.frame.max_num_seqs:
            message = f"tier {at + 1} starts at {first} requests, above `max_num_seqs: {subject.frame.max_num_seqs}`"
            yield rules.P119.at(
                subject.place("speculative", "dynamic", at), message, "delete the tier, or raise max_num_seqs"
            )
        first = (tier.up_to or first) + 1


def _depth_of_no_tier(subject: Findable) -> Iterator[Diagnostic]:
    """Tiers that a curve chose may be others with the next curve, which K leaves room for."""
    most, drafting = subject.frame.num_speculative_tokens, subject.resolution.drafting
    if not subject.frame.tiers or subject.resolution.tier_choice is not None:
        return
    # One that no batch reaches counts too: it has a finding of its own, and K must not be below it.
    deepest = max(k for _, _, k in drafting.ranges)
    least = least_drafts(drafting.method.value, subject.resolution.request.draft, deepest)
    if least < most:
        message = f"the deepest tier drafts {deepest}, and K is {most}"
        place = subject.place("speculative", "num_speculative_tokens")
        yield rules.P156.at(place, message, _lower_depth(least))


def _lower_depth(least: int) -> str:
    if least == 0:
        return "delete `speculative`: nothing is ever drafted"
    return f"write `num_speculative_tokens: {least}`, or a tier that drafts more"


CHECKS: tuple[Check, ...] = (
    _requests_per_rank,
    _mixed_steps,
    _unreachable_tiers,
    _depth_of_no_tier,
)

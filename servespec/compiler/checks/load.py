"""How counts and tiers relate to the load: replicas, tier edges, tiers that never apply."""

from collections.abc import Iterator

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable
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


CHECKS: tuple[Check, ...] = (
    _requests_per_rank,
    _mixed_steps,
    _unreachable_tiers,
)

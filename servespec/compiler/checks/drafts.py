"""Drafters and adaptive verification: graphs that no batch reaches, reach that another field cuts, gaps."""

from collections.abc import Iterator
from itertools import pairwise

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable, sizing_place, with_extension
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Routine
from servespec.diagnostics import Diagnostic


def _dead_tiers(subject: Findable) -> Iterator[Diagnostic]:
    """Tiers that the engine captures for a drafter which always runs its whole block."""
    frame = subject.frame
    if frame.drafter.kind is not DrafterKind.BLOCK or not frame.tiers:
        return
    dead = [s for s in subject.shapes if s.routine is Routine.BLOCK and s.query_len != frame.drafter.query_len]
    if dead:
        always = f"the block is always q = {frame.drafter.query_len}"
        message = f"{len(dead)} drafter graphs of other tiers can never be replayed: {always}"
        help_text = with_extension(subject, "leaves them out")
        yield rules.P104.at(subject.place("speculative", "dynamic"), message, help_text)


def _dead_verification_sizes(subject: Findable) -> Iterator[Diagnostic]:
    limit = subject.resolution.verify_limit_tokens
    sizes = sorted(s.tokens for s in subject.shapes if s.routine is Routine.ADAPTIVE_VERIFICATION)
    if limit is None or not sizes:
        return
    reached = max(subject.frame.max_num_seqs, limit)
    serving = next((size for size in sizes if size >= reached), sizes[-1])
    dead = [size for size in sizes if size > serving]
    if dead:
        message = (
            f"{len(dead)} of {len(sizes)} adaptive-verification sizes are above what a step can hold "
            f"({reached} tokens for this vocabulary)"
        )
        requests = -(-serving // subject.frame.query_len)
        help_text = f"`max_decode_cudagraph_capture_requests: {requests}` leaves them out"
        yield rules.P104.at(subject.place("speculative", "enable_adaptive_verification"), message, help_text)


def _draft_coverage_cut(subject: Findable) -> Iterator[Diagnostic]:
    """A block drafter whose reach the recorded maximum cuts below the target's."""
    frame, cap = subject.frame, subject.fields.prefill_cap_tokens
    if frame.drafter.kind is not DrafterKind.BLOCK or cap is None:
        return
    target = max((s.requests or 0 for s in subject.shapes if s.routine is Routine.UNIFORM_DECODE), default=0)
    draft = max((s.requests or 0 for s in subject.shapes if s.routine is Routine.BLOCK), default=0)
    needed = target * frame.drafter.query_len
    if draft < target and cap < needed:
        message = f"the drafter's graphs end at {draft} requests, the target's at {target}"
        help_text = f"`max_prefill_cudagraph_capture_tokens: {needed}` lets them reach as far"
        yield rules.P108.at(subject.place("compilation", "max_prefill_cudagraph_capture_tokens"), message, help_text)


def _verification_gaps(subject: Findable) -> Iterator[Diagnostic]:
    """More than a quarter of the size between two neighbours from 8 tokens on."""
    sizes = sorted(s.tokens for s in subject.shapes if s.routine is Routine.ADAPTIVE_VERIFICATION)
    gaps = [(a, b) for a, b in pairwise(sizes) if a >= 8 and b - a > -(-a // 4)]
    if gaps:
        shown = ", ".join(f"{a} to {b}" for a, b in gaps[:4])
        message = f"nothing is captured between {shown} tokens"
        yield rules.P113.at(sizing_place(subject), message, with_extension(subject, "has a dense grid for it"))


CHECKS: tuple[Check, ...] = (
    _dead_tiers,
    _dead_verification_sizes,
    _draft_coverage_cut,
    _verification_gaps,
)

"""Drafters and adaptive verification: graphs that no batch reaches, reach that another field cuts, gaps."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable, prefill_cap, sizing_place, with_extension
from servespec.compiler.facts.graph_sizes import GAP_ACCEPTANCE_LOSS, SPARSE_VERIFICATION_TIME
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Routine, Shape
from servespec.compiler.graphs.split import VerificationGrid, split_shapes
from servespec.compiler.memory.graph_lines import graph_lines
from servespec.compiler.memory.stage import stages_of
from servespec.compiler.remedies import graph_remedies
from servespec.compiler.resolve.compiled_parts import uncompiled_drafter
from servespec.diagnostics import Diagnostic
from servespec.units import size_words


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
    reached = subject.frame.most_verified_tokens
    sizes = _verification_sizes(subject.shapes)
    if reached is None or not sizes:
        return
    serving = next((size for size in sizes if size >= reached), sizes[-1])
    dead = [size for size in sizes if size > serving]
    if dead:
        message = (
            f"{len(dead)} of {len(sizes)} adaptive-verification sizes are above what a step can hold "
            f"({reached} tokens for this vocabulary)"
        )
        help_text = "`compilation.adaptive_verification_grid: reachable` leaves them out"
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
        help_text = f"{prefill_cap(subject, needed)} lets them reach as far"
        yield rules.P108.at(subject.place("compilation", "max_prefill_cudagraph_capture_tokens"), message, help_text)


def _verification_gaps(subject: Findable) -> Iterator[Diagnostic]:
    """More than a quarter of the size between two neighbours from 8 tokens on."""
    if subject.fields.verification_grid is VerificationGrid.SPARSE and subject.shapes == subject.asked:
        return
    sizes = _verification_sizes(subject.shapes)
    gaps = [(a, b) for a, b in pairwise(sizes) if a >= 8 and b - a > -(-a // 4)]
    if gaps:
        shown = ", ".join(f"{a} to {b}" for a, b in gaps[:4])
        message = f"nothing is captured between {shown} tokens"
        yield rules.P113.at(sizing_place(subject), message, with_extension(subject, "has a dense grid for it"))


def _chosen_verification_grid(subject: Findable) -> Iterator[Diagnostic]:
    """What another grid than the dense one saves, and what it may cost."""
    grid, frame = subject.fields.verification_grid, subject.frame
    sizes = _verification_sizes(subject.shapes)
    if grid is VerificationGrid.DENSE or not sizes or subject.shapes != subject.asked:
        return
    resolution = subject.resolution
    dense_fields = replace(subject.fields, verification_grid=VerificationGrid.DENSE)
    dense_shapes = split_shapes(frame, dense_fields, resolution.defaults, subject.stock_list)
    dense = _verification_sizes(dense_shapes)
    if sizes == dense:
        return
    message = (
        f"`{grid}` has {len(sizes)} sizes of adaptive verification up to {sizes[-1]} tokens, `dense` {len(dense)} up "
        f"to {dense[-1]}{_saved_words(subject, dense_shapes)}"
    )
    yield rules.P146.at(
        subject.place("compilation", "adaptive_verification_grid"),
        message,
        _SPARSE_RISK if grid is VerificationGrid.SPARSE else "no step verifies more, so that nothing is lost",
    )


def _saved_words(subject: Findable, dense_shapes: tuple[Shape, ...]) -> str:
    """How much less the graphs take by the ledger's formulas, '' where they do not know."""
    resolution = subject.resolution
    if subject.ledger is None:
        return ""
    remedies = graph_remedies(resolution, subject.asked, subject.lowering)
    last = stages_of(resolution.request.spec)[-1]
    own, dense = (
        sum(line.size for line in graph_lines(resolution, shapes, subject.lowering, remedies, stage=last))
        for shapes in (subject.shapes, dense_shapes)
    )
    return f"; its graphs take {size_words(max(dense - own, 0))} less by formula"


_SPARSE_RISK = (
    f"gaps let a step verify fewer drafts: these sizes stayed within {SPARSE_VERIFICATION_TIME.value:.2%} of the dense "
    f"grid's engine time on one model, while a grid without sizes between 64 and 128 tokens cost "
    f"{GAP_ACCEPTANCE_LOSS.value:.1%} of acceptance at 16 requests; measure with `servespec bench`"
)


def _verification_sizes(shapes: Iterable[Shape]) -> list[int]:
    return sorted(shape.tokens for shape in shapes if shape.routine is Routine.ADAPTIVE_VERIFICATION)


def _all_drafts_in_every_tier(subject: Findable) -> Iterator[Diagnostic]:
    """Drafters whose one pass, or whose one graph, makes all drafts whatever the tier asks for."""
    frame = subject.frame
    fewer = [tier for tier in frame.tiers if 0 < tier.num_speculative_tokens < frame.num_speculative_tokens]
    if fewer and frame.drafter.kind in (DrafterKind.BLOCK, DrafterKind.MULTI_MODULE_MTP):
        method = subject.resolution.drafting.method.value
        message = (
            f"the `{method}` drafter makes all {frame.num_speculative_tokens} drafts in every tier: fewer are "
            "verified, and drafting takes as long"
        )
        help_text = "what that costs is in the curve of `servespec profile`; a smaller K drafts less at every load"
        yield rules.P149.at(subject.place("speculative", "dynamic"), message, help_text)


def _drafter_not_compiled(subject: Findable) -> Iterator[Diagnostic]:
    """An MTP drafter that nothing cuts, where the target has PIECEWISE graphs."""
    frame = subject.frame
    is_step0 = frame.drafter.kind is DrafterKind.AUTOREGRESSIVE
    if not is_step0 or frame.drafter.has_pieces or not frame.mode.has_piecewise():
        return
    drafter = uncompiled_drafter(subject.resolution.request, subject.resolution.drafting)
    message = (
        f"draft step 0 has no PIECEWISE graphs: torch.compile takes no part of `{drafter}`, which runs eagerly in "
        "every step that has no FULL graph"
    )
    help_text = (
        f"write {subject.line('compilation', 'breakable_cudagraph', 'true')}, which captures them and runs the target "
        "without torch.compile; no cap or size changes it"
    )
    yield rules.P155.at(subject.key_place("speculative"), message, help_text)


CHECKS: tuple[Check, ...] = (
    _dead_tiers,
    _dead_verification_sizes,
    _draft_coverage_cut,
    _verification_gaps,
    _chosen_verification_grid,
    _all_drafts_in_every_tier,
    _drafter_not_compiled,
)

"""Which attention the target and its drafter end with, and what that lets each be captured in."""

from dataclasses import dataclass

from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport, CudaGraphMode
from servespec.compiler.graphs.managers import Drafter, DrafterKind, GraphFrame
from servespec.compiler.resolve.attention import (
    Candidate,
    adaptive_verification_refusals,
    all_update_in_place,
    attention_candidates,
    least_support,
    named_backend,
    no_backend,
)
from servespec.compiler.resolve.attention_needs import AttentionQuestion
from servespec.compiler.resolve.config_mode import ModeResolution
from servespec.compiler.resolve.drafter_mode import DrafterRoutine, drafter_mode
from servespec.compiler.resolve.drafting import Drafting
from servespec.compiler.resolve.questions import attention_question
from servespec.compiler.resolve.request import ResolveRequest
from servespec.compiler.resolve.step import Refusal


def target_candidates(
    request: ResolveRequest, question: AttentionQuestion | None
) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """The backends that the target may end with; none where the config does not tell what its attention needs."""
    name = request.spec.attention.backend
    if question is None:
        return (), ()
    if name is None or name == "auto":
        found = attention_candidates(question)
        return found, () if found else no_backend(question)
    return named_backend(name, question)


Support = tuple[AttentionCgSupport, str]


def support_of(candidates: tuple[Candidate, ...], question: AttentionQuestion | None) -> Support:
    """What the assumed backend can be captured in; ALWAYS where the model hard-wires one that is not known."""
    if not candidates or question is None:
        return AttentionCgSupport.ALWAYS, "the model's own backend"
    return least_support(candidates[0], question)


@dataclass(frozen=True, slots=True)
class DraftAttention:
    """The drafter's attention: what it can be captured in, and whether its metadata is refreshed in a graph."""

    question: AttentionQuestion | None
    candidates: tuple[Candidate, ...]
    support: Support
    updates_in_place: bool


def draft_attention(
    request: ResolveRequest,
    drafting: Drafting,
    target: AttentionQuestion | None,
    target_candidates: tuple[Candidate, ...],
) -> DraftAttention:
    """From the draft model's own config where it is known, else as the target's."""
    question, candidates = target, target_candidates
    if request.draft is not None and request.draft is not request.target:
        question = attention_question(request, request.draft, drafting)
        candidates = attention_candidates(question) if question is not None else ()
    in_place = question is None or all_update_in_place(candidates[:1], question)
    return DraftAttention(question, candidates, support_of(candidates, question), in_place)


def verification_refusals(
    frame: GraphFrame, candidates: tuple[Candidate, ...], question: AttentionQuestion | None
) -> tuple[Refusal, ...]:
    if not frame.adaptive_verification or not candidates or question is None:
        return ()
    return adaptive_verification_refusals(candidates[0], question)


def drafter_of(
    drafting: Drafting, mode: ModeResolution, attention: DraftAttention, version: str, *, is_compiled: bool
) -> Drafter:
    routines = {
        DrafterKind.BLOCK: DrafterRoutine.BLOCK,
        DrafterKind.MULTI_MODULE_MTP: DrafterRoutine.MULTI_MODULE_MTP,
    }
    routine = routines.get(drafting.kind)
    block_mode, breakable = CudaGraphMode.NONE, mode.breakable.value
    if routine is not None:
        block_mode = drafter_mode(routine, mode.mode, attention.support[0], breakable, version).value
    return Drafter(
        kind=drafting.kind,
        mode=block_mode,
        query_len=drafting.query_len,
        fused_later_steps=attention.updates_in_place,
        has_pieces=breakable or is_compiled,
    )

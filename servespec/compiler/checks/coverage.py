"""Which batches and steps would run eagerly, and the one change that covers them."""

from collections.abc import Iterator
from dataclasses import replace

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import (
    RAISE_BOUND,
    Check,
    Findable,
    bound_place,
    decode_cap,
    prefill_cap,
    sizing_place,
)
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.graph_sizes import PREFILL_CAP
from servespec.compiler.graphs.coverage import DecodeRange, Ran
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Routine, Runner
from servespec.compiler.graphs.split import CaptureFields, decode_budget, split_shapes
from servespec.compiler.lower import Lowering
from servespec.diagnostics import Diagnostic, Place
from servespec.schema.capture_fields import DECODE_BUDGET
from servespec.schema.capture_fields import PREFILL_CAP as PREFILL_CAP_FIELD
from servespec.schema.capture_fields import PREFILL_SIZES as PREFILL_SIZES_FIELD


def _decode_eager(subject: Findable) -> Iterator[Diagnostic]:
    if not subject.frame.mode.has_full():
        return
    coverage = subject.coverage
    for eager in (*coverage.eager(Routine.UNIFORM_DECODE), *coverage.eager(Routine.ADAPTIVE_VERIFICATION)):
        yield rules.P101.at(sizing_place(subject), _range_message(eager, "decode batches"), _cover(subject, eager))


def _range_message(covered: DecodeRange, what: str) -> str:
    first, last = covered.from_requests, covered.to_requests
    sizes = f"{first}" if first == last else f"{first} to {last}"
    tokens = f"{first * covered.query_len} to {last * covered.query_len}"
    return f"{what} of {sizes} requests (q = {covered.query_len}, {tokens} tokens) run eagerly"


def _cover(subject: Findable, eager: DecodeRange) -> str:
    """The one change that covers an eager range."""
    fields, widest = subject.fields, eager.to_requests
    tokens = widest * eager.query_len
    if subject.choice is not None and subject.choice.chooses_decode:
        return RAISE_BOUND
    if fields.legacy:
        instead = f"{decode_cap(subject, widest)} instead of the legacy fields"
        return f"legacy sizes are tokens: reach `{tokens}`, or write {instead}"
    if fields.decode_sizes_requests is not None:
        return f"add `{widest}` to `decode_cudagraph_capture_request_sizes`"
    budget = _budget_of(subject)
    if budget is not None and tokens > budget:
        return f"write {subject.line('compilation', DECODE_BUDGET, tokens)}, or `unlimited`"
    return f"write {decode_cap(subject, widest)}"


def _budget_of(subject: Findable) -> int | None:
    fields = subject.fields
    return None if fields.legacy else decode_budget(fields, subject.resolution.defaults)


def _no_decode_graph(subject: Findable) -> Iterator[Diagnostic]:
    mode, seqs = subject.frame.mode, subject.frame.max_num_seqs
    captures_decode = mode.separate_routine() and mode.decode_mode() is CudaGraphMode.FULL
    if captures_decode and not any(s.runner is Runner.TARGET and s.mode is CudaGraphMode.FULL for s in subject.shapes):
        message = f"no size of the list stands for a decode batch of up to `max_num_seqs: {seqs}`"
        help_text = f"write {decode_cap(subject, seqs)} instead"
        yield rules.P122.at(sizing_place(subject), message, help_text)


def _draft_eager(subject: Findable) -> Iterator[Diagnostic]:
    if not subject.frame.mode.has_full():
        return
    for routine in (Routine.LATER_STEPS, Routine.BLOCK):
        for eager in subject.coverage.eager(routine):
            if routine is Routine.BLOCK and subject.frame.drafter.mode is CudaGraphMode.NONE:
                continue
            message = _range_message(eager, f"`{routine}` draft steps")
            yield rules.P102.at(sizing_place(subject), message, _cover_drafts(subject, routine, eager))


def _draft_eager_after_choice(subject: Findable) -> Iterator[Diagnostic]:
    """Draft step 0 and the modules of MTP follow a step of chosen drafts, which only PIECEWISE graphs serve."""
    coverage = subject.coverage
    eager = [*coverage.eager(Routine.STEP0_PIECEWISE), *coverage.eager(Routine.BLOCK_PIECEWISE)]
    if not subject.frame.adaptive_verification or not eager:
        return
    first, last = eager[0].from_requests, eager[-1].to_requests
    message = f"after chosen drafts, draft steps of {first} to {last} requests run eagerly: they are mixed steps"
    yield rules.P102.at(_prefill_place(subject), message, _cover_choice(subject, last * eager[-1].query_len))


def _cover_choice(subject: Findable, tokens: int) -> str:
    frame = subject.frame
    own_mode = frame.drafter.mode if frame.drafter.kind is DrafterKind.MULTI_MODULE_MTP else frame.mode
    if not own_mode.has_piecewise() or not frame.drafter.has_pieces:
        breakable = f"{subject.line('compilation', 'breakable_cudagraph', 'true')} has them"
        return breakable if frame.mode.has_piecewise() else "a `cudagraph_mode` with PIECEWISE graphs serves them"
    needed = _graph_tokens(subject, min(tokens, frame.most_verified_tokens or tokens))
    if _bound_ends_prefill(subject, needed):
        return RAISE_BOUND
    if _prefill_field(subject) == PREFILL_SIZES_FIELD:
        return f"add `{needed}` to `{PREFILL_SIZES_FIELD}`"
    instead = " instead of the legacy fields" if subject.fields.legacy else ""
    return f"write {prefill_cap(subject, needed)}{instead}"


def _graph_tokens(subject: Findable, tokens: int) -> int:
    """What the target pads a step to, which is what its drafter takes over.

    Where the step is eager, its graph is the one that comes with what `_cover` says.
    """
    mended = split_shapes(subject.frame, _covering(subject), subject.resolution.defaults, subject.stock_list)
    for shapes in (subject.shapes, mended):
        sizes = sorted(shape.tokens for shape in shapes if shape.routine is Routine.ADAPTIVE_VERIFICATION)
        if sizes and sizes[-1] >= tokens:
            return next(size for size in sizes if size >= tokens)
    return tokens


def _covering(subject: Findable) -> CaptureFields:
    """The fields with decode graphs up to the widest batch."""
    fields, widest = subject.fields, subject.frame.max_num_seqs
    if fields.decode_sizes_requests is not None:
        return replace(fields, decode_sizes_requests=tuple(sorted({*fields.decode_sizes_requests, widest})))
    return fields if fields.legacy else replace(fields, decode_cap_requests=widest)


def _prefill_place(subject: Findable) -> Place:
    name = _prefill_field(subject)
    return subject.place("scheduler", "max_num_batched_tokens") if name is None else subject.place("compilation", name)


def _cover_drafts(subject: Findable, routine: Routine, eager: DecodeRange) -> str:
    if routine is Routine.LATER_STEPS and subject.lowering is Lowering.LEGACY:
        return f"add `{eager.to_requests}` tokens to the list, or use `engine.lowering: extension`"
    if routine is Routine.BLOCK and _ends_at_recorded_maximum(subject, eager):
        tokens = eager.to_requests * eager.query_len
        if _bound_ends_prefill(subject, tokens):
            return RAISE_BOUND
        return f"write {prefill_cap(subject, tokens)}, which bounds the drafter too"
    return _cover(subject, eager)


def _ends_at_recorded_maximum(subject: Findable, eager: DecodeRange) -> bool:
    """Whether the target's own graphs reach as far as the range, within the budget: then only the recorded maximum
    can have cut a block drafter's."""
    budget, tokens = _budget_of(subject), eager.to_requests * eager.query_len
    reach = max((s.requests or 0 for s in subject.shapes if s.routine is Routine.UNIFORM_DECODE), default=0)
    return not subject.fields.legacy and reach >= eager.to_requests and (budget is None or tokens <= budget)


def _step_budget(subject: Findable) -> Iterator[Diagnostic]:
    frame = subject.frame
    unscheduled = [r for r in subject.coverage.decode if r.ran is Ran.UNSCHEDULED and r.runner is Runner.TARGET]
    if not unscheduled:
        return
    query_len = unscheduled[-1].query_len
    fits, needed = frame.max_num_batched_tokens // query_len, frame.max_num_seqs * query_len
    message = (
        f"{frame.max_num_seqs} requests at q = {query_len} need {needed} tokens a step; "
        f"`max_num_batched_tokens: {frame.max_num_batched_tokens}` holds {fits} requests"
    )
    step = subject.line("scheduler", "max_num_batched_tokens", needed)
    help_text = f"write {step}, or {subject.line('scheduler', 'max_num_seqs', fits)}"
    yield rules.P105.at(subject.place("scheduler", "max_num_batched_tokens"), message, help_text)


def _prefill_eager(subject: Findable) -> Iterator[Diagnostic]:
    eager = [r for r in subject.coverage.prefill if r.ran is Ran.EAGER]
    if not eager or not subject.frame.mode.has_piecewise() or subject.frame.mode is CudaGraphMode.FULL:
        return
    first, last = eager[0].from_tokens, eager[-1].to_tokens
    message = f"steps of {first} to {last} tokens with a prefill in them run eagerly"
    if _bound_ends_prefill(subject, first):
        yield rules.P107.at(bound_place(subject), message, RAISE_BOUND)
    elif (name := _prefill_field(subject)) is not None:
        yield rules.P107.at(subject.place("compilation", name), message, _cover_prefill(subject, first, last))
    else:
        place = subject.place("scheduler", "max_num_batched_tokens")
        yield rules.P106.at(place, message, _cover_prefill(subject, first, last))


def _prefill_field(subject: Findable) -> str | None:
    """The field by which the spec itself ends PIECEWISE graphs."""
    if subject.choice is not None and subject.choice.chooses_prefill:
        return None
    fields = subject.fields
    written = {PREFILL_CAP_FIELD: fields.prefill_cap_tokens, PREFILL_SIZES_FIELD: fields.prefill_sizes_tokens}
    return next((name for name, value in written.items() if value is not None), None)


def _bound_ends_prefill(subject: Findable, tokens: int) -> bool:
    """Whether without the bound on graph memory PIECEWISE graphs would reach as far."""
    choice = subject.choice
    widest = None if choice is None else choice.space.widest.prefill_tokens
    return widest is not None and tokens <= widest


def _cover_prefill(subject: Findable, first: int, last: int) -> str:
    """8192 tokens covered more steps without a loss wherever it was measured; beyond, memory is the price."""
    if _prefill_field(subject) == PREFILL_SIZES_FIELD:
        return f"add `{last}` to `prefill_cudagraph_capture_token_sizes`"
    instead = " instead of the legacy fields" if subject.fields.legacy else ""
    if first > PREFILL_CAP.value:
        return f"write {prefill_cap(subject, last)}{instead}, for more memory"
    reach = min(last, PREFILL_CAP.value)
    return f"write {prefill_cap(subject, reach)}{instead} to cover more of them"


CHECKS: tuple[Check, ...] = (
    _decode_eager,
    _no_decode_graph,
    _draft_eager,
    _draft_eager_after_choice,
    _step_budget,
    _prefill_eager,
)

"""What sizes cost: truncated caps, padding, wide graphs and a large K where they do not pay."""

from collections.abc import Iterator
from dataclasses import replace

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.specialized_decode import asked_decode_backend
from servespec.compiler.checks.subject import Check, Findable, prefill_cap, sizing_place
from servespec.compiler.engine_refusals import beside_verification
from servespec.compiler.facts.graph_sizes import INDEXER_ROW_SECONDS, PREFILL_CAP
from servespec.compiler.graphs.coverage import DecodeRange, Ran
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Routine
from servespec.compiler.resolve.backends import verification_refusals
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.diagnostics import Diagnostic


def _cap_truncated(subject: Findable) -> Iterator[Diagnostic]:
    asked = subject.stock_list.truncated_from
    if asked is None or subject.fields.legacy_max_tokens is None:
        return
    got = subject.stock_list.maximum
    query_len = subject.frame.query_len
    message = (
        f"`max_cudagraph_capture_size: {asked}` is truncated to `{got}`, {got // query_len} requests at q = {query_len}"
    )
    help_text = f"write a list that holds `{asked}`, or `max_decode_cudagraph_capture_requests: {asked // query_len}`"
    yield rules.P103.at(subject.place("compilation", "max_cudagraph_capture_size"), message, help_text)


def _wide_prefill_data_parallel(subject: Findable) -> Iterator[Diagnostic]:
    request = subject.resolution.request
    parallel = request.spec.parallel
    backend = parallel.engine_fields.get("all2all_backend", "allgather_reducescatter")
    widest = max((s.tokens for s in subject.shapes if s.routine is Routine.PIECEWISE), default=0)
    gathers = backend in ("allgather_reducescatter", "naive")
    if (
        widest > PREFILL_CAP.value
        and parallel.data_parallel_size > 1
        and request.target.traits.is_mixture_of_experts
        and gathers
    ):
        message = f"PIECEWISE graphs reach {widest} tokens with data parallelism and `{backend}`"
        place = subject.place("compilation", "max_prefill_cudagraph_capture_tokens")
        yield rules.P109.at(
            place,
            message,
            f"write {prefill_cap(subject, PREFILL_CAP.value)}",
        )


_MANY_REQUESTS, _LARGE_K = 512, 7


def _large_k(subject: Findable) -> Iterator[Diagnostic]:
    frame = subject.frame
    fixed = not frame.tiers and not frame.adaptive_verification
    if fixed and frame.num_speculative_tokens >= _LARGE_K and frame.max_num_seqs >= _MANY_REQUESTS:
        message = f"K is fixed at {frame.num_speculative_tokens} for up to {frame.max_num_seqs} requests"
        ways = ["tiers under `speculative.dynamic`"] if _takes_tiers(subject) else []
        if _may_choose_drafts(subject):
            ways.append("`enable_adaptive_verification: true`")
        help_text = f"write {', or '.join(ways or ['a smaller K'])}"
        yield rules.P110.at(subject.place("speculative", "num_speculative_tokens"), message, help_text)


def _takes_tiers(subject: Findable) -> bool:
    """Not replicas, and not every method of Model Runner V1."""
    resolution = subject.resolution
    return resolution.runner is ModelRunner.V2 and resolution.request.spec.parallel.data_parallel_size == 1


def _may_choose_drafts(subject: Findable) -> bool:
    """Whether adaptive verification would run in the place of a fixed K."""
    resolution = subject.resolution
    spec = resolution.request.spec
    if spec.speculative is None or any(beside_verification(spec, spec.speculative)):
        return False
    return (
        resolution.runner is ModelRunner.V2
        and subject.frame.mode.has_full()
        and resolution.drafting.kind is not DrafterKind.EAGER
        and asked_decode_backend(resolution) is None
        and not verification_refusals(
            replace(subject.frame, adaptive_verification=True), resolution.candidates, resolution.question
        )
    )


def _crosses_token_step(subject: Findable) -> Iterator[Diagnostic]:
    crossing = [r for r in subject.coverage.decode if r.routine is Routine.UNIFORM_DECODE and _crosses(r)]
    if not crossing:
        return
    shown = ", ".join(
        f"{r.from_requests} to {r.to_requests} requests (to {r.padded_to_tokens} tokens)" for r in crossing[:3]
    )
    more = f" and {len(crossing) - 3} more ranges" if len(crossing) > 3 else ""
    message = f"padding crosses a power of two for {shown}{more}"
    yield rules.P111.at(sizing_place(subject), message, "add the largest count below the power of two to the sizes")


def _crosses(covered: DecodeRange) -> bool:
    """Whether a batch of the range lies below a power of two of at least 512 tokens that its graph exceeds."""
    if covered.ran is not Ran.FULL or covered.padded_to_tokens is None or covered.padded_to_tokens <= 512:
        return False
    step = 1 << (covered.padded_to_tokens - 1).bit_length() - 1
    first = covered.from_requests * covered.query_len
    return first <= step < covered.padded_to_tokens


def _indexer_padding(subject: Findable) -> Iterator[Diagnostic]:
    request = subject.resolution.request
    if not request.target.traits.uses_sparse_index or not subject.resolution.defaults.wide:
        return
    worst = max(
        (
            (r.padded_to_requests or 0) - r.from_requests
            for r in subject.coverage.decode
            if r.routine is Routine.UNIFORM_DECODE and r.ran is Ran.FULL
        ),
        default=0,
    )
    if worst:
        milliseconds = worst * INDEXER_ROW_SECONDS.value * 1000
        message = f"up to {worst} padded requests a decode step, about {milliseconds:.1f} ms in the sparse indexer"
        help_text = "a denser `decode_cudagraph_capture_request_sizes` pads less, for more graphs"
        yield rules.P112.at(sizing_place(subject), message, help_text)


CHECKS: tuple[Check, ...] = (
    _cap_truncated,
    _wide_prefill_data_parallel,
    _large_k,
    _crosses_token_step,
    _indexer_padding,
)

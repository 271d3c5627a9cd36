"""Which graph managers an engine process has, and what each one may capture.

A manager owns the graphs of one runner's routine pair: uniform decode (or adaptive verification) beside a mixed
routine.  The engine builds every manager from one token list; servespec gives each its own sizes.
Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager; every init_cudagraph_manager under
vllm/v1/worker/gpu/spec_decode/.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.shape import Routine, Runner, Shape
from servespec.compiler.graphs.tiers import Tier, tier_of, widest_batch_by_query_len
from servespec.units import Requests, Tokens, TokensPerRequest


class DrafterKind(StrEnum):
    """How a drafter runs, which decides its managers."""

    NONE = "none"
    EAGER = "eager"
    AUTOREGRESSIVE = "autoregressive"
    BLOCK = "block"
    MULTI_MODULE_MTP = "multi_module_mtp"


_ONE_TOKEN = TokensPerRequest(1)
_EVERY_LOAD = Requests(1)
_BAND = 8
"""Chosen, not measured: an eighth of the load, so that a few requests that come and go are within it."""
_LEAST_END = Requests(2)
"""At one request all drafts are verified at the price of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """The drafter as the graphs see it.

    ``query_len`` is that of its block (BLOCK, MULTI_MODULE_MTP); ``mode`` the mode of its block manager after the
    drafter's own attention support is known; ``fused_later_steps`` says that one graph holds all later steps of a K.
    ``has_pieces`` is false where neither torch.compile nor a breakable capture cuts it.
    """

    kind: DrafterKind
    mode: CudaGraphMode = CudaGraphMode.NONE
    query_len: TokensPerRequest = _ONE_TOKEN
    fused_later_steps: bool = True
    has_pieces: bool = True


@dataclass(frozen=True, slots=True)
class Microbatching:
    """Dual batch overlap: FULL graphs of at least ``threshold_tokens`` get a twin split into ``count`` parts."""

    count: int
    threshold_tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFrame:
    """All that an inventory depends on besides the sizes; nothing in it is left to a default of the engine.

    ``verify_limit_tokens`` is the engine's bound on a verification step under adaptive verification, which starts at
    batches of ``adaptive_from_requests`` and ends below ``fixed_below_requests``; between the two a step verifies as
    the one before it did.
    """

    max_num_seqs: Requests
    max_num_batched_tokens: Tokens
    num_speculative_tokens: int
    mode: CudaGraphMode
    tiers: tuple[Tier, ...] = ()
    adaptive_verification: bool = False
    drafter: Drafter = Drafter(kind=DrafterKind.NONE)
    lora_cases: tuple[int, ...] = (0,)
    microbatching: Microbatching | None = None
    mixed_within_decode_width: bool = False
    verify_limit_tokens: Tokens | None = None
    adaptive_from_requests: Requests = _EVERY_LOAD

    @property
    def most_verified_tokens(self) -> Tokens | None:
        """What a step of adaptive verification holds at most: the engine's limit, or a token of each request."""
        return None if self.verify_limit_tokens is None else Tokens(max(self.max_num_seqs, self.verify_limit_tokens))

    @property
    def follows_load(self) -> bool:
        """Whether the load decides if a step is verified adaptively, which only the extension's workers can do."""
        return self.adaptive_verification and self.adaptive_from_requests > _EVERY_LOAD

    @property
    def fixed_below_requests(self) -> Requests:
        """A share of the load below its start, so that a request more or less does not switch at each step."""
        start = self.adaptive_from_requests
        if start > self.max_num_seqs:
            return start
        return Requests(max(min(start, _LEAST_END), start - max(1, start // _BAND)))

    def can_verify_all(self, requests: Requests) -> bool:
        """Whether a batch can run with all its drafts verified."""
        return not self.adaptive_verification or requests < self.adaptive_from_requests

    def can_choose(self, requests: Requests) -> bool:
        """Whether a batch can run with its drafts chosen."""
        return self.adaptive_verification and requests >= self.fixed_below_requests

    @property
    def query_len(self) -> TokensPerRequest:
        """q of the target: the widest uniform decode step, tokens per request."""
        return TokensPerRequest(1 + self.num_speculative_tokens)

    @property
    def widest_batch(self) -> Mapping[TokensPerRequest, Requests]:
        """Each query length that a target decode step can have, with the largest batch that has it."""
        if self.tiers:
            return widest_batch_by_query_len(self.tiers)
        return {self.query_len: self.max_num_seqs}

    def k_of(self, requests: Requests) -> int:
        """How many tokens a batch of ``requests`` drafts."""
        tier = tier_of(self.tiers, requests)
        return self.num_speculative_tokens if tier is None else tier.num_speculative_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """One graph manager.

    ``reach`` maps each query length its decode steps really have to the largest batch that has it; ``captured_tiers``
    are the query lengths that the engine's own rule captures, which can be more (dead graphs).
    ``draft_steps`` lists the Ks a later-steps manager is specialised to; empty means not specialised.
    ``fixed`` is the routine of batches that a manager of adaptive verification runs with all drafts, with the reach of
    each query length; None where it has none.
    ``has_pieces`` is false where the engine runs through the PIECEWISE sizes of ``mode`` and captures nothing, because
    nothing cuts the model: the steps that it dispatches to them run eagerly.
    """

    runner: Runner
    decode: Routine
    mixed: Routine | None
    mode: CudaGraphMode
    query_len: TokensPerRequest
    reach: Mapping[TokensPerRequest, Requests]
    captured_tiers: tuple[TokensPerRequest, ...]
    draft_steps: tuple[int, ...] = ()
    lora_cases: tuple[int, ...] = (0,)
    microbatching: Microbatching | None = None
    mixed_limit_tokens: Tokens | None = None
    fixed: Routine | None = None
    fixed_reach: Mapping[TokensPerRequest, Requests] = field(default_factory=dict)
    has_pieces: bool = True

    @property
    def varlen(self) -> bool:
        return self.decode is Routine.ADAPTIVE_VERIFICATION

    @property
    def routines(self) -> tuple[Routine, ...]:
        return tuple(one for one in (self.decode, self.mixed, self.fixed) if one is not None)


def own_shapes(manager: Manager, shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """The graphs of one manager."""
    return tuple(shape for shape in shapes if shape.runner is manager.runner and shape.routine in manager.routines)


def managers_of(frame: GraphFrame) -> tuple[Manager, ...]:
    """Every manager that captures something for some sizes, target first."""
    return (_target(frame), *_drafter_managers(frame))


def _target(frame: GraphFrame) -> Manager:
    fixed_reach = _fixed_reach(frame)
    return Manager(
        runner=Runner.TARGET,
        decode=Routine.ADAPTIVE_VERIFICATION if frame.adaptive_verification else Routine.UNIFORM_DECODE,
        mixed=Routine.PIECEWISE,
        mode=frame.mode,
        query_len=frame.query_len,
        reach=frame.widest_batch,
        captured_tiers=_captured_tiers(frame, frame.query_len),
        lora_cases=frame.lora_cases,
        microbatching=frame.microbatching,
        mixed_limit_tokens=_mixed_limit(frame, frame.query_len),
        fixed=Routine.UNIFORM_DECODE if fixed_reach else None,
        fixed_reach=fixed_reach,
    )


def _fixed_reach(frame: GraphFrame) -> Mapping[TokensPerRequest, Requests]:
    if not frame.follows_load:
        return {}
    most = frame.adaptive_from_requests - 1
    return {query_len: Requests(min(most, widest)) for query_len, widest in frame.widest_batch.items()}


def _mixed_limit(frame: GraphFrame, query_len: TokensPerRequest) -> Tokens | None:
    """Some state-space models cannot capture a mixed step wider than their widest decode step."""
    return Tokens(frame.max_num_seqs * query_len) if frame.mixed_within_decode_width else None


def _drafter_managers(frame: GraphFrame) -> tuple[Manager, ...]:
    match frame.drafter.kind:
        case DrafterKind.AUTOREGRESSIVE:
            return (_step0(frame), *_later_steps(frame))
        case DrafterKind.BLOCK:
            return (_block(frame),)
        case DrafterKind.MULTI_MODULE_MTP:
            return (_multi_module(frame),)
        case DrafterKind.NONE | DrafterKind.EAGER:
            return ()


def _uniform_reach(frame: GraphFrame) -> Mapping[TokensPerRequest, Requests]:
    """Of a drafter on the target's own batch: where the load decides, only batches with all drafts are uniform."""
    return _fixed_reach(frame) if frame.follows_load else frame.widest_batch


def _step0(frame: GraphFrame) -> Manager:
    """Draft step 0 runs on the target's own batch, so it has the target's query lengths and mode."""
    return Manager(
        runner=Runner.DRAFTER,
        decode=Routine.STEP0_UNIFORM,
        mixed=Routine.STEP0_PIECEWISE,
        mode=frame.mode,
        query_len=frame.query_len,
        reach=_uniform_reach(frame),
        captured_tiers=_captured_tiers(frame, frame.query_len),
        mixed_limit_tokens=_mixed_limit(frame, frame.query_len),
        has_pieces=frame.drafter.has_pieces,
    )


def _later_steps(frame: GraphFrame) -> tuple[Manager, ...]:
    """Steps 1 to K - 1, one token a request; none where K is 1."""
    if frame.num_speculative_tokens < 2:
        return ()
    one = TokensPerRequest(1)
    full = frame.mode.decode_mode() is CudaGraphMode.FULL
    ks = sorted({tier.num_speculative_tokens for tier in frame.tiers} - {0, 1}, reverse=True)
    specialised = bool(frame.tiers) and frame.drafter.fused_later_steps
    if specialised and not ks:
        return ()
    return (
        Manager(
            runner=Runner.DRAFTER,
            decode=Routine.LATER_STEPS,
            mixed=None,
            mode=CudaGraphMode.FULL_DECODE_ONLY if full else CudaGraphMode.NONE,
            query_len=one,
            reach={one: frame.max_num_seqs},
            captured_tiers=(one,),
            draft_steps=tuple(ks) if specialised else (),
        ),
    )


def _block(frame: GraphFrame) -> Manager:
    """The block drafters always run their whole block, whatever K a tier asks for."""
    query_len = frame.drafter.query_len
    return Manager(
        runner=Runner.DRAFTER,
        decode=Routine.BLOCK,
        mixed=None,
        mode=frame.drafter.mode,
        query_len=query_len,
        reach={query_len: frame.max_num_seqs},
        captured_tiers=_captured_tiers(frame, query_len),
    )


def _multi_module(frame: GraphFrame) -> Manager:
    """All modules run on the target's own batch, so decode steps have the target's query lengths."""
    return Manager(
        runner=Runner.DRAFTER,
        decode=Routine.BLOCK,
        mixed=Routine.BLOCK_PIECEWISE,
        mode=frame.drafter.mode,
        query_len=frame.drafter.query_len,
        reach=_uniform_reach(frame),
        captured_tiers=_captured_tiers(frame, frame.drafter.query_len),
        mixed_limit_tokens=_mixed_limit(frame, frame.drafter.query_len),
    )


def _captured_tiers(frame: GraphFrame, query_len: TokensPerRequest) -> tuple[TokensPerRequest, ...]:
    """The engine expands a manager over all tiers exactly where its query length exceeds K."""
    if frame.tiers and query_len > frame.num_speculative_tokens:
        extra = query_len - frame.num_speculative_tokens
        ks = {tier.num_speculative_tokens for tier in frame.tiers}
        return tuple(sorted(TokensPerRequest(k + extra) for k in ks))
    return (query_len,)

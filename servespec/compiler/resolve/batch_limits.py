"""How many requests and tokens one step may hold: the engine's defaults, in its order, and what it refuses.

Source: vllm/engine/arg_utils.py (EngineArgs._set_default_max_num_seqs_and_batched_tokens_args),
vllm/config/scheduler.py (SchedulerConfig.verify_max_model_len) and
vllm/config/vllm.py (VllmConfig._set_max_num_scheduled_tokens).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from servespec.compiler.facts.batch_defaults import (
    ARG_UTILS,
    BATCH_DEFAULTS_SOURCE,
    BATCH_FACTS,
    batch_tier,
)
from servespec.compiler.facts.devices import Device
from servespec.compiler.resolve.step import Refusal, Step, TypedField, Weight
from servespec.provenance import Origin, Resolved
from servespec.units import Requests, Tokens, TokensPerRequest

_DEFAULTS = f"{ARG_UTILS}: EngineArgs._set_default_max_num_seqs_and_batched_tokens_args"
_VERIFY = "vllm/config/scheduler.py: SchedulerConfig.verify_max_model_len"
_SCHEDULED = "vllm/config/vllm.py: VllmConfig._set_max_num_scheduled_tokens"
_LORA = f"{ARG_UTILS}: EngineArgs.create_engine_config"

TOKENS = "scheduler.max_num_batched_tokens"
ACTIVE = "scheduler.max_num_active_seqs"
SCHEDULED = "scheduler.max_num_scheduled_tokens"

_N = TypeVar("_N", bound=int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What speculative decoding asks of the scheduler.

    ``num_lookahead_tokens`` is :func:`num_lookahead_tokens`; ``num_new_slots`` is
    :func:`num_new_draft_slots`, which only 0.32.0 looks at.
    """

    method: str
    num_speculative_tokens: int
    sample_from_anchor: bool = True
    parallel_drafting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """What the spec says (None: nothing) and what the model and layout are.

    ``max_model_len_tokens`` None means unknown.  ``prefix_lm_item_tokens`` is the most tokens of one
    multimodal item of a multimodal prefix-LM; such a model with None leaves the default uncertain.
    """

    device: Device
    version: str
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_active_seqs: int | None = None
    max_num_scheduled_tokens: int | None = None
    max_model_len_tokens: int | None = None
    pipeline_parallel_size: int = 1
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    all2all_backend: str = "allgather_reducescatter"
    performance_mode: str = "balanced"
    enable_chunked_prefill: bool = True
    is_multimodal_prefix_lm: bool = False
    prefix_lm_item_tokens: int | None = None
    drafting: Drafting | None = None
    has_lora: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits after the engine's rules; ``findings``: what it refuses, warns of, or what is unknown."""

    max_num_seqs: Resolved[Requests]
    max_num_batched_tokens: Resolved[Tokens]
    max_num_active_seqs: Resolved[Requests | None]
    max_num_scheduled_tokens: Resolved[Tokens | None]
    steps: tuple[Step, ...]
    findings: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both limits on their way, with the changes made so far; None in ``because`` means the spec set it."""

    seqs: int
    tokens: int
    seqs_because: str
    tokens_because: str
    steps: tuple[Step, ...] = ()

    def with_tokens(self, tokens: int, because: str) -> "_Pair":
        step = Step(because, f"max_num_batched_tokens={self.tokens}", f"{tokens}", _DEFAULTS)
        return replace(self, tokens=tokens, tokens_because=because, steps=(*self.steps, step))

    def with_seqs(self, seqs: int, because: str) -> "_Pair":
        step = Step(because, f"max_num_seqs={self.seqs}", f"{seqs}", _DEFAULTS)
        return replace(self, seqs=seqs, seqs_because=because, steps=(*self.steps, step))


def resolve_batch_limits(request: BatchRequest) -> BatchLimits:
    """The limits the engine's API server runs with, and what it would say about them."""
    pair = _start(request)
    for rule in (_double_for_throughput, _whole_prompt_without_chunks, _one_item_of_a_prefix_lm):
        pair = rule(request, pair)
    pair = _not_beyond_all_contexts(request, pair)
    pair = _not_more_requests_than_tokens(request, pair)
    return _limits(request, pair)


def uses_batched_experts(request: BatchRequest) -> bool:
    """Expert kernels with a fixed batch per rank.

    Source: vllm/config/parallel.py, ParallelConfig.use_batched_dp_moe.
    """
    backends = BATCH_FACTS[request.version].batched_expert_backends.value
    return request.all2all_backend in backends and request.enable_expert_parallel and request.data_parallel_size > 1


def _start(request: BatchRequest) -> _Pair:
    tier = batch_tier(request.device, request.pipeline_parallel_size * request.tensor_parallel_size, request.version)
    tokens, tokens_because = tier.defaults.max_num_batched_tokens, tier.reason
    if uses_batched_experts(request):
        tokens = BATCH_FACTS[request.version].batched_expert_tokens.value
        tokens_because = f"the engine's default with all2all backend `{request.all2all_backend}`"
    return _Pair(
        seqs=tier.defaults.max_num_seqs if request.max_num_seqs is None else request.max_num_seqs,
        tokens=tokens if request.max_num_batched_tokens is None else request.max_num_batched_tokens,
        seqs_because=tier.reason,
        tokens_because=tokens_because,
    )


def _double_for_throughput(request: BatchRequest, pair: _Pair) -> _Pair:
    if request.performance_mode != "throughput":
        return pair
    because = "performance mode `throughput` doubles a limit that is not set"
    if request.max_num_batched_tokens is None:
        pair = pair.with_tokens(pair.tokens * 2, because)
    if request.max_num_seqs is None:
        pair = pair.with_seqs(pair.seqs * 2, because)
    return pair


def _whole_prompt_without_chunks(request: BatchRequest, pair: _Pair) -> _Pair:
    length = request.max_model_len_tokens
    if request.max_num_batched_tokens is not None or request.enable_chunked_prefill or length is None:
        return pair
    if length <= pair.tokens:
        return pair
    return pair.with_tokens(length, "without chunked prefill a step must hold the longest prompt")


def _one_item_of_a_prefix_lm(request: BatchRequest, pair: _Pair) -> _Pair:
    item = request.prefix_lm_item_tokens
    if request.max_num_batched_tokens is not None or not request.is_multimodal_prefix_lm or item is None:
        return pair
    if item <= pair.tokens:
        return pair
    return pair.with_tokens(item, "one multimodal item of a prefix-LM must fit in one step")


def _not_beyond_all_contexts(request: BatchRequest, pair: _Pair) -> _Pair:
    length = request.max_model_len_tokens
    if request.max_num_batched_tokens is not None or length is None or pair.seqs * length >= pair.tokens:
        return pair
    return pair.with_tokens(pair.seqs * length, "a default does not exceed max_num_seqs * max_model_len")


def _not_more_requests_than_tokens(request: BatchRequest, pair: _Pair) -> _Pair:
    if request.max_num_seqs is not None or pair.seqs <= pair.tokens:
        return pair
    return pair.with_seqs(pair.tokens, "a default does not exceed max_num_batched_tokens")


def _limits(request: BatchRequest, pair: _Pair) -> BatchLimits:
    active, active_step = _active_seqs(request, pair)
    return BatchLimits(
        max_num_seqs=_resolved(Requests(pair.seqs), request.max_num_seqs, pair.seqs_because),
        max_num_batched_tokens=_resolved(Tokens(pair.tokens), request.max_num_batched_tokens, pair.tokens_because),
        max_num_active_seqs=active,
        max_num_scheduled_tokens=_scheduled_tokens(request, pair),
        steps=pair.steps + active_step,
        findings=tuple(_findings(request, pair)),
    )


def _resolved(value: _N, written: int | None, because: str) -> Resolved[_N]:
    if written is not None:
        return Resolved(value, Origin.SPEC, "set in the spec")
    return Resolved(value, Origin.ENGINE_DEFAULT, because)


def num_lookahead_tokens(drafting: Drafting | None) -> TokensPerRequest:
    """KV slots a drafter needs past the target's positions, for each request.

    Source: vllm/config/vllm.py, VllmConfig.num_lookahead_tokens.
    """
    if drafting is None:
        return TokensPerRequest(0)
    fills_in = drafting.method == "dspark" and not drafting.sample_from_anchor
    if drafting.method == "dflash" or fills_in:
        return TokensPerRequest(drafting.num_speculative_tokens + 1)
    if drafting.method in ("eagle", "eagle3", "mtp", "dspark", "draft_model"):
        return TokensPerRequest(drafting.num_speculative_tokens)
    return TokensPerRequest(0)


def num_new_draft_slots(drafting: Drafting) -> TokensPerRequest:
    """Slots beyond one a request that a drafting pass adds; what 0.32.0 compares with the token limit.

    Source: vllm/config/speculative.py of 0.32.0, SpeculativeConfig.max_num_new_slots_for_drafting.
    """
    count = drafting.num_speculative_tokens
    if drafting.method == "dflash":
        return TokensPerRequest(count)
    standalone = drafting.method == "draft_model"
    if drafting.parallel_drafting or drafting.method == "dspark":
        return TokensPerRequest(count if standalone else count - 1)
    return TokensPerRequest(1 if standalone else 0)


def _active_seqs(request: BatchRequest, pair: _Pair) -> tuple[Resolved[Requests | None], tuple[Step, ...]]:
    written = request.max_num_active_seqs
    kept = None if written is None else Requests(written)
    limit = _block_draft_requests(request, pair)
    if limit is None or limit >= (written or pair.seqs):
        return _unlowered(kept), ()
    because = f"the `{_method(request)}` draft pass needs its query tokens within max_num_batched_tokens"
    step = Step(because, f"max_num_active_seqs={written or pair.seqs}", f"{limit}", _SCHEDULED)
    return Resolved(Requests(limit), Origin.DERIVED, because), (step,)


def _unlowered(kept: Requests | None) -> Resolved[Requests | None]:
    if kept is None:
        return Resolved(None, Origin.ENGINE_DEFAULT, "max_num_seqs alone limits running requests")
    return Resolved(kept, Origin.SPEC, "set in the spec")


def _block_draft_requests(request: BatchRequest, pair: _Pair) -> int | None:
    """Requests whose draft block fits in a step; None where the engine does not ask."""
    asks = BATCH_FACTS[request.version].asks_draft_lookahead
    if not asks or _method(request) not in ("dflash", "dspark"):
        return None
    return pair.tokens // num_lookahead_tokens(request.drafting)


def _method(request: BatchRequest) -> str | None:
    return None if request.drafting is None else request.drafting.method


def _scheduled_tokens(request: BatchRequest, pair: _Pair) -> Resolved[Tokens | None]:
    if request.max_num_scheduled_tokens is not None:
        return Resolved(Tokens(request.max_num_scheduled_tokens), Origin.SPEC, "set in the spec")
    if request.drafting is None:
        return Resolved(None, Origin.ENGINE_DEFAULT, "the scheduler uses max_num_batched_tokens")
    return Resolved(Tokens(pair.tokens), Origin.ENGINE_DEFAULT, "with drafting it is max_num_batched_tokens")


def _findings(request: BatchRequest, pair: _Pair) -> Iterator[Refusal]:
    yield from _token_findings(request, pair)
    yield from _active_findings(request, pair)
    yield from _context_findings(request, pair)
    yield from _draft_findings(request, pair)
    yield from _unknowns(request)


def _token_findings(request: BatchRequest, pair: _Pair) -> Iterator[Refusal]:
    length = request.max_model_len_tokens
    if length is not None and pair.tokens < length and not request.enable_chunked_prefill:
        yield Refusal(
            TOKENS,
            f"`{pair.tokens}` is below max_model_len `{length}` and chunked prefill is off",
            _VERIFY,
            help="write {} or more, or {}",
            typed=(_tokens(length), TypedField("scheduler", "enable_chunked_prefill", "true")),
        )
    if pair.tokens < pair.seqs:
        yield fewer_tokens_than_requests(pair.tokens, pair.seqs)


def fewer_tokens_than_requests(tokens: int, seqs: int) -> Refusal:
    typed = (_tokens(seqs), TypedField("scheduler", "max_num_seqs", tokens))
    because = f"`{tokens}` is below max_num_seqs `{seqs}`"
    return Refusal(TOKENS, because, _VERIFY, help="write {} or more, or {}", typed=typed)


def _tokens(value: int | str) -> TypedField:
    return TypedField("scheduler", "max_num_batched_tokens", value)


def _active_findings(request: BatchRequest, pair: _Pair) -> Iterator[Refusal]:
    active = request.max_num_active_seqs
    if active is not None and active > pair.seqs:
        help_text = f"write `max_num_active_seqs: {pair.seqs}` or less, or `max_num_seqs: {active}`"
        yield Refusal(ACTIVE, f"`{active}` is above max_num_seqs `{pair.seqs}`", _VERIFY, help=help_text)


def _context_findings(request: BatchRequest, pair: _Pair) -> Iterator[Refusal]:
    length = request.max_model_len_tokens
    if length is not None and pair.tokens > pair.seqs * length:
        because = f"`{pair.tokens}` exceeds max_num_seqs * max_model_len = {pair.seqs * length}"
        typed = (_tokens(pair.seqs * length),)
        yield Refusal(TOKENS, because, _VERIFY, Weight.WARNED, "write {}: no step holds more", typed)


def _draft_findings(request: BatchRequest, pair: _Pair) -> Iterator[Refusal]:
    drafting = request.drafting
    if drafting is None:
        return
    scheduled = request.max_num_scheduled_tokens or pair.tokens
    warning_below = BATCH_FACTS[request.version].scheduled_tokens_warning_below.value
    if scheduled < warning_below:
        because = f"`{scheduled}` tokens a step with drafting is below {warning_below}"
        name = "max_num_batched_tokens" if request.max_num_scheduled_tokens is None else "max_num_scheduled_tokens"
        typed = (TypedField("scheduler", name, warning_below),)
        yield Refusal(SCHEDULED, because, _SCHEDULED, Weight.WARNED, "write {} or more", typed)
    slots = _needed_slots(request.version, drafting)
    if pair.tokens <= slots:
        because = f"`{pair.tokens}` does not exceed the {slots} slots of drafting"
        yield Refusal(TOKENS, because, _SCHEDULED, help="write {} or more", typed=(_tokens(slots + 1),))
    widest = pair.seqs * (drafting.num_speculative_tokens + 1)
    if request.has_lora and pair.tokens < widest:
        because = f"with LoRA and drafting `{pair.tokens}` is below max_num_seqs * (1 + K) = {widest}"
        help_text = "write {} or more, or fewer `max_num_seqs`"
        yield Refusal(TOKENS, because, _LORA, help=help_text, typed=(_tokens(widest),))


def _needed_slots(version: str, drafting: Drafting) -> int:
    asks_lookahead = BATCH_FACTS[version].asks_draft_lookahead
    return num_lookahead_tokens(drafting) if asks_lookahead else num_new_draft_slots(drafting)


_WRITE_TOKENS = "write {}, which leaves nothing to the engine"


def _unknowns(request: BatchRequest) -> Iterator[Refusal]:
    if request.max_num_batched_tokens is not None:
        return
    if request.is_multimodal_prefix_lm and request.prefix_lm_item_tokens is None:
        because = "the engine may raise the default to hold one multimodal item, whose tokens are unknown"
        yield Refusal(TOKENS, because, _DEFAULTS, Weight.UNKNOWN, _WRITE_TOKENS, (_tokens("N"),))
    if request.max_model_len_tokens is None and not request.enable_chunked_prefill:
        because = "without chunked prefill the default is at least max_model_len, which is unknown"
        yield Refusal(TOKENS, because, BATCH_DEFAULTS_SOURCE, Weight.UNKNOWN, _WRITE_TOKENS, (_tokens("N"),))

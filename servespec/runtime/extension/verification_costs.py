"""What a step of chosen drafts costs: the target's forward by its tokens, and attention by the tokens that are cached.

The engine times each size with as many requests as tokens, as far as there can be so many, and gives every one of them
the same long context.  Its table so charges each draft below ``max_num_seqs`` tokens with the attention of a whole
request, and none above: few requests verify too little, many everything.  But a draft brings no context with it.  Here
sizes are timed with one cached token a request, and those of at most ``max_num_seqs`` tokens with the engine's context
too, which tells what a cached token takes; each step is then charged with the tokens that its requests have cached.
Source: vllm/v1/worker/gpu/spec_decode/adaptive_verification.py: AdaptiveVerificationManager;
vllm/v1/worker/gpu/model_runner.py: GPUModelRunner._dummy_run; vllm/v1/worker/gpu/async_utils.py: StepTimingCollector;
vllm/v1/worker/gpu/input_batch.py: set_dummy_context.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import Any, Final

_SHORT_TOKENS: Final = 1
"""With no context at all a dummy request is a prompt and no decode."""


def charge_cached_tokens(manager_type: type, sizes: Collection[int]) -> None:
    """Has the engine's managers of adaptive verification, of ``manager_type``, price their steps so.

    ``sizes`` are those of the graphs that an adaptive step can take, in tokens: no others are timed.
    """
    engines: Any = manager_type
    engines_batches, engines_curves = engines.batches_to_profile, engines.set_initial_cost_curves
    engines_choice = engines.get_num_tokens

    def batches_to_profile(manager: Any, capture_sizes: list[int]) -> Iterator[dict[str, int]]:
        asked = list(engines_batches(manager, [size for size in capture_sizes if size in sizes]))
        manager.servespec_short = len(asked)
        manager.servespec_long = [one for one in asked if one["num_tokens"] <= manager.req_states.max_num_reqs]
        yield from ({**one, "context_len": _SHORT_TOKENS} for one in asked)
        yield from manager.servespec_long

    def set_initial_cost_curves(manager: Any, samples: Sequence[Any]) -> None:
        short, long = samples[: manager.servespec_short], samples[manager.servespec_short :]
        if len(long) != len(manager.servespec_long):
            asked = manager.servespec_short + len(manager.servespec_long)
            raise RuntimeError(
                f"the engine timed {len(samples)} of {asked} steps that price adaptive verification; `load_aware` "
                "cannot be served by it"
            )
        manager.servespec_ms_per_cached_token = _agreed(ms_per_cached_token(short, long, _more_context(manager)))
        engines_curves(manager, short)

    def get_num_tokens(manager: Any, num_tokens_per_req: dict[str, int], draft_tokens: dict[str, list[int]]) -> int:
        states, (drafter_ms, _) = manager.req_states, manager.cost_tables
        cached = states.num_computed_tokens_np[[states.req_id_to_index[one] for one in num_tokens_per_req]]
        requests = len(num_tokens_per_req)
        drafting_ms = drafter_ms[requests]
        drafter_ms[requests] = drafting_ms + manager.servespec_ms_per_cached_token * int(cached.sum())
        try:
            return int(engines_choice(manager, num_tokens_per_req, draft_tokens))
        finally:
            drafter_ms[requests] = drafting_ms

    engines.servespec_ms_per_cached_token = 0.0
    engines.batches_to_profile = batches_to_profile
    engines.set_initial_cost_curves = set_initial_cost_curves
    engines.get_num_tokens = get_num_tokens


def ms_per_cached_token(short: Sequence[Any], long: Sequence[Any], more_context: int) -> float:
    """What target and drafter take for one more token in the KV cache, in milliseconds; the engine's samples.

    Requests of ``long`` have ``more_context`` tokens more than those of ``short``.  Least squares through zero over the
    median of each size, which the large ones decide.
    """
    alone, beside = _median_ms(short), _median_ms(long)
    tokens = {size: size[1] * more_context for size in beside.keys() & alone.keys()}
    square = sum(count * count for count in tokens.values())
    if not square:
        return 0.0
    return max(0.0, sum(count * (beside[size] - alone[size]) for size, count in tokens.items()) / square)


def _median_ms(samples: Sequence[Any]) -> dict[tuple[int, int], float]:
    """By tokens and requests, of steps on FULL graphs: of others the drafter's time is that of the host."""
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for one in samples:
        if one.full_cudagraph:
            found[one.num_target_tokens, one.num_reqs].append(one.forward_ms + one.drafter_ms)
    return {size: median(times) for size, times in found.items()}


def _more_context(manager: Any) -> int:
    """Of a long dummy request of one token over a short one, which the engine cuts where a request would not fit."""
    asked = max((one["context_len"] for one in manager.servespec_long), default=0)
    longest = int(manager.req_states.max_model_len) - 1
    return max(0, min(asked, longest) - _SHORT_TOKENS)


def _agreed(value: float) -> float:
    """That of the first tensor-parallel rank, as the engine has it for its curves: all must choose alike."""
    from vllm.distributed.parallel_state import get_tp_group

    return float(get_tp_group().broadcast_object(value, src=0))

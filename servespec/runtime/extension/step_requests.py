"""Scheduler outputs of real requests, made by hand as the engine's own warm-up makes them.

All KV blocks of a request are given with its prompt, so that a batch can be run again from its start.
Source: vllm/v1/worker/gpu/warmup.py: warmup_kernels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from servespec.runtime.extension.step_batches import Batch, Limits, generated_tokens, prompt_tokens

_SEED = 20260
"""Of the prompts, which every rank makes for itself."""
_UNSCHEDULED_PROMPT_TOKENS = 1
"""The first of several prompts in a step is not the whole of one, so that a chunk that ends nothing is seen too."""


class TooFewBlocksError(ValueError):
    """The KV cache cannot hold the requests of a batch."""


@dataclass(slots=True)
class Request:
    """One request: its prompt, how much of it a first step takes, its KV blocks by group, and where it stands."""

    name: str
    prompt: list[int]
    first_tokens: int
    blocks: tuple[list[int], ...]
    computed: int = 0
    emitted: list[int] = field(default_factory=list)


def decoding_requests(runner: Any, count: int, limits: Limits) -> list[Request]:
    """Requests 0 to ``count`` - 1, the same in every batch; their KV holds all that they can bring forth.

    Raises TooFewBlocksError where the KV cache is too small.
    """
    after = generated_tokens(limits) + 1
    lengths = [prompt_tokens(number, limits) for number in range(count)]
    return list(_requests(runner, "decode", lengths, [length + after for length in lengths], 0, 1))


def starting_requests(runner: Any, batch: Batch, before: Sequence[Request]) -> list[Request]:
    """The prompts of a mixed batch, in KV blocks behind those of ``before``."""
    first_block = 1 + sum(len(group) for request in before for group in request.blocks)
    held = [tokens + _UNSCHEDULED_PROMPT_TOKENS + 1 for tokens in batch.prompts]
    requests = list(_requests(runner, "start", list(batch.prompts), held, len(before), first_block))
    if len(requests) > 1:
        requests[0].prompt.extend([1] * _UNSCHEDULED_PROMPT_TOKENS)
    return requests


def resumed(requests: Sequence[Request]) -> list[Request]:
    """The same requests anew: the KV cache holds their prompts up to the last token, which a first step takes."""
    return [replace(one, first_tokens=1, computed=len(one.prompt) - 1, emitted=[]) for one in requests]


def _requests(
    runner: Any, kind: str, lengths: Sequence[int], held: Sequence[int], first_seed: int, first_block: int
) -> Iterator[Request]:
    from vllm.v1.worker.gpu.warmup import _warmup_block_counter

    counter, next_block = _warmup_block_counter(runner), first_block
    specs = [group.kv_cache_spec for group in runner.kv_cache_config.kv_cache_groups]
    available = runner.kv_cache_config.num_blocks
    for number, (length, tokens) in enumerate(zip(lengths, held, strict=True)):
        counts = [counter(tokens, spec) for spec in specs]
        blocks = tuple(_ranges(counts, next_block))
        next_block += sum(counts)
        if next_block > available:
            needed = next_block * len(lengths) // (number + 1)
            raise TooFewBlocksError(f"about {needed} KV blocks are needed, and there are {available}")
        prompt = Random(_SEED + first_seed + number).choices(range(runner.vocab_size), k=length)  # noqa: S311 - text
        yield Request(f"_servespec_{kind}_{number:05d}", prompt, length, blocks)


def _ranges(counts: Iterable[int], first: int) -> Iterator[list[int]]:
    for count in counts:
        yield list(range(first, first + count))
        first += count


def chunks_of(requests: Sequence[Request], limits: Limits) -> Iterator[list[Request]]:
    """Groups whose prompts fit one step; a drafter's block is shorter than any prompt."""
    chunk: list[Request] = []
    taken = 0
    for request in requests:
        needed = request.first_tokens + limits.extra_tokens_per_request
        if chunk and taken + needed > limits.max_batched_tokens:
            yield chunk
            chunk, taken = [], 0
        chunk.append(request)
        taken += needed
    if chunk:
        yield chunk


def step_output(
    starting: Sequence[Request], decoding: Mapping[str, int], requests: Mapping[str, Request], next_drafts: int
) -> Any:
    """The scheduler's words for one step: ``starting`` prompts, and query lengths of ``decoding`` requests by name."""
    from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput

    output = SchedulerOutput.make_empty()
    output.num_spec_tokens_to_schedule = next_drafts
    output.scheduled_new_reqs = [_new_request(request, seed) for seed, request in enumerate(starting)]
    cached = CachedRequestData.make_empty()
    cached.req_ids = list(decoding)
    cached.num_computed_tokens = [requests[name].computed for name in decoding]
    cached.num_output_tokens = [max(1, len(requests[name].emitted)) for name in decoding]
    cached.new_block_ids = [None] * len(decoding)
    output.scheduled_cached_reqs = cached
    # Which tokens a draft is, the engine reads from its own state; here it counts them.
    output.scheduled_spec_decode_tokens = {name: [0] * (length - 1) for name, length in decoding.items() if length > 1}
    output.num_scheduled_tokens = {**dict(decoding), **{request.name: request.first_tokens for request in starting}}
    output.total_num_scheduled_tokens = sum(output.num_scheduled_tokens.values())
    return output


def finishing_output(names: Iterable[str]) -> Any:
    from vllm.v1.core.sched.output import SchedulerOutput

    output = SchedulerOutput.make_empty()
    output.finished_req_ids = set(names)
    return output


def _new_request(request: Request, seed: int) -> Any:
    from vllm import SamplingParams
    from vllm.v1.core.sched.output import NewRequestData

    return NewRequestData(
        req_id=request.name,
        prompt_token_ids=request.prompt,
        mm_features=[],
        sampling_params=SamplingParams(temperature=0.0, seed=seed, max_tokens=64, ignore_eos=True, watermarking=False),
        pooling_params=None,
        block_ids=request.blocks,
        num_computed_tokens=request.computed,
        lora_request=None,
        prefill_token_ids=request.prompt,
    )

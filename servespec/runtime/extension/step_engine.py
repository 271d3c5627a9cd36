"""Drives an engine through steps made by hand, in a worker that serves nobody yet.

Source: vllm/v1/worker/gpu_worker.py: Worker.execute_model, Worker.sample_tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from servespec.runtime.extension.step_batches import Batch, Limits
from servespec.runtime.extension.step_requests import Request, chunks_of, finishing_output, step_output

Json = dict[str, Any]

FAULTS: Final = (RuntimeError, ValueError, AssertionError, LookupError, TypeError, AttributeError)
"""What an engine raises in a step that it cannot run; the batch is given up and the next one tried."""


@dataclass(frozen=True, slots=True)
class StepEngine:
    """The worker whose engine is driven."""

    worker: Any
    limits: Limits

    @property
    def runner(self) -> Any:
        return self.worker.model_runner

    def prefill(self, requests: Sequence[Request], next_drafts: int) -> None:
        """Brings each request to its first token, in as many steps as their prompts need."""
        for chunk in chunks_of(requests, self.limits):
            by_name = {request.name: request for request in chunk}
            self.advance(step_output(chunk, {}, by_name, next_drafts), by_name)

    def advance(self, output: Any, requests: Mapping[str, Request]) -> None:
        self.execute(output, requests)
        self.sample(output, requests)

    def execute(self, output: Any, requests: Mapping[str, Request]) -> None:
        if self.runner.kv_block_zeroer is not None:
            started = [requests[new.req_id] for new in output.scheduled_new_reqs]
            fresh = [one for one in started if not one.computed]
            output.new_block_ids_to_zero = [block for one in fresh for group in one.blocks for block in group]
        self.worker.execute_model(output)

    def sample(self, output: Any, requests: Mapping[str, Request]) -> None:
        self.take(self.worker.sample_tokens(None), output, requests)

    def take(self, sampled: Any, output: Any, requests: Mapping[str, Request]) -> None:
        """Waits for what a step brought forth, and notes it in its requests."""
        said = sampled.get_output()
        for name, tokens in zip(said.req_ids, said.sampled_token_ids, strict=True):
            requests[name].emitted.extend(tokens)
            # As if every draft were accepted: the engine itself knows which were not.
            requests[name].computed += output.num_scheduled_tokens[name]

    def finish(self, names: Mapping[str, Request] | Sequence[str]) -> None:
        self.worker.execute_model(finishing_output(names))

    def abandon(self) -> None:
        """Forgets a step that failed, and its requests."""
        self.runner.execute_model_state = None
        self.finish([name for name in self.runner.req_states.req_id_to_index if name.startswith("_servespec_")])


def after_warm_up(worker: Any, run: Callable[[], None]) -> None:
    """Makes the worker's warm-up end with ``run``: its graphs are captured then, and no request is there yet.

    Source: vllm/v1/worker/gpu_worker.py: Worker.compile_or_warm_up_model.
    """
    warm_up = worker.compile_or_warm_up_model

    def compile_or_warm_up_model() -> Any:
        times = warm_up()
        run()
        return times

    worker.compile_or_warm_up_model = compile_or_warm_up_model


def limits_of(runner: Any) -> Limits:
    return Limits(
        max_requests=runner.max_num_reqs,
        max_batched_tokens=runner.scheduler_config.max_num_scheduled_tokens or runner.max_num_tokens,
        max_model_len=runner.max_model_len,
        drafts=runner.num_speculative_steps,
        block_tokens_per_request=getattr(runner.speculator, "num_query_per_req", 1),
        extra_tokens_per_request=getattr(runner.speculator, "num_extra_query_per_req", 0),
    )


def reason_against(runner: Any) -> str | None:
    """Why steps made by hand cannot be run in this engine; None where they can."""
    reasons = {
        "a pooling model samples no tokens": runner.is_pooling_model,
        "an encoder-decoder model needs encoder inputs": runner.is_encoder_decoder,
        "a pipeline stage sees only its own part of a step": runner.use_pp,
        "prefill context parallelism divides each step over its ranks": runner.pcp_manager is not None,
        "the model samples more than one token of itself in a step": (
            runner.model_state.num_new_sampled_tokens_per_step != 1
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


@contextmanager
def quiet(runner: Any) -> Iterator[None]:
    """What must not see these requests is off: transfers, expert balancing, the choice of how many drafts to verify."""
    with ExitStack() as undo:
        undo.enter_context(runner.eplb.suppress())
        runner.kv_connector.set_disabled(True)
        undo.callback(runner.kv_connector.set_disabled, False)
        undo.callback(setattr, runner, "adaptive_verification", runner.adaptive_verification)
        runner.adaptive_verification = None
        sampler = runner.rejection_sampler
        if sampler is not None:
            undo.callback(setattr, sampler, "enable_adaptive_verification", sampler.enable_adaptive_verification)
            sampler.enable_adaptive_verification = False
        yield


def batch_json(batch: Batch) -> Json:
    return {
        "requests": batch.requests,
        "tokens": batch.tokens,
        "decodes": [[length, len(list(same))] for length, same in groupby(batch.decodes)],
        "prompts": list(batch.prompts),
        "next_drafts": batch.next_drafts,
        "because": None,
        "error": None,
    }


def told(fault: BaseException) -> str:
    """The type and the first line; what follows is a traceback or advice."""
    return f"{type(fault).__name__}: {(str(fault).strip().splitlines() or [''])[0]}"

"""Adaptive verification from a number of requests on: below it each step verifies all its drafts, as with a fixed K.

The engine itself runs its warm-up without its manager of adaptive verification, by taking it off the runner; here the
same is done for steps of few requests.  The number of requests is that of the scheduler's step, the same on every
tensor-parallel rank, so that no rank asks another.

A start runs real steps before the manager knows what a step costs: those of kernels that warm up, of any number of
requests.  They are the engine's, which finds its manager as it left it; the costs are there from the capture on.
A server that scales warms up and captures once more, and its new workers time the steps that price adaptive ones
together with those that serve: all of them must have their manager then.
Source: vllm/v1/worker/gpu_worker.py: Worker._compile_or_warm_up_model; vllm/v1/worker/gpu/warmup.py: warmup_kernels;
vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.capture_model;
vllm/distributed/elastic_ep/elastic_execute.py: ElasticEPScalingExecutor.warm_and_capture;
vllm/v1/worker/gpu/spec_decode/adaptive_verification.py.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from servespec.runtime.extension.verification_costs import charge_cached_tokens


class LoadSwitch:
    """Holds the runner's manager while steps are small, and gives it back as if its requests were new.

    A load between ``fixed_below`` and ``from_requests`` changes nothing: each return to the manager forgets what drafts
    were likely, so that a load that swings by a request would never know it.  At first all drafts are verified.
    ``fixed_steps`` and ``adaptive_steps`` count the steps of each kind since the engine could verify adaptively.
    """

    def __init__(self, runner: Any, from_requests: int, fixed_below: int) -> None:
        self._runner = runner
        self._from_requests, self._fixed_below = from_requests, fixed_below
        self._chooses = False
        self._held: Any = None
        self._rests = False
        self.fixed_steps = 0
        self.adaptive_steps = 0

    def counts(self) -> dict[str, int]:
        """As a worker's last report has them."""
        return {"fixed_steps": self.fixed_steps, "adaptive_steps": self.adaptive_steps}

    @property
    def is_fixed(self) -> bool:
        """Whether the step at hand verifies all its drafts."""
        return self._held is not None

    def before_step(self, requests: int) -> None:
        """Called with the number of requests of each scheduled step; without any, or in a start, nothing changes."""
        if requests == 0 or self._rests or not self._can_choose():
            return
        self._chooses = requests >= (self._fixed_below if self._chooses else self._from_requests)
        if self._chooses:
            self._give_back()
        else:
            self._hold()
        self.fixed_steps += self.is_fixed
        self.adaptive_steps += self._runner.adaptive_verification is not None

    @contextmanager
    def resting(self) -> Iterator[None]:
        """For the time of a block the manager is on the runner, whatever the steps are of."""
        self._chooses = False
        self._give_back()
        self._rests = True
        try:
            yield
        finally:
            self._rests = False

    def _can_choose(self) -> bool:
        """Whether there is a manager, here or on the runner, that knows what steps cost."""
        return knows_costs(self._held if self.is_fixed else self._runner.adaptive_verification)

    def _hold(self) -> None:
        manager = self._runner.adaptive_verification
        if manager is None:
            return
        self._held, self._runner.adaptive_verification = manager, None
        self._runner.rejection_sampler.enable_adaptive_verification = False

    def _give_back(self) -> None:
        if self._held is None:
            return
        forget_confidences(self._held)
        self._runner.adaptive_verification, self._held = self._held, None
        self._runner.rejection_sampler.enable_adaptive_verification = True


def knows_costs(manager: Any) -> bool:
    """Whether there is a manager and its costs were measured; before that it can choose no drafts."""
    return manager is not None and manager.cost_tables is not None


def forget_confidences(manager: Any) -> None:
    """As for requests that the manager has not seen: it saw none of those that came while it was held.

    Copies that are under way are of steps before the last one; they are waited for, so that they undo nothing.
    """
    from vllm.utils.gpu_sync_debug import gpu_sync_allowed

    with gpu_sync_allowed():
        for event in manager._copy_events:
            event.synchronize()
    manager._confidence_probs.fill_(1.0)
    for slot in manager._stale_confidences:
        slot.np.fill(1.0)
    manager._pending_resets.clear()
    manager._batch_budget = None


def follow_load(runner: Any, from_requests: int, fixed_below: int, varlen_tokens: Collection[int]) -> LoadSwitch:
    """Puts a switch before each step of ``runner``; ``varlen_tokens`` are the sizes of its graphs of any query length.

    Steps that are not the scheduler's, as those of captures and of cost curves, are left as they are.
    """
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import AdaptiveVerificationManager

    switch = LoadSwitch(runner, from_requests, fixed_below)
    runner.servespec_load_switch = switch
    runner.execute_model = _switched(runner.execute_model, switch)
    _teach_adaptive_steps_alone(runner)
    charge_cached_tokens(AdaptiveVerificationManager, varlen_tokens)
    return switch


def rest_in_warm_ups(worker: Any, switch: LoadSwitch) -> None:
    """Of the start, and of a server that scales; the steps in them are the engine's."""
    engines_own = worker.compile_or_warm_up_model

    def compile_or_warm_up_model() -> Any:
        with switch.resting():
            return engines_own()

    worker.compile_or_warm_up_model = compile_or_warm_up_model


def _switched(engines_own: Callable[..., Any], switch: LoadSwitch) -> Callable[..., Any]:
    def execute_model(scheduler_output: Any, *given: Any, **named: Any) -> Any:
        is_dummy = named.get("dummy_run", given[1] if len(given) > 1 else False)
        if not is_dummy:
            switch.before_step(len(scheduler_output.num_scheduled_tokens))
        return engines_own(scheduler_output, *given, **named)

    return execute_model


def _teach_adaptive_steps_alone(runner: Any) -> None:
    """What is accepted of a step with all its drafts, or of a warm-up, tells the estimate nothing of chosen drafts."""
    speculator = runner.speculator
    engines_own = getattr(speculator, "observe_verification", None)
    if engines_own is None:
        return

    def observe_verification(*given: Any, **named: Any) -> None:
        if knows_costs(runner.adaptive_verification):
            engines_own(*given, **named)

    speculator.observe_verification = observe_verification

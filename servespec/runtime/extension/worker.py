"""The class that `--worker-extension-cls` names: the engine calls it in each worker, before any weight is loaded.

It is called again when a worker shuts down, under the executor of one process and that of several; since the engine
kills most workers first, `serve` asks each of them before it stops the engine (``runtime/last_reports.py``).
Source: vllm/v1/worker/worker_base.py: WorkerWrapperBase.init_device, WorkerWrapperBase.shutdown.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servespec.compiler.facts.relied_on import Use
from servespec.compiler.graphs.hand_off import FORMAT, HAND_OFF_KEY, LOAD_AWARE_KEY, digest
from servespec.runtime.extension.answers import Answers, end_answers
from servespec.runtime.extension.capture_memory import CaptureMeter, meter_captures
from servespec.runtime.extension.failure import record_failures
from servespec.runtime.extension.install import EngineTypes, PlanMismatchError, install, varlen_tokens
from servespec.runtime.extension.load_aware import follow_load, rest_in_warm_ups
from servespec.runtime.extension.remedies import Counts, apply_remedies
from servespec.runtime.extension.replay import VERIFY_VARIABLE, replay_after_warm_up
from servespec.runtime.extension.report import Took, write_left, write_report
from servespec.runtime.extension.ruled_acceptance import estimate_by_rule
from servespec.runtime.extension.split_rule import bind_split_rule, widest_full_tokens
from servespec.runtime.extension.step_times import STEPS_VARIABLE, time_after_warm_up


class PlannedGraphs:
    """Mixed into the engine's worker, so it adds no names but those that the engine calls."""

    @staticmethod
    def init_worker_extension(worker: Any) -> None:
        """Installs the plan's graphs in this worker.

        Raises PlanMismatchError where the hand-off, the engine's source or another rank is not what was planned for.
        """
        given = hand_off_of(worker.vllm_config.additional_config)
        check_engine(given["engine"], uses_of(given))
        _check_other_ranks(given["sha256"])
        types, meter = _engine_types(), CaptureMeter()
        install(given["managers"], types)
        meter_captures(types.manager, meter)
        bind_split_rule(worker.model_runner, widest_full_tokens(given["managers"]))
        if LOAD_AWARE_KEY in given:
            from_requests, fixed_below = given[LOAD_AWARE_KEY]
            varlen = varlen_tokens(given["managers"])
            rest_in_warm_ups(worker, follow_load(worker.model_runner, from_requests, fixed_below, varlen))
            _estimate_by_rule(worker.vllm_config.speculative_config)
        _report_after_capture(worker, meter, given["sha256"], apply_remedies(given.get("remedies", ())))
        replay_after_warm_up(worker, given["sha256"])
        time_after_warm_up(worker, given["sha256"])
        record_failures(worker)

    @staticmethod
    def destroy_worker_extension(worker: Any) -> None:
        """Reads the worker's graphs again; the engine goes on to end it whatever is raised."""
        end_answers(worker)
        write_left(worker)


def hand_off_of(additional_config: Any) -> Mapping[str, Any]:
    """The hand-off in the engine's settings, whole and unchanged."""
    given = additional_config.get(HAND_OFF_KEY) if isinstance(additional_config, Mapping) else None
    if not isinstance(given, Mapping):
        message = f"the engine's additional config holds no `{HAND_OFF_KEY}`: start it with `servespec serve`"
        raise PlanMismatchError(message)
    if given.get("format") != FORMAT or given.get("sha256") != digest(given):
        raise PlanMismatchError("the hand-off was changed on its way, or is another servespec's")
    return given


def uses_of(given: Mapping[str, Any]) -> frozenset[Use]:
    """What relies on more of the engine than the graphs do."""
    measures = any(os.environ.get(name) for name in (VERIFY_VARIABLE, STEPS_VARIABLE))
    wanted = {
        Use.MEASURING: measures,
        Use.REMEDIES: bool(given.get("remedies")),
        Use.LOAD_AWARE: LOAD_AWARE_KEY in given,
    }
    return frozenset(use for use, is_wanted in wanted.items() if is_wanted)


def check_engine(facts_version: str, uses: frozenset[Use] = frozenset()) -> None:
    """The source of this worker's engine is the one whose functions the plan and ``uses`` rely on."""
    import vllm

    from servespec.runtime.installed_engine import find_installed_engine

    found = find_installed_engine(Path(str(vllm.__file__)).parents[1])
    differing = found.digests_that_differ(facts_version, uses) if found is not None else ("vllm",)
    if differing:
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise PlanMismatchError(f"this engine is not vLLM {facts_version}: {differing[0]}{more} differ")


def _check_other_ranks(sha256: str) -> None:
    """Not where a worker joins a server that is up: its group has the ranks that serve, and they ask nobody any more.

    Such a worker is handed the server's own launch line, and has compared the digest in it.
    Source: vllm/distributed/parallel_state.py: _init_elastic_ep_world, _elastic_join_warmup_ctx.
    """
    import torch
    from vllm import envs
    from vllm.distributed.parallel_state import get_world_group

    if envs.VLLM_ELASTIC_EP_SCALE_UP_LAUNCH:
        return

    group = get_world_group()
    if group.world_size == 1:
        return
    everyone: list[str | None] = [None] * group.world_size
    torch.distributed.all_gather_object(everyone, sha256, group=group.cpu_group)
    if set(everyone) != {sha256}:
        raise PlanMismatchError(f"the ranks were handed {len(set(everyone))} different plans")


def _estimate_by_rule(speculative: Any) -> None:
    if speculative.rejection_sample_method == "synthetic":
        from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator

        estimate_by_rule(speculative.synthetic_acceptance_rates, OnlineAcceptanceEstimator)


def _engine_types() -> EngineTypes:
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor, CudaGraphManager

    return EngineTypes(manager=CudaGraphManager, descriptor=BatchExecutionDescriptor, mode=CUDAGraphMode)


def _report_after_capture(worker: Any, meter: CaptureMeter, sha256: str, remedies: Counts) -> None:
    """Profiling captures a few graphs and drops them; the report is of those that stay.

    An engine that changes its ranks captures again.
    """
    runner, answers = worker.model_runner, Answers(worker)
    capture = runner.capture_model

    def capture_model(*, profile_only: bool = False) -> int:
        from vllm.compilation.monitor import set_cudagraph_capturing_enabled

        set_cudagraph_capturing_enabled(True)
        if profile_only:
            return int(capture(profile_only=True))
        began = time.perf_counter()
        with meter.on():
            graph_bytes = int(capture(profile_only=False))
        took = Took(time.perf_counter() - began, graph_bytes, tuple(meter.captured))
        write_report(worker, sha256, took, remedies)
        answers.begin()
        # A size that was not planned is to fail loudly, not to be captured while requests wait.
        set_cudagraph_capturing_enabled(False)
        return graph_bytes

    runner.capture_model = capture_model

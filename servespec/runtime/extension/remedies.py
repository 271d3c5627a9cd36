"""The remedies of a plan in a worker: what each replaces in the engine, and how often it did its work."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from servespec.compiler.graphs.hand_off import Remedy
from servespec.runtime.extension.measured_kv import agree_on_kept_kv, measured_kv_bytes, profile_when_compiled

Counts = dict[str, int]
"""Each remedy that is in force: nested tensors held weakly, captures on the one stream, KV caches of a kept size."""


def apply_remedies(names: Sequence[str]) -> Counts:
    """Replaces what the named remedies need replaced, from now on; KeyError for one that is not known."""
    counts = dict.fromkeys(names, 0)
    for name in names:
        _APPLY[name](counts)
    return counts


# Nested auxiliary outputs, held weakly


def _hold_nested_outputs_weakly(counts: Counts) -> None:
    """The engine looks one level into what a breakable capture returns, so that what is nested holds its blocks.

    A replay's outputs are valid until another graph of the pool runs, nested or not: every drafter copies the
    auxiliary hidden states before it runs one, in the same step as the hidden states that are weak already.
    Source: vllm/compilation/breakable_cudagraph.py: BreakableCUDAGraphWrapper._capture.
    """
    from vllm.compilation import breakable_cudagraph

    def count() -> None:
        counts[Remedy.WEAK_AUX_OUTPUTS] += 1

    engines_own, weak_ref_tensor = breakable_cudagraph.weak_ref_tensors, breakable_cudagraph.weak_ref_tensor
    breakable_cudagraph.weak_ref_tensors = nested_weak_refs(engines_own, weak_ref_tensor, count)


def nested_weak_refs(
    engines_own: Callable[[Any], Any], weak_ref_tensor: Callable[[Any], Any], count: Callable[[], None]
) -> Callable[[Any], Any]:
    """The engine's ``weak_ref_tensors``, but at every depth of lists, tuples and dicts, whose types are kept.

    ``count`` is called for each tensor below the depth that the engine reaches by itself.
    """

    def of_depth(value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return {key: of_depth(one, depth + 1) for key, one in value.items()}
        if isinstance(value, list | tuple):
            weak = [of_depth(one, depth + 1) for one in value]
            if isinstance(value, list):
                return weak
            return type(value)._make(weak) if hasattr(value, "_make") else tuple(weak)
        weak_value = weak_ref_tensor(value)
        if depth > 1 and weak_value is not value:
            count()
        return weak_value

    def weak_ref_tensors(outputs: Any) -> Any:
        return of_depth(outputs, 0) if isinstance(outputs, dict | list | tuple) else engines_own(outputs)

    return weak_ref_tensors


# One capture stream


def _capture_on_one_stream(counts: Counts) -> None:
    """The engine opens a stream for each manager, and the allocator hands free blocks of a pool to their own stream.

    On one stream a drafter's graphs reuse what the target's leave free.  Both run one after the other, and what one
    leaves for the other to read is copied before the other runs.  Microbatches keep the stream of their own.
    Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture;
    vllm/distributed/parallel_state.py: graph_capture.
    """
    from vllm.v1.worker.gpu import cudagraph_utils

    def count() -> None:
        counts[Remedy.ONE_CAPTURE_STREAM] += 1

    cudagraph_utils.graph_capture = capture_on_one_stream(count)


def capture_on_one_stream(count: Callable[[], None]) -> Callable[..., Any]:
    """A ``graph_capture`` that makes its stream once for each device; the parallel groups join in as in the engine's.

    Its preparation of the allocator is left out: it is for ROCm alone.
    """
    streams: dict[Any, Any] = {}

    @contextmanager
    def graph_capture(device: Any) -> Iterator[Any]:
        import torch
        from vllm.distributed import parallel_state

        if device not in streams:
            streams[device] = torch.cuda.Stream(device=device)
        context = parallel_state.GraphCaptureContext(streams[device])
        count()
        with ExitStack() as stack:
            for group in (parallel_state.get_tp_group, parallel_state.get_pp_group, parallel_state.get_dp_group):
                stack.enter_context(group().graph_capture(context))
            yield context

    return graph_capture


# KV cache of a measured size


def _keep_measured_kv(counts: Counts) -> None:
    """The engine keeps and finds the size by itself; replaced is what it keeps, and when it takes what it found.

    So is its profile run, which follows: a start that compiles would keep less, and no later one measures again.
    Source: vllm/v1/worker/gpu_worker.py: Worker.determine_available_memory, Worker.compile_or_warm_up_model;
    vllm/v1/worker/gpu/model_runner.py: GPUModelRunner.profile_run.
    """
    from vllm.v1.worker import gpu_worker

    apply, save = gpu_worker.maybe_apply_startup_plan, gpu_worker.maybe_save_startup_plan

    def maybe_apply_startup_plan(worker: Any) -> None:
        apply(worker)
        counts[Remedy.KV_FROM_MEASUREMENT] = int(agree_on_kept_kv(worker))
        profile_when_compiled(worker)

    def maybe_save_startup_plan(worker: Any, _suggested_bytes: int) -> None:
        save(worker, measured_kv_bytes(worker))

    gpu_worker.maybe_apply_startup_plan = maybe_apply_startup_plan
    gpu_worker.maybe_save_startup_plan = maybe_save_startup_plan


_APPLY: Final[dict[str, Callable[[Counts], None]]] = {
    Remedy.WEAK_AUX_OUTPUTS: _hold_nested_outputs_weakly,
    Remedy.ONE_CAPTURE_STREAM: _capture_on_one_stream,
    Remedy.KV_FROM_MEASUREMENT: _keep_measured_kv,
}

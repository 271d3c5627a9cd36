"""What a worker was doing when its start failed, as a file of its own: phase, graph, free memory, error.

The graph is read off the engine's own stack, in the frame of its capture loop: a start that succeeds runs nothing of
ours for it.  Source: vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.capture.
"""

from collections.abc import Callable
from contextlib import suppress
from inspect import unwrap
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final

from servespec.runtime.extension.report import graph_json, leave

PHASES: Final = {
    "load_model": "loading weights",
    "determine_available_memory": "profiling memory",
    "initialize_from_config": "sizing the KV cache",
    "compile_or_warm_up_model": "warming up",
}
"""The calls of a worker's start. Source: vllm/v1/executor/multiproc_executor.py; vllm/v1/engine/core.py."""
CAPTURING: Final = "capturing graphs"


def failure_name(data_parallel_rank: int, rank: int) -> str:
    return f"failed-{data_parallel_rank}-{rank}.json"


def record_failures(worker: Any) -> None:
    """From now on each call of the worker's start leaves a file where it raises; it raises all the same."""
    for name, phase in PHASES.items():
        setattr(worker, name, _watched(worker, getattr(worker, name), phase))


def free_device_bytes() -> int | None:
    """None where a broken device does not tell."""
    import torch

    with suppress(RuntimeError):
        free_bytes: int = torch.accelerator.get_memory_info()[0]
        return free_bytes
    return None


def _watched(worker: Any, call: Callable[..., Any], phase: str) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        with _Watch(worker, phase):
            return call(*args, **kwargs)

    return watched


class _Watch:
    """A context that records an exception on its way out; a stop by a signal is none."""

    def __init__(self, worker: Any, phase: str) -> None:
        self.worker, self.phase = worker, phase

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            # What failed is to be raised, whatever becomes of the record.
            with suppress(OSError):
                leave(self.worker, failure_name, failure_of(self.phase, error, trace))


def failure_of(phase: str, error: Exception, trace: TracebackType | None) -> dict[str, Any]:
    """The record; ``graph`` as in a report of what was captured, None where none was being captured."""
    manager, descriptor = _in_capture(trace)
    is_real = phase == PHASES["compile_or_warm_up_model"] and manager is not None
    return {
        "phase": CAPTURING if is_real else phase,
        "error": type(error).__name__,
        "message": str(error),
        "free_bytes": free_device_bytes(),
        "class": None if manager is None else type(manager).__name__,
        "query_len": None if manager is None else manager.decode_query_len,
        "mode": None if descriptor is None else descriptor.cg_mode.name,
        "graph": None if descriptor is None else graph_json(descriptor),
    }


def _in_capture(trace: TracebackType | None) -> tuple[Any, Any]:
    """The manager and the descriptor of the engine's capture loop, as far as the error came through it."""
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    loop = unwrap(CudaGraphManager.capture).__code__
    for frame, _ in walk_tb(trace):
        if frame.f_code is loop:
            return frame.f_locals["self"], frame.f_locals.get("desc")
    return None, None

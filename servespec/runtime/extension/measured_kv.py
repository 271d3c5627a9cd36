"""The size of the KV cache that fits beside everything else, measured once a worker has started.

What the engine would keep for its next start holds its graphs twice, as it estimated and as it measured them, and no
buffer that is made after its profile run.  Source: vllm/v1/worker/gpu_worker.py: Worker.compile_or_warm_up_model.
"""

from typing import Any, Final

from servespec.runtime.extension.worker_memory import held_bytes, profiled_peak_bytes, settled_snapshot

_MARGIN_BYTES: Final = 150 * (1 << 20)
"""Left free as the engine leaves it in what it suggests: no two starts fragment memory alike."""

_WIDEST_SPLIT_MIB: Final = 20
"""As in the engine's own profile run."""


def measured_kv_bytes(worker: Any) -> int:
    """The utilization's memory, less what all but the KV cache holds now and less the widest peak above that.

    To be asked after capture, with nothing else on the worker's device.
    """
    now = settled_snapshot(worker)
    peak_bytes = max(profiled_peak_bytes(worker) or 0, now.torch_peak - now.torch_allocated)
    return int(worker.requested_memory - held_bytes(worker, now) - peak_bytes - _MARGIN_BYTES)


def profile_when_compiled(worker: Any) -> None:
    """From now on the worker's profile run is two: its peak is that of the second, which compiles nothing.

    While code is compiled, kernels are tried on tensors of their own; no step does that once the KV cache is there.
    Every rank runs both, since the ranks of a group meet in them.  The allocator splits no wide block meanwhile, as
    the engine has it where it measures and not where it has a size: what stays of the run would pin a wide segment.
    Source: vllm/v1/worker/gpu_worker.py: Worker.determine_available_memory.
    """
    engines_own = worker.model_runner.profile_run

    def profile_run(*given: Any, **named: Any) -> None:
        import torch

        with worker._scoped_allocator_max_split(max_split_size_mb=_WIDEST_SPLIT_MIB):
            engines_own(*given, **named)
            torch.accelerator.empty_cache()
            torch.accelerator.reset_peak_memory_stats()
            engines_own(*given, **named)
        torch.accelerator.empty_cache()

    worker.model_runner.profile_run = profile_run


def agree_on_kept_kv(worker: Any) -> bool:
    """Whether every rank takes its KV cache from an earlier start; where one does not, none does.

    A rank that takes it captures no graph for an estimate, which the others would wait for without end.
    """
    import torch
    from vllm.distributed.parallel_state import get_world_group

    group = get_world_group()
    found = [worker.cache_config.kv_cache_memory_bytes is not None] * group.world_size
    if group.world_size > 1:
        torch.distributed.all_gather_object(found, found[0], group=group.cpu_group)
    if not all(found):
        worker.cache_config.kv_cache_memory_bytes = None
    return all(found)

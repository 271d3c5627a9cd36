"""Where a worker's memory lies once it has captured: what it holds, what a step takes above that, and the KV cache.

To be read after capture and warm-up, with nothing else on the worker's device.
"""

from typing import Any


def memory_json(worker: Any) -> dict[str, int | None]:
    """Bytes of this worker's device; None for what the engine does not profile where the KV cache is pinned.

    ``held_bytes`` is all but the KV cache: weights, graphs, buffers, the context.
    """
    peak_bytes, estimate_bytes = profiled_peak_bytes(worker), getattr(worker, "cudagraph_memory_estimate", None)
    return {
        "device_bytes": int(worker.init_snapshot.total_memory),
        "free_at_start_bytes": int(worker.init_snapshot.free_memory),
        "weights_bytes": int(worker.model_runner.model_memory_usage),
        "held_bytes": held_bytes(worker, settled_snapshot(worker)),
        "peak_bytes": peak_bytes,
        "engine_estimate_bytes": None if estimate_bytes is None else int(estimate_bytes),
        "kv_cache_bytes": kv_bytes(worker),
    }


def settled_snapshot(worker: Any) -> Any:
    """The engine's own snapshot, once the device is idle and what the allocator could give back is given back.

    It is of the class of the one that the worker began with, so that both tell free memory alike: on a device that
    shares the machine's memory, the driver tells too little.  Source: vllm/utils/mem_utils.py: MemorySnapshot.measure.
    """
    import torch

    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    return type(worker.init_snapshot)(device=worker.init_snapshot.device_)


def held_bytes(worker: Any, settled: Any) -> int:
    """What went from the device since the worker began, without the KV cache."""
    return int(worker.init_snapshot.free_memory - settled.free_memory - kv_bytes(worker))


def kv_bytes(worker: Any) -> int:
    """Every tensor of the configuration names the one allocation that all of them are views of."""
    tensors = worker.model_runner.kv_cache_config.kv_cache_tensors
    return max((tensor.size for tensor in tensors if not tensor.host_resident), default=0)


def profiled_peak_bytes(worker: Any) -> int | None:
    """Of the profile run, above what it left held.

    The engine adds its estimate of the graphs to it where it was told to reserve them.
    """
    from vllm import envs

    peak_bytes = getattr(worker, "peak_activation_memory", None)
    if peak_bytes is None:
        return None
    reserved = worker.cudagraph_memory_estimate if envs.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS else 0
    return int(peak_bytes - reserved)

"""How many ranks a layout has, one on each device.

Ranks of a replica are numbered stage by stage; within a stage the parts of a prefill's context go before the tensor's.
Source: vllm/config/parallel.py: ParallelConfig.__post_init__; vllm/distributed/parallel_state.py:
initialize_model_parallel.
"""

from servespec.compiler.resolve.request import engine_field
from servespec.schema.spec import ServingSpec

PREFILL_CONTEXT = "prefill_context_parallel_size"


def stage_ranks(spec: ServingSpec) -> int:
    """Of one pipeline stage."""
    return spec.parallel.tensor_parallel_size * int(engine_field(spec, "parallel", PREFILL_CONTEXT, 1) or 1)


def replica_ranks(spec: ServingSpec) -> int:
    """Of one replica, which the engine calls its world."""
    return stage_ranks(spec) * spec.parallel.pipeline_parallel_size


def world_ranks(spec: ServingSpec) -> int:
    """Of all replicas."""
    return replica_ranks(spec) * spec.parallel.data_parallel_size

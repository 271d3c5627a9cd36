"""How many ranks a layout has, one on each device.

Ranks of a replica are numbered stage by stage; within a stage the parts of a prefill's context go before the tensor's.
Source: vllm/config/parallel.py: ParallelConfig.__post_init__; vllm/distributed/parallel_state.py:
initialize_model_parallel.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

from servespec.compiler.resolve.request import engine_field
from servespec.schema.spec import ServingSpec

PREFILL_CONTEXT: Final = "prefill_context_parallel_size"
_STAGE_FIELDS: Final = ("tensor_parallel_size", PREFILL_CONTEXT)
_REPLICA_FIELDS: Final = (*_STAGE_FIELDS, "pipeline_parallel_size")
RANK_FIELDS: Final = (*_REPLICA_FIELDS, "data_parallel_size")
"""The fields of `parallel` whose product a layout's ranks are."""


def ranks(parallel: Mapping[str, Any], fields: tuple[str, ...] = RANK_FIELDS) -> int:
    """Of a layout as a spec writes it; what is no number is refused elsewhere, and counts as what is not written."""
    return prod(size for size in (parallel.get(name) for name in fields) if type(size) is int and size)


def stage_ranks(spec: ServingSpec) -> int:
    """Of one pipeline stage."""
    return ranks(_sizes(spec), _STAGE_FIELDS)


def replica_ranks(spec: ServingSpec) -> int:
    """Of one replica, which the engine calls its world."""
    return ranks(_sizes(spec), _REPLICA_FIELDS)


def world_ranks(spec: ServingSpec) -> int:
    """Of all replicas."""
    return ranks(_sizes(spec))


def _sizes(spec: ServingSpec) -> Mapping[str, Any]:
    context = engine_field(spec, "parallel", PREFILL_CONTEXT, 1)
    return {name: context if name == PREFILL_CONTEXT else getattr(spec.parallel, name) for name in RANK_FIELDS}

"""How the ranks of one engine share a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from servespec.compiler.parallel_ranks import stage_ranks
from servespec.compiler.resolve.request import engine_field, turns_on
from servespec.schema.spec import ServingSpec

PARTITION_VARIABLE = "VLLM_PP_LAYER_PARTITION"
WHOLE_EMBEDDING_VARIABLE = "VLLM_REPLICATE_EMBED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Ranks that share a layer, its experts' width, and its experts, and the stages that share the layers.

    ``partition`` are the layers of each stage where the spec says them.  ``redundant_experts`` are the copies that the
    load balancer adds to a layer.  ``has_whole_shared_experts`` says that every rank has all of what every token takes,
    as it takes a share of the tokens; ``has_whole_embedding``, that every rank has all rows of the embedding.
    """

    tensor: int = 1
    expert_width: int = 1
    experts: int = 1
    pipeline: int = 1
    partition: tuple[int, ...] = ()
    redundant_experts: int = 0
    has_whole_shared_experts: bool = False
    has_whole_embedding: bool = False

    def heads(self, heads: int) -> int:
        return ceil(heads / self.tensor)

    def kv_heads(self, heads: int) -> int:
        """Of one rank; a head is on several ranks where there are fewer heads than ranks."""
        return max(1, heads // self.tensor)

    def local_experts(self, experts: int) -> int:
        return ceil((experts + self.redundant_experts) / self.experts)

    def layers(self, layers: int) -> tuple[int, ...]:
        """Layers of each stage; what is left over goes to the stages before the last.

        A partition of other layers is refused elsewhere.
        Source: vllm/distributed/utils.py: get_pp_indices.
        """
        if len(self.partition) == self.pipeline and sum(self.partition) == layers:
            return self.partition
        each, left = divmod(layers, self.pipeline)
        stages = [each] * self.pipeline
        for index in range(2, left + 2):
            stages[-index] += 1
        return tuple(stages)


def split_of(spec: ServingSpec) -> Split:
    """The split of the target.

    Source: vllm/model_executor/layers/fused_moe/config.py: FusedMoEParallelConfig.make.
    """
    parallel = spec.parallel
    tensor = parallel.tensor_parallel_size
    ranks = stage_ranks(spec) * parallel.data_parallel_size
    experts = ranks if parallel.enable_expert_parallel else 1
    return Split(
        tensor=tensor,
        expert_width=ranks // experts,
        experts=experts,
        pipeline=parallel.pipeline_parallel_size,
        partition=layer_partition(spec) or (),
        redundant_experts=_redundant_experts(spec),
        has_whole_shared_experts=_shards_tokens(spec),
        has_whole_embedding=turns_on(spec, WHOLE_EMBEDDING_VARIABLE),
    )


def _shards_tokens(spec: ServingSpec) -> bool:
    """Whether ranks share tokens before the experts.

    Source: vllm/models/deepseek_v4/nvidia/model.py: _use_sequence_parallel.
    """
    parallel = spec.parallel
    takes_shares = "mega_moe" in str(engine_field(spec, "kernel", "moe_backend", "")) or parallel.data_parallel_size > 1
    is_spread = parallel.enable_expert_parallel and parallel.tensor_parallel_size > 1
    return bool(is_spread and takes_shares and parallel.pipeline_parallel_size == 1)


def _redundant_experts(spec: ServingSpec) -> int:
    balancer = engine_field(spec, "parallel", "eplb_config", None)
    if not engine_field(spec, "parallel", "enable_eplb", False) or not isinstance(balancer, Mapping):
        return 0
    copies = balancer.get("num_redundant_experts", 0)
    return copies if isinstance(copies, int) else 0


def drafter_split_of(spec: ServingSpec) -> Split:
    """The split of a draft model of its own, which lives whole on the last stage."""
    target = split_of(spec)
    tensor = engine_field(spec, "speculative", "draft_tensor_parallel_size", None) or target.tensor
    return replace(target, tensor=int(tensor), pipeline=1, partition=(), redundant_experts=0)


def layer_partition(spec: ServingSpec) -> tuple[int, ...] | None:
    """The layers of each stage that the spec asks for, () where it asks for none, None where the engine reads none."""
    written = spec.engine.env.get(PARTITION_VARIABLE)
    if written is None:
        return ()
    try:
        return tuple(int(count) for count in str(written).split(","))
    except ValueError:
        return None

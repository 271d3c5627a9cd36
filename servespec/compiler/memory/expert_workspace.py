"""What kernels of 4-bit experts allocate at every call, in graphs and out of them, and whose tokens experts see."""

from bisect import bisect_left
from dataclasses import dataclass

from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.facts.expert_workspaces import (
    PREFERRED_NVFP4_EXPERTS,
    SCALED_ELEMENTS,
    TILES,
    TILES_AFTER,
    TILES_BEFORE,
)
from servespec.compiler.memory.caching_allocator import Allocator
from servespec.compiler.memory.config_sizes import merged_config, size_of
from servespec.compiler.memory.split import split_of
from servespec.compiler.model import Model
from servespec.compiler.resolve.request import all2all_backend, engine_field
from servespec.compiler.resolve.resolution import Resolution
from servespec.schema.spec import ServingSpec

EXPERTS = "workspace of the experts"
_BF16_BYTES = 2
_FOUR_BIT_METHODS = ("modelopt_fp4", "nvfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWorkspace:
    """Rows for every token and each of its experts, padded for all experts of the rank.

    ``widths`` are bytes of a row in the intermediate result, its scales, and what the second matrix makes.
    """

    experts: int
    per_token: int
    widths: tuple[int, ...]

    def run(self, memory: Allocator, tokens: int) -> None:
        rows = self.rows(tokens)
        memory.give(*[memory.take(rows * width, EXPERTS) for width in self.widths])

    def size_bytes(self, tokens: int) -> int:
        return self.rows(tokens) * sum(self.widths)

    def most_growth(self, tokens: int) -> float:
        """How many times as large it is where tuning takes the widest tile."""
        return self.rows(tokens, TILES_AFTER.value) / self.rows(tokens)

    def rows(self, tokens: int, tiles_on: int = -TILES_BEFORE.value) -> int:
        """``tiles_on`` counts from the first tile that holds an expert's mean share.

        Sources: FlashInfer, csrc/trtllm_fused_moe_kernel_launcher.cu: computeSelectedTileN, selectDefaultTileN;
        include/flashinfer/trtllm/fused_moe/runner.h: getMaxNumCtasInBatchDim.
        """
        rows, tiles = tokens * self.per_token, TILES.value
        middle = min(bisect_left(tiles, rows / self.experts), len(tiles) - 1)
        tile = tiles[min(max(middle + tiles_on, 0), len(tiles) - 1)]
        begun = min(self.experts, rows)
        return (begun + (rows - begun) // tile) * tile


def expert_workspace(resolution: Resolution, model: Model) -> ExpertWorkspace | None:
    """None where the experts have another format, or kernels with a workspace of the engine's.

    Source: vllm/model_executor/layers/fused_moe/experts/trtllm_nvfp4_moe.py: TrtLlmNvFp4ExpertsBase.
    """
    traits, spec, config = model.traits, resolution.request.spec, merged_config(model)
    backend = engine_field(spec, "kernel", "moe_backend", "auto")
    is_taken = backend in ("auto", PREFERRED_NVFP4_EXPERTS.value) and is_sm100(resolution.device)
    per_token = size_of(config, "num_experts_per_tok")
    if traits.quantization_method not in _FOUR_BIT_METHODS or not (is_taken and traits.num_experts and per_token):
        return None
    split, hidden = split_of(spec), traits.hidden_size or 0
    width = (size_of(config, "moe_intermediate_size") or traits.intermediate_size or 0) // split.expert_width
    return ExpertWorkspace(
        experts=split.local_experts(traits.num_experts),
        per_token=per_token,
        widths=(width // SCALED_ELEMENTS.value, width // 2, _BF16_BYTES * hidden),
    )


def gathered_ranks(spec: ServingSpec) -> int:
    """Data-parallel ranks whose tokens every rank's experts see; other kernels send a rank only its experts' tokens.

    Sources, below vllm/model_executor/layers/fused_moe: all2all_utils.py: maybe_make_prepare_finalize;
    prepare_finalize/naive_dp_ep.py: MoEPrepareAndFinalizeNaiveDPEPModular.
    """
    parallel = spec.parallel
    gathers = not parallel.enable_expert_parallel or all2all_backend(spec) == "allgather_reducescatter"
    return parallel.data_parallel_size if gathers else 1

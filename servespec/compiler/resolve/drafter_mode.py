"""The CUDA-graph mode of each drafter routine, from the target's."""

from enum import StrEnum

from servespec.compiler.facts.cudagraph_mode import MODE_FACTS, AttentionCgSupport, CudaGraphMode
from servespec.provenance import Origin, Resolved


class DrafterRoutine(StrEnum):
    """The graph-owning routines of the drafters; values are the plan's row names."""

    STEP0 = "step0"
    LATER_STEPS = "later_steps"
    BLOCK = "block"
    MULTI_MODULE_MTP = "multi_module_mtp"


def drafter_mode(
    routine: DrafterRoutine,
    target_mode: CudaGraphMode,
    draft_support: AttentionCgSupport,
    breakable: bool,
    version: str = "0.33.0",
) -> Resolved[CudaGraphMode]:
    """The mode of one drafter routine on Model Runner V2, from the target's resolved mode.

    Source: init_cudagraph_manager of each speculator under vllm/v1/worker/gpu/spec_decode.
    """
    if routine is DrafterRoutine.STEP0:
        return Resolved(target_mode, Origin.DERIVED, "the first draft step runs in the target's mode")
    if routine is DrafterRoutine.LATER_STEPS:
        because = "later draft steps have full graphs where the target's decode has"
        return Resolved(_decode_only(target_mode.has_full()), Origin.DERIVED, because)
    if routine is DrafterRoutine.BLOCK:
        return _block_mode(target_mode, draft_support)
    return _multi_module_mode(target_mode, breakable and MODE_FACTS[version].multi_module_keeps_pieces.value)


def _decode_only(full: bool) -> CudaGraphMode:
    return CudaGraphMode.FULL_DECODE_ONLY if full else CudaGraphMode.NONE


def _block_mode(target_mode: CudaGraphMode, support: AttentionCgSupport) -> Resolved[CudaGraphMode]:
    capable = support >= AttentionCgSupport.UNIFORM_BATCH
    because = "block drafters have full graphs where the target's decode has"
    if target_mode.has_full() and not capable:
        because = "the draft's attention cannot capture a whole block; it runs eagerly"
    return Resolved(_decode_only(target_mode.has_full() and capable), Origin.DERIVED, because)


def _multi_module_mode(target_mode: CudaGraphMode, keeps_pieces: bool) -> Resolved[CudaGraphMode]:
    if not target_mode.has_piecewise() or keeps_pieces:
        return Resolved(target_mode, Origin.DERIVED, "the modules run in the target's mode")
    because = "compiled pieces do not tell the modules apart"
    return Resolved(_decode_only(target_mode.has_full()), Origin.DERIVED, because)

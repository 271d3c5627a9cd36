"""How FlashInfer's kernels of 4-bit experts size what they allocate at each call, with the version that vLLM names."""

from typing import Final

from servespec.compiler.facts.engine_file import in_engine
from servespec.provenance import Sourced

_FLASHINFER, _VERSION = "FlashInfer", "0.7.2.post1"
_LAUNCHER = "flashinfer/data/csrc/trtllm_fused_moe_kernel_launcher.cu"

PREFERRED_NVFP4_EXPERTS: Final = in_engine(
    "flashinfer_trtllm",
    "backend",
    "vllm/model_executor/layers/fused_moe/oracle/nvfp4.py",
    "AVAILABLE_BACKENDS = [ NvFp4MoeBackend.FLASHINFER_TRTLLM,",
    "of 4-bit experts, where nothing is asked for and the device has compute capability 10.x",
)
OWN_WORKSPACES: Final = in_engine(
    "FlashInfer's own",
    "workspaces",
    "vllm/model_executor/layers/fused_moe/experts/trtllm_nvfp4_moe.py",
    "# The workspaces for this implementation are managed by flashinfer.",
)
TILES: Final = Sourced(
    (8, 16, 32, 64, 128, 192, 256),
    "tokens",
    _FLASHINFER,
    _VERSION,
    _LAUNCHER,
    "mBaseSupportedTileNums = {8, 16, 32, 64}",
    "of one expert that a block works on; 128, 192 and 256 are added where inputs have 4 bits too",
)
TILES_BEFORE: Final = Sourced(
    1,
    "tiles",
    _FLASHINFER,
    _VERSION,
    _LAUNCHER,
    "center, +1, +2, and -1 neighbors when available.",
    "the smallest of these is taken where nothing was tuned",
)
TILES_AFTER: Final = Sourced(
    2,
    "tiles",
    _FLASHINFER,
    _VERSION,
    _LAUNCHER,
    "center, +1, +2, and -1 neighbors when available.",
    "tuning may take any of these",
)
SCALED_ELEMENTS: Final = Sourced(
    16,
    "elements",
    _FLASHINFER,
    _VERSION,
    _LAUNCHER,
    "sf_vec_size = mDtypeWeights == btg::Dtype::MxE2m1 ? 32 : 16",
    "of an intermediate result that share a scale of one byte",
)

"""Buffers that attention kernels ask for once, beside what a step takes."""

from typing import Final

from servespec.compiler.facts.engine_file import in_engine
from servespec.units import Bytes

WORKSPACE_VARIABLE: Final = "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE"
BATCH_INVARIANT_VARIABLE: Final = "VLLM_BATCH_INVARIANT"
WORKSPACE: Final = in_engine(
    Bytes(394 << 20), "bytes", "vllm/envs.py", "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE: int = 394 * 1024 * 1024"
)

_FLASHINFER = "vllm/v1/attention/backends/flashinfer.py"

BATCH_INVARIANT_WORKSPACE: Final = in_engine(
    Bytes(2048 << 20), "bytes", _FLASHINFER, "FLASHINFER_WORKSPACE_BUFFER_SIZE_BATCH_INVARIANT = 2048 * 1024 * 1024"
)
PREFILL_ELEMENT: Final = in_engine(
    Bytes(16),
    "bytes",
    _FLASHINFER,
    "FLASHINFER_PREFILL_WORKSPACE_BYTES_PER_ELEM = 16",
    "of an element of the queries of the widest step",
)

_MLA = "vllm/v1/attention/backends/mla"

MLA_WORKSPACE: Final = in_engine(
    Bytes(128 << 20),
    "bytes",
    f"{_MLA}/flashinfer_mla.py",
    "FLASHINFER_MLA_WORKSPACE_BUFFER_SIZE = 128 * 1024 * 1024",
)
MLA_LSE_WORKSPACE: Final = in_engine(
    Bytes(256 << 20),
    "bytes",
    f"{_MLA}/flashinfer_mla.py",
    "FLASHINFER_MLA_LSE_WORKSPACE_BUFFER_SIZE = 256 * 1024 * 1024",
    "with decode context parallelism, whose ranks hand each other the sums of their softmax",
)
_SPARSE = f"{_MLA}/flashinfer_mla_sparse.py"

SOFTMAX_STATISTIC: Final = in_engine(Bytes(8), "bytes", _SPARSE, "_TRTLLM_GEN_SOFTMAX_STAT_BYTES = 8")
SOFTMAX_SLOTS: Final = in_engine(256, "slots a token", _SPARSE, "_TRTLLM_GEN_SOFTMAX_SLOTS_PER_TOKEN = 256")
SOFTMAX_GUARD: Final = in_engine(Bytes(1 << 20), "bytes", _SPARSE, "_TRTLLM_GEN_SOFTMAX_GUARD_BYTES = 1024 * 1024")

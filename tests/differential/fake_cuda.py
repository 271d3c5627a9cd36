"""A CUDA platform for the real engine on a machine without CUDA, enough to resolve configs.

Call :func:`install` before any other part of the engine is imported; one process is one machine, because
the engine caches what it learns.  The engine's compiled modules are replaced by modules whose functions
answer False, so what depends on FlashAttention being built is not to be asked here.
"""

import sys
from types import ModuleType
from typing import Any

_COMPILED = (
    "_C",
    "_C_stable_libtorch",
    "_moe_C",
    "_moe_C_stable_libtorch",
    "_qutlass_C",
    "_flashmla_C",
    "_flashmla_extension_C",
    "cumem_allocator",
    "vllm_flash_attn",
    "vllm_flash_attn.flash_attn_interface",
    "vllm_flash_attn.layers",
    "vllm_flash_attn.layers.rotary",
    "vllm_flash_attn.ops",
    "vllm_flash_attn.ops.triton",
    "vllm_flash_attn.ops.triton.rotary",
)
# Questions that modules of the engine ask while they are imported, with the capability as one number.
_ASKED_AT_IMPORT = (
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_group_gemm_supported",
)
_SM90 = 90


class _Unbuilt(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: False


def install(capability: tuple[int, int], name: str, memory_bytes: int, device_count: int = 8) -> None:
    """Make the engine believe in GPUs of this capability, name and total memory."""
    _replace_compiled_modules()

    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class FakeCuda(NonNvmlCudaPlatform):  # type: ignore[misc]
        @classmethod
        def get_device_capability(cls, *_: Any, **__: Any) -> Any:
            return DeviceCapability(*capability)

        @classmethod
        def get_device_name(cls, *_: Any, **__: Any) -> str:
            return name

        @classmethod
        def get_device_total_memory(cls, *_: Any, **__: Any) -> int:
            return memory_bytes

        @classmethod
        def num_compute_units(cls, *_: Any, **__: Any) -> int:
            return 132

        @classmethod
        def device_count(cls) -> int:
            return device_count

    vllm.platforms._current_platform = FakeCuda()

    from vllm.model_executor.models import registry

    # A process of its own would not have this platform.
    registry._run_in_subprocess = lambda inspect: inspect()

    import vllm.config.vllm

    # Triton counts as absent without a driver, and then Model Runner V2 is not taken.
    vllm.config.vllm.HAS_TRITON = True


def _replace_compiled_modules() -> None:
    import torch

    sys.modules.update(dict.fromkeys(("torchvision", "torchaudio", "torchcodec")))  # type: ignore[arg-type]
    for module in _COMPILED:
        unbuilt = _Unbuilt(f"vllm.{module}")
        unbuilt.__path__ = []
        sys.modules[unbuilt.__name__] = unbuilt
    for question in _ASKED_AT_IMPORT:
        setattr(torch.ops._C, question, lambda capability: capability >= _SM90)

"""How many bytes a matrix takes under a quantization: its elements, and the scales beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from servespec.compiler.memory.left_plain import NOTHING_LEFT_PLAIN, LeftPlain, left_plain
from servespec.compiler.model import Model
from servespec.units import Bytes

_EIGHT_BITS = ("fp8", "fbgemm_fp8", "ptpc_fp8", "modelopt", "modelopt_fp8")
_FOUR_BITS = ("awq", "awq_marlin", "gptq", "gptq_marlin")
_FOUR_BIT_FLOAT = 4
_DTYPE_BYTES = {"float32": 4, "float": 4}
_HALF_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Bits of an element, and of the scale of each block of rows by columns; no columns is one scale for the whole.

    ``slack`` is the share that a kernel's padding, or layers left unquantized, may add.
    """

    bits: int
    scale_bits: int = 0
    rows: int = 1
    columns: int = 0
    slack: float = 0.0

    def size_bytes(self, rows: int, columns: int) -> Bytes:
        scales = ceil(rows / self.rows) * ceil(columns / self.columns) if self.columns else 1
        return Bytes((rows * columns * self.bits + scales * self.scale_bits + 7) // 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStorage:
    """Of a model's matrices: linear layers, routed experts, and all else, which is never quantized.

    ``name`` is for a person; ``is_known`` is False for a quantization that no formula is known for.  ``left_plain``
    are modules that are not quantized.
    """

    name: str
    plain: Storage
    linear: Storage
    expert: Storage
    is_known: bool = True
    left_plain: LeftPlain = NOTHING_LEFT_PLAIN


_PACKED_EXPERTS = Storage(bits=4, scale_bits=8, columns=32, slack=0.02)
"""Source: vllm/models/deepseek_v4/quant_config.py: DeepseekV4FP8Config."""


def dtype_bytes(dtype: str | None) -> int:
    """Bytes of an element. Where none is asked for, the engine turns a float32 checkpoint into a half type.

    Source: vllm/config/model.py: _resolve_auto_dtype.
    """
    return _DTYPE_BYTES.get(str(dtype), _HALF_BYTES)


def storage_of(model: Model, dtype: str | None, quantization: str | None) -> ModelStorage:
    """The storage of a model. ``quantization`` is what the spec asks for, None for the checkpoint's own."""
    plain = Storage(bits=8 * dtype_bytes(dtype))
    section = model.traits.quantization_config or {}
    method = model.traits.quantization_method or quantization
    if method is None:
        return ModelStorage(name=f"{plain.bits} bits", plain=plain, linear=plain, expert=plain)
    if method == "mxfp4":
        padded = replace(_PACKED_EXPERTS, slack=0.15)
        return ModelStorage(name="mxfp4 experts", plain=plain, linear=plain, expert=padded)
    found = _quantized(method, section)
    if found is None:
        return ModelStorage(name=method, plain=plain, linear=plain, expert=plain, is_known=False)
    skipped = left_plain(method, section)
    if model.traits.model_type == "deepseek_v4" and model.config.get("expert_dtype", "fp4") == "fp4":
        name = f"{method}, experts in mxfp4"
        return ModelStorage(name=name, plain=plain, linear=found, expert=_PACKED_EXPERTS, left_plain=skipped)
    return ModelStorage(name=method, plain=plain, linear=found, expert=found, left_plain=skipped)


def _quantized(method: str, section: Mapping[str, Any]) -> Storage | None:
    if method in _EIGHT_BITS and not _names_four_bits(section):
        return _eight_bits(section)
    if method in _FOUR_BITS:
        bits = _integer(section, "bits", "w_bit") or 4
        group = _integer(section, "group_size", "q_group_size") or 128
        return Storage(bits=bits, scale_bits=16 + bits, columns=group, slack=0.03)
    if method in ("modelopt_fp4", "nvfp4", "modelopt"):
        return Storage(bits=4, scale_bits=8, columns=16, slack=0.05)
    if method == "compressed-tensors":
        return _compressed(section)
    return None


def _names_four_bits(section: Mapping[str, Any]) -> bool:
    """ModelOpt has one name for several algorithms, in the section itself or one below it."""
    inner = section.get("quantization")
    places = (section, inner if isinstance(inner, Mapping) else {})
    return any("fp4" in str(place.get("quant_algo", "")).lower() for place in places)


def _eight_bits(section: Mapping[str, Any]) -> Storage:
    block = section.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(isinstance(side, int) and side > 0 for side in block):
        return Storage(bits=8, scale_bits=32, rows=block[0], columns=block[1], slack=0.01)
    return Storage(bits=8, scale_bits=32, slack=0.02)


def _compressed(section: Mapping[str, Any]) -> Storage | None:
    groups = section.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    bits = _integer(weights, "num_bits") if isinstance(weights, Mapping) else None
    if bits is None or not isinstance(weights, Mapping):
        return None
    # Four-bit floats have scales in fp8.
    is_float = str(weights.get("type", "")).lower() == "float"
    scale_bits = 8 if is_float and bits == _FOUR_BIT_FLOAT else 16
    return Storage(bits=bits, scale_bits=scale_bits, columns=_integer(weights, "group_size") or 0, slack=0.03)


def _integer(section: Mapping[str, Any], *keys: str) -> int | None:
    """The first positive integer of these keys."""
    return next((value for key in keys if isinstance(value := section.get(key), int) and value > 0), None)

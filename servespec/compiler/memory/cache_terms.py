"""What the cache of every layer is made by, beside its model: types, blocks, ranks and drafts."""

from dataclasses import dataclass, replace

from servespec.compiler.memory.block_tokens import block_tokens_of
from servespec.compiler.memory.split import Split, split_of
from servespec.compiler.memory.storage import dtype_bytes
from servespec.compiler.resolve.cache_dtype import kv_cache_dtype
from servespec.compiler.resolve.request import engine_field
from servespec.compiler.resolve.resolution import Resolution
from servespec.schema.spec import ServingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTypes:
    """Types of a recurrent state as the spec asks for them; `auto` leaves them to the model."""

    conv: str = "auto"
    recurrent: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTerms:
    """``element_bytes`` is one cached element of attention, ``model_bytes`` one of the model's own type.

    ``dtype`` is the cached type by the engine's name, `auto` where nobody chose one, so that a backend may.
    ``index_type`` is that of a sparse index; ``keeps_prefixes`` says that prefixes are cached, for which states are
    kept at block boundaries.  ``context_tokens`` is the longest context.
    """

    split: Split
    element_bytes: int
    model_bytes: int
    block_tokens: int
    context_tokens: int
    drafts: int = 0
    dtype: str = "auto"
    index_type: str = "auto"
    backend: str = ""
    compute_capability: tuple[int, int] = (9, 0)
    keeps_prefixes: bool = True
    states: StateTypes = StateTypes()

    def with_split(self, split: Split) -> "CacheTerms":
        return replace(self, split=split)

    def with_dtype(self, dtype: str, spec: ServingSpec) -> "CacheTerms | str":
        """The same with another cached type, or why what it takes is not known."""
        element_bytes = _element_bytes(dtype, spec)
        if element_bytes is None:
            return f"no formula is known for the cache type `{dtype}`"
        return replace(self, dtype=dtype, element_bytes=element_bytes)

    def with_block(self, block_tokens: int) -> "CacheTerms":
        return replace(self, block_tokens=block_tokens)


def terms_of(resolution: Resolution, context_tokens: int) -> CacheTerms | str:
    """The terms of a resolved spec, or why they cannot be told."""
    spec, dtype = resolution.request.spec, kv_cache_dtype(resolution.request)
    element_bytes, block_tokens = _element_bytes(dtype, spec), block_tokens_of(resolution)
    if element_bytes is None:
        return f"no formula is known for the cache type `{dtype}`"
    if isinstance(block_tokens, str):
        return block_tokens
    if engine_field(spec, "memory", "kv_cache_dtype_skip_layers", None):
        return "no formula is known for a cache of several types"
    if engine_field(spec, "memory", "use_replayssm", False):
        return "no formula is known for the buffers of ReplaySSM"
    return CacheTerms(
        split=split_of(spec),
        element_bytes=element_bytes,
        model_bytes=dtype_bytes(spec.model.dtype),
        dtype=dtype,
        block_tokens=block_tokens,
        context_tokens=context_tokens,
        drafts=resolution.frame.num_speculative_tokens,
        index_type=str(engine_field(spec, "attention", "indexer_kv_dtype", "auto")),
        backend=_backend(resolution),
        compute_capability=resolution.device.compute_capability,
        keeps_prefixes=engine_field(spec, "memory", "enable_prefix_caching", None) is not False,
        states=StateTypes(
            conv=str(engine_field(spec, "memory", "mamba_cache_dtype", "auto")),
            recurrent=str(engine_field(spec, "memory", "mamba_ssm_cache_dtype", "auto")),
        ),
    )


def _backend(resolution: Resolution) -> str:
    """The backend that decides blocks; one that is asked for stays where its support is not known."""
    asked = resolution.request.spec.attention.backend or ""
    return resolution.candidates[0].backend if resolution.candidates else asked


def _element_bytes(dtype: str, spec: ServingSpec) -> int | None:
    """Bytes of one cached element; None for packed types."""
    if dtype == "auto":
        return dtype_bytes(spec.model.dtype)
    if dtype in ("bfloat16", "float16", "half"):
        return 2
    return 1 if dtype in ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "fp8_inc") else None

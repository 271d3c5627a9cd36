"""The size of a KV block, and what a sparse backend makes of a cached type, against the engine's own choice."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.memory.block_tokens import BackendBlocks, shared_block_tokens
from servespec.compiler.memory.cache_terms import CacheTerms
from servespec.compiler.memory.kv_layers import packs_scales
from servespec.compiler.memory.split import Split
from tests.differential import engine_oracle as oracle
from tests.differential.lifting import EngineText

ROOTS = oracle.available_roots()
roots = pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)

BACKENDS = st.builds(
    BackendBlocks,
    sizes=st.lists(st.sampled_from([1, 8, 16, 32, 48, 64, 128, 256]), max_size=3, unique=True).map(tuple),
    is_exact=st.booleans(),
)


def engines_choice(root: Path, backends: list[BackendBlocks]) -> int | None:
    """None where the engine refuses."""
    text = EngineText(root, {"vllm.config.vllm:set_current_vllm_config": lambda _: nullcontext()})
    platform = text.part_of_class("vllm.platforms.interface:Platform", ["_preferred_block_size_for_backends"])
    base = text.part_of_class(
        "vllm.v1.attention.backend:AttentionBackend", ["supports_block_size", "get_preferred_block_size"]
    )
    multiple = text.get("vllm.v1.attention.backend:MultipleOf")

    def stand_in(backend: BackendBlocks) -> Any:
        sizes = [size if backend.is_exact else multiple(size) for size in backend.sizes]
        members: dict[str, Any] = {
            "get_supported_kernel_block_sizes": staticmethod(lambda: sizes),
            "get_name": staticmethod(lambda: "BACKEND"),
        }
        if backend.is_exact:
            members["supports_block_size"] = classmethod(lambda _, block: backend.takes(block))
        return type("Backend", (base,), members)

    try:
        chosen = platform._preferred_block_size_for_backends(list(map(stand_in, backends)), 16, None)
    except ValueError:
        return None
    return int(chosen)


@roots
@given(backends=st.lists(BACKENDS, min_size=1, max_size=3))
def test_a_block_that_all_backends_take(root: Path, backends: list[BackendBlocks]) -> None:
    assert shared_block_tokens(tuple(backends)) == engines_choice(root, backends)


@roots
def test_what_the_engine_refuses_is_told(root: Path) -> None:
    apart = [BackendBlocks((32,), is_exact=True), BackendBlocks((128,), is_exact=True)]

    assert (engines_choice(root, apart), shared_block_tokens(tuple(apart))) == (None, None)


LATENT = "vllm.model_executor.layers.attention.mla_attention"


@pytest.mark.parametrize("backend", ["FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120"])
@pytest.mark.parametrize("dtype", ["auto", "fp8", "fp8_e4m3", "fp8_ds_mla"])
@roots
def test_the_types_that_sparse_backends_pack(root: Path, backend: str, dtype: str) -> None:
    """Ours are what `fp8_ds_mla` is in the engine: a row of 656 bytes."""
    quantized: Any = lambda name: name not in ("auto", "float16", "bfloat16")  # noqa: E731
    text = EngineText(root, {f"{LATENT}:is_quantized_kv_cache": quantized})
    canonical = text.get(f"{LATENT}:_canonicalize_sparse_mla_kv_cache_dtype")
    named = SimpleNamespace(get_name=lambda: backend)
    terms = CacheTerms(
        split=Split(), element_bytes=1, model_bytes=2, block_tokens=64, context_tokens=1, dtype=dtype, backend=backend
    )

    assert packs_scales(terms) == (canonical(named, dtype) == "fp8_ds_mla")

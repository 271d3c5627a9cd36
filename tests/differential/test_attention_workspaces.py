"""FlashInfer's workspaces, against the engine's own code that allocates them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts import attention_workspaces as facts
from servespec.compiler.memory.attention_workspaces import paged_workspace_bytes, sparse_workspace_bytes
from servespec.units import Bytes, Tokens
from tests.differential import engine_oracle as oracle
from tests.differential.lifting import EngineText

ROOTS = oracle.available_roots()
pytestmark = pytest.mark.skipif(not ROOTS, reason="no engine under .engines")
roots = pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)

BACKENDS = "vllm.v1.attention.backends"
SIZES = st.integers(1, 1 << 15)
HEADS = st.integers(1, 128)


class Allocated(int):
    def nbytes(self) -> int:
        return int(self)

    numel = nbytes


def engine(root: Any, *, configured: int | None, is_batch_invariant: bool = False) -> EngineText:
    """Its text, in which an allocation is a number of bytes."""

    def allocate(size: int, **_: object) -> Allocated:
        return Allocated(size)

    torch = SimpleNamespace(zeros=allocate, uint8="uint8", int8="int8", Tensor=object, device=str)
    envs = SimpleNamespace(
        VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE=facts.WORKSPACE.value if configured is None else configured,
        VLLM_BATCH_INVARIANT=is_batch_invariant,
        is_set=lambda _: configured is not None,
    )
    quiet = SimpleNamespace(warning_once=lambda *_: None)
    modules: dict[str, Any] = {"torch": torch, "vllm.envs": envs}
    names = {f"{BACKENDS}.mla.flashinfer_mla_sparse:logger": quiet}
    return EngineText(root, {**modules, **names})


@roots
@given(tokens=SIZES, heads=HEADS, head_size=st.sampled_from([64, 80, 128, 256, 512]), extra=st.data())
def test_a_builders_workspace(root: Any, tokens: int, heads: int, head_size: int, extra: st.DataObject) -> None:
    configured = extra.draw(st.none() | st.integers(1, 4 << 30))
    is_batch_invariant = extra.draw(st.booleans())
    text = engine(root, configured=configured, is_batch_invariant=is_batch_invariant)
    part = text.part_of_class(f"{BACKENDS}.flashinfer:FlashInferMetadataBuilder", ["_get_workspace_buffer"])
    builder = part.__new__(part)
    builder._workspace_buffer, builder.device = None, "cuda"
    builder.max_num_batched_tokens, builder.num_qo_heads, builder.head_dim = tokens, heads, head_size

    assert builder._get_workspace_buffer() == paged_workspace_bytes(
        tokens=Tokens(tokens),
        heads=heads,
        head_size=head_size,
        configured=facts.WORKSPACE.value if configured is None else Bytes(configured),
        is_batch_invariant=is_batch_invariant,
    )


@roots
@given(tokens=SIZES, heads=HEADS, ranks=st.integers(1, 16), configured=st.none() | st.integers(1, 4 << 30))
def test_a_sparse_builders_workspace(root: Any, tokens: int, heads: int, ranks: int, configured: int | None) -> None:
    required: Callable[..., int] = engine(root, configured=configured).get(
        f"{BACKENDS}.mla.flashinfer_mla_sparse:_required_workspace_bytes"
    )

    assert required(ranks, heads, tokens) == sparse_workspace_bytes(
        ranks=ranks, heads=heads, tokens=Tokens(tokens), configured=None if configured is None else Bytes(configured)
    )


@roots
@pytest.mark.parametrize(("divided", "size"), [(False, facts.MLA_WORKSPACE), (True, facts.MLA_LSE_WORKSPACE)])
def test_a_latent_kernels_workspace(root: Any, divided: bool, size: Any) -> None:
    text = engine(root, configured=None)

    assert text.get(f"{BACKENDS}.mla.flashinfer_mla:_get_workspace_buffer")(divided) == size.value


@roots
def test_the_kernels_workspace_of_every_process_is_as_configured(root: Any) -> None:
    text = engine(root, configured=123)

    assert text.get(f"{BACKENDS}.flashinfer:_get_trtllm_workspace_buffer")() == 123
    assert text.get(f"{BACKENDS}.mla.flashinfer_mla_sparse:_get_workspace_buffer")("cuda") == 123

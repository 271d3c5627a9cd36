"""Workspaces of FlashInfer's attention kernels: allocated once, as large whatever the step.

Builders of attention metadata make theirs with the KV cache, after the engine has sized it, so that no budget holds
them.  Kernels make theirs at the first step that runs attention.  The profile run skips attention; where FULL graphs
are profiled, their first run makes it, and the engine takes it for memory of graphs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from servespec.compiler.facts import attention_workspaces as facts
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.memory.stage import Stage
from servespec.compiler.resolve.attention import Candidate
from servespec.compiler.resolve.attention_needs import AttentionQuestion, uses_trtllm
from servespec.compiler.resolve.request import turns_on, variable_count
from servespec.compiler.resolve.resolution import Resolution
from servespec.provenance import Basis
from servespec.units import Bytes, Tokens

_PAGED = ("FLASHINFER", "TRITON_FLASHINFER")
_SPARSE = ("FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120")
_SPLIT_SOFTMAX = ("FLASHINFER_MLA_SPARSE",)
"""Backends that hand sums of the softmax to the other ranks of decode context parallelism."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """Of the target or its drafter; ``is_certain`` is False where the engine may end with another backend.

    The target's is what the plan assumes: a launch names it.
    """

    holder: Holder
    backend: str
    is_certain: bool
    question: AttentionQuestion


def workspace_lines(resolution: Resolution, stage: Stage) -> Iterator[MemoryLine]:
    found = tuple(_attentions(resolution, stage))
    for attention in found:
        yield from _of_builder(resolution, attention)
    # A kernel's buffer is one of the process, whoever asks first.
    by_kernel = {line.owner: line for attention in reversed(found) for line in _of_kernel(resolution, attention)}
    yield from by_kernel.values()


def paged_workspace_bytes(
    *, tokens: Tokens, heads: int, head_size: int, configured: Bytes, is_batch_invariant: bool
) -> Bytes:
    """Source: vllm/v1/attention/backends/flashinfer.py: FlashInferMetadataBuilder._get_workspace_buffer."""
    if is_batch_invariant:
        return facts.BATCH_INVARIANT_WORKSPACE.value
    return Bytes(max(configured, tokens * heads * head_size * facts.PREFILL_ELEMENT.value))


def sparse_workspace_bytes(*, ranks: int, heads: int, tokens: Tokens, configured: Bytes | None) -> Bytes:
    """``ranks`` are those of decode context parallelism, ``heads`` those of one of them.

    Source: vllm/v1/attention/backends/mla/flashinfer_mla_sparse.py: _required_workspace_bytes.
    """
    if configured is not None:
        return configured
    if ranks <= 1:
        return facts.WORKSPACE.value
    statistics = facts.SOFTMAX_STATISTIC.value * heads * ranks * tokens * facts.SOFTMAX_SLOTS.value
    return Bytes(facts.WORKSPACE.value + statistics + facts.SOFTMAX_GUARD.value)


def _attentions(resolution: Resolution, stage: Stage) -> Iterator[_Attention]:
    yield from _attention(Holder.TARGET, resolution.question, resolution.candidates)
    if stage.is_last and resolution.drafting.kind not in (DrafterKind.NONE, DrafterKind.EAGER):
        draft = resolution.draft_attention
        yield from _attention(Holder.DRAFTER, draft.question, draft.candidates)


def _attention(
    holder: Holder, question: AttentionQuestion | None, candidates: tuple[Candidate, ...]
) -> Iterator[_Attention]:
    if question is not None and candidates:
        backend, is_pinned = candidates[0].backend, holder is Holder.TARGET
        is_certain = is_pinned or all(candidate.backend == backend for candidate in candidates)
        yield _Attention(holder, backend, is_certain, question)


def _of_builder(resolution: Resolution, attention: _Attention) -> Iterator[MemoryLine]:
    needs, tokens = attention.question.needs, resolution.frame.max_num_batched_tokens
    heads, ranks = needs.num_heads_per_rank, needs.decode_context_parallel_size
    if heads is None:
        return
    if attention.backend in _PAGED:
        size = paged_workspace_bytes(
            tokens=tokens,
            heads=heads,
            head_size=needs.head_size,
            configured=_configured(resolution) or facts.WORKSPACE.value,
            is_batch_invariant=turns_on(resolution.request.spec, facts.BATCH_INVARIANT_VARIABLE),
        )
    elif attention.backend in _SPLIT_SOFTMAX and ranks > 1 and attention.holder is Holder.TARGET:
        size = sparse_workspace_bytes(ranks=ranks, heads=heads, tokens=tokens, configured=_configured(resolution))
    else:
        return
    yield _line(
        f"{attention.backend} workspace, made with the KV cache",
        attention,
        size,
        f"for {tokens} tokens of {heads} heads x {needs.head_size}, or as configured",
        is_sure=attention.is_certain,
        is_budgeted=False,
    )


def _of_kernel(resolution: Resolution, attention: _Attention) -> Iterator[MemoryLine]:
    size = _kernel_bytes(resolution, attention)
    if size is None:
        return
    is_counted = _has_full_graphs(resolution) and resolution.request.spec.memory.estimate_cudagraph_memory is not False
    is_known = attention.backend not in _PAGED or uses_trtllm(attention.question) is True
    counted = ", which the engine counts among its graphs" if is_counted else ""
    yield _line(
        f"{attention.backend} kernels' workspace",
        attention,
        size,
        f"made by the first step that runs attention{counted}",
        is_sure=attention.is_certain and is_known,
        is_budgeted=is_counted,
    )


def _kernel_bytes(resolution: Resolution, attention: _Attention) -> Bytes | None:
    """None where the backend's kernels have none of their own, or their builder has made it."""
    configured = _configured(resolution) or facts.WORKSPACE.value
    is_divided = attention.question.needs.decode_context_parallel_size > 1
    if attention.backend in _PAGED:
        return None if uses_trtllm(attention.question) is False else configured
    if attention.backend == "FLASHINFER_MLA":
        return facts.MLA_LSE_WORKSPACE.value if is_divided else facts.MLA_WORKSPACE.value
    if attention.backend in _SPARSE and not (is_divided and attention.backend in _SPLIT_SOFTMAX):
        return configured
    return None


def _has_full_graphs(resolution: Resolution) -> bool:
    mode = resolution.frame.mode
    return CudaGraphMode.FULL in (mode.decode_mode(), mode.mixed_mode())


def _line(
    owner: str, attention: _Attention, size: Bytes, because: str, *, is_sure: bool, is_budgeted: bool
) -> MemoryLine:
    """A workspace has its size, or is not there where another backend or kernel is taken."""
    return MemoryLine(
        owner=owner,
        holder=attention.holder,
        part=Part.OTHER,
        size=size,
        low=size if is_sure else Bytes(0),
        high=size,
        basis=Basis.EXACT if is_sure else Basis.BOUND,
        because=because,
        is_budgeted=is_budgeted,
    )


def _configured(resolution: Resolution) -> Bytes | None:
    written = variable_count(resolution.request.spec, facts.WORKSPACE_VARIABLE)
    return None if written is None else Bytes(written)

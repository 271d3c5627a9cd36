"""Which attention backend the engine would choose, and which graphs it can be captured in.

Sources: vllm/platforms/cuda.py (_get_backend_priorities, CudaPlatformBase.get_attn_backend_cls) and the
metadata builders' get_cudagraph_support under vllm/v1/attention/backends.

What depends on the machine (is FlashInfer there, can it get its kernels) may be unknown before launch; the
answer is then more than one candidate, in the engine's order, each with the condition under which it holds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from servespec.compiler.facts.attention_backends import (
    ALWAYS,
    FLASHINFER_FILE,
    NEVER,
    SINGLE_TOKEN,
    UNIFORM_BATCH,
    BackendFacts,
)
from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport
from servespec.compiler.facts.devices import is_cpu, is_sm100
from servespec.compiler.resolve.attention_checks import invalid_reasons
from servespec.compiler.resolve.attention_needs import (
    AttentionQuestion,
    flash_attention_version,
    is_quantized,
    is_xqa,
    uses_trtllm,
)
from servespec.compiler.resolve.step import Refusal
from servespec.provenance import Origin, Resolved

BACKEND = "attention.backend"
ADAPTIVE = "speculative.enable_adaptive_verification"

_SELECTOR = "vllm/platforms/cuda.py: CudaPlatformBase.get_attn_backend_cls"
_FLASHINFER_SUPPORT = f"{FLASHINFER_FILE}: FlashInferMetadataBuilder.get_cudagraph_support"
_COMPOSITE_SUPPORT = "vllm/v1/attention/backends/composite.py: MMPrefixAttentionRouting.get_cudagraph_support"
_VARLEN = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A backend the engine may end with; ``condition`` is empty where nothing is left open.

    ``cg_support`` is the backend's own; :func:`least_support` adds the model's other attention groups.
    ``updates_in_place``: one graph may hold the whole loop of later draft steps.  ``replays_varlen``: its full
    graphs replay the trimmed batches of adaptive verification.
    """

    backend: str
    cg_support: AttentionCgSupport
    updates_in_place: bool
    replays_varlen: bool
    condition: str
    because: str
    source: str


def attention_candidates(q: AttentionQuestion) -> tuple[Candidate, ...]:
    """The backends the engine would take by itself, first the one it prefers; empty: it would refuse."""
    own = _model_driven(q)
    if own:
        return own
    found: list[Candidate] = []
    for name in backend_priorities(q):
        outcome = _outcome(name, q)
        found.extend(outcome.candidates)
        if outcome.is_certain:
            break
    return tuple(found)


def no_backend(q: AttentionQuestion) -> tuple[Refusal, ...]:
    """Why the engine would refuse, where each backend lacks something; one that may be there is no reason to.

    The place is what the spec says and the nearest backends all lack.
    """
    lacking = {name: _lacking(name, q) for name in backend_priorities(q)}
    if any(reasons is None for reasons in lacking.values()):
        return ()
    by_reasons: dict[tuple[str, ...], list[str]] = {}
    for name, reasons in lacking.items():
        by_reasons.setdefault(reasons or (), []).append(name)
    nearest = _nearest([reasons for reasons in by_reasons if reasons])
    fields = {_field_of(reasons) for reasons in nearest}
    listed = "; ".join(f"no {', no '.join(reasons)} in {_named(by_reasons[reasons])}" for reasons in nearest)
    message = f"no attention backend of vLLM {q.version} takes this model and spec on this device: {listed}"
    field = fields.pop() if len(fields) == 1 else BACKEND
    return (Refusal(field, message, _SELECTOR, help="" if field == BACKEND else "delete it"),)


def _named(backends: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in backends)


def _nearest(lists: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """What those lack that lack only what the spec says, else what those lack that lack least."""
    told = [reasons for reasons in lists if _field_of(reasons) != BACKEND]
    fewest = min(map(len, lists), default=0)
    return told or [reasons for reasons in lists if len(reasons) == fewest]


def _lacking(name: str, q: AttentionQuestion) -> tuple[str, ...] | None:
    """Empty where the backend is not installed alone; None where it may be taken, or is not known."""
    sourced = q.facts.backends.get(name)
    if sourced is None:
        return None
    reasons = tuple(invalid_reasons(sourced.value, q))
    return reasons if reasons or q.kernels.has(sourced.value.package) is False else None


def _field_of(reasons: tuple[str, ...]) -> str:
    """The field of the spec that a lone reason is about."""
    starts = {"block size ": "memory.block_size", "KV cache dtype ": "memory.kv_cache_dtype", "dtype ": "model.dtype"}
    found = [field for start, field in starts.items() if reasons[0].startswith(start)]
    return found[0] if len(reasons) == 1 and found else BACKEND


_ANOTHER_BACKEND = "write `auto`, or another backend"


def named_backend(name: str, q: AttentionQuestion) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """A backend that the spec names: what it can be captured in, and why the engine would refuse it.

    A name of the engine without a row in our table gives neither; the caller reports that as unknown.
    """
    if name not in q.facts.names.value:
        because = f"`{name}` is no attention backend of vLLM {q.version}"
        return (), (Refusal(BACKEND, because, _SELECTOR, help=_ANOTHER_BACKEND),)
    if name not in q.facts.backends:
        return (), ()
    reasons = tuple(invalid_reasons(q.facts.backends[name].value, q))
    if reasons:
        because = f"`{name}` does not support {', '.join(reasons)}"
        return (), (Refusal(BACKEND, because, _SELECTOR, help=_ANOTHER_BACKEND),)
    return _outcome(name, q).candidates, ()


def backend_priorities(q: AttentionQuestion) -> tuple[str, ...]:
    """The engine's order of trial for a device and what a model asks for."""
    if is_cpu(q.device):
        return ("CPU_ATTN",)
    if q.needs.use_mla:
        return _latent_priorities(q)
    major = q.device.compute_capability[0]
    fallbacks = ("TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")
    if major == 10 and not q.needs.is_non_causal:
        composite = ("TRITON_FLASHINFER",) if q.needs.is_mm_prefix else ()
        return (*composite, "FLASHINFER", "FLASH_ATTN", *fallbacks)
    composite = ("TRITON_FLASH_ATTN",) if major == 9 and q.needs.is_mm_prefix else ()
    return (*composite, "FLASH_ATTN", "FLASHINFER", *fallbacks)


def _latent_priorities(q: AttentionQuestion) -> tuple[str, ...]:
    if is_sm100(q.device):
        tuned = ("FLASHINFER_MLA", "TOKENSPEED_MLA", "CUTLASS_MLA")
        return (*tuned, "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA", *_blackwell_sparse(q))
    if q.device.compute_capability[0] == 12:
        return ("TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120")
    dense = ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA")
    sparse = ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE")
    flashinfer = ("FLASHINFER_MLA_SPARSE_SM90",)
    ordered = (*flashinfer, *sparse) if q.needs.head_size == 512 else (*sparse, *flashinfer)
    return (*dense, *ordered)


def _blackwell_sparse(q: AttentionQuestion) -> tuple[str, ...]:
    if is_quantized(q.needs.kv_cache_dtype):
        return ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE")
    heads = q.needs.num_heads_per_rank
    if heads is None or heads > q.facts.low_head_count.value:
        return ("FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE")
    first = ("FLASH_ATTN_MLA_SPARSE_FA4",) if q.facts.sparse_fa4_first.value else ()
    return (*first, "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE")


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What becomes of one backend: nothing, itself for certain, or itself under conditions."""

    candidates: tuple[Candidate, ...] = ()
    is_certain: bool = False


def _model_driven(q: AttentionQuestion) -> tuple[Candidate, ...]:
    own = q.facts.model_backends
    return tuple(
        _plain(own[name].value, "", f"{own[name].path}: {own[name].value.name}", q)
        for name in q.needs.architectures
        if name in own
    )[:1]


def _outcome(name: str, q: AttentionQuestion) -> _Outcome:
    sourced = q.facts.backends.get(name)
    if sourced is None:
        return _Outcome()
    facts, there = sourced.value, q.kernels.has(sourced.value.package)
    if there is False or any(invalid_reasons(facts, q)):
        return _Outcome()
    condition = "" if there else f"if {facts.package} is installed"
    if name == "FLASHINFER":
        return _flashinfer(facts, condition, q)
    if facts.causal_half is not None:
        return _composite(facts, condition, q)
    return _Outcome((_plain(facts, condition, f"{sourced.path}: {name}", q),), is_certain=not condition)


def _plain(facts: BackendFacts, condition: str, source: str, q: AttentionQuestion) -> Candidate:
    support, because = _support(facts, q)
    return Candidate(
        backend=facts.name,
        cg_support=support,
        updates_in_place=_updates_in_place(facts, q),
        replays_varlen=facts.replays_varlen or support is ALWAYS,
        condition=condition,
        because=because,
        source=source,
    )


def _updates_in_place(facts: BackendFacts, q: AttentionQuestion) -> bool:
    if facts.name == "TRITON_ATTN":
        return facts.updates_in_place
    barred = q.needs.decode_context_parallel_size > 1
    if facts.is_sparse and facts.package == "flashinfer":
        barred = barred or q.needs.prefill_context_parallel_size > 1 or q.needs.has_hisparse
    return facts.updates_in_place and not barred


def _support(facts: BackendFacts, q: AttentionQuestion) -> tuple[AttentionCgSupport, str]:
    if facts.name == "FLASH_ATTN":
        used = flash_attention_version(q, for_head=False)
        whole = used in q.facts.full_graph_flash_attention.value
        return (ALWAYS if whole else UNIFORM_BATCH), f"FlashAttention {used} on this GPU"
    if facts.needs_drafts_for_batches and q.needs.query_len_tokens_per_request == 1:
        return SINGLE_TOKEN, "without drafts it captures one token a request"
    return facts.support, "the backend's own statement"


def _flashinfer(facts: BackendFacts, condition: str, q: AttentionQuestion) -> _Outcome:
    usable = uses_trtllm(q)
    needs_kernels = q.kernels.trtllm is None and _needs_trtllm(q)
    cases = (True,) if needs_kernels and usable is None else (True, False) if usable is None else (usable,)
    found = tuple(_flashinfer_case(facts, _joined(condition, usable, case), case, q) for case in cases)
    return _Outcome(_merged(found, condition), is_certain=not condition and not needs_kernels)


def _needs_trtllm(q: AttentionQuestion) -> bool:
    """Settings with which FlashInfer is a candidate only where it has the TensorRT-LLM kernels."""
    packed = is_sm100(q.device) and q.needs.kv_cache_dtype.startswith("nvfp4")
    return packed or q.needs.has_sink or q.needs.enable_adaptive_verification


def _joined(condition: str, usable: bool | None, case: bool) -> str:
    if usable is not None:
        return condition
    kernels = "with its TensorRT-LLM kernels" if case else "without its TensorRT-LLM kernels"
    return f"{condition or 'if flashinfer runs'} {kernels}"


def _merged(found: tuple[Candidate, ...], condition: str) -> tuple[Candidate, ...]:
    """One candidate where the open question makes no difference."""
    plain = {replace(candidate, condition=condition, because="") for candidate in found}
    if len(found) == 1 or len(plain) > 1:
        return found
    return (replace(found[0], condition=condition),)


def _flashinfer_case(facts: BackendFacts, condition: str, trtllm: bool, q: AttentionQuestion) -> Candidate:
    support, because = _flashinfer_support(trtllm, q)
    generated = trtllm and is_sm100(q.device) and q.needs.decode_context_parallel_size == 1
    return Candidate(
        backend=facts.name,
        cg_support=support,
        updates_in_place=generated,
        replays_varlen=generated and support is UNIFORM_BATCH,
        condition=condition,
        because=because,
        source=_FLASHINFER_SUPPORT,
    )


def _flashinfer_support(trtllm: bool, q: AttentionQuestion) -> tuple[AttentionCgSupport, str]:
    if q.needs.decode_context_parallel_size > 1:
        return SINGLE_TOKEN, "decode context parallelism"
    if q.device.compute_capability < (9, 0) and q.facts.flashinfer_native_decode_takes_drafts.value:
        if q.needs.is_non_causal:
            return SINGLE_TOKEN, "its native decode is causal"
        return UNIFORM_BATCH, "its native decode takes uniform draft batches"
    if not trtllm or not _xqa_takes(q):
        return SINGLE_TOKEN, "its native decode takes one token a request"
    if q.needs.is_non_causal and not is_xqa(q.device):
        return SINGLE_TOKEN, "its TensorRT-LLM decode is causal"
    return UNIFORM_BATCH, "its TensorRT-LLM or XQA decode takes uniform draft batches"


def _xqa_takes(q: AttentionQuestion) -> bool:
    if not is_xqa(q.device):
        return True
    fits = 16 <= q.needs.head_size <= 256 and q.needs.head_size % 16 == 0
    packed = q.needs.kv_cache_dtype.startswith("nvfp4") and q.device.compute_capability[0] != 12
    return fits and not packed


def _composite(facts: BackendFacts, condition: str, q: AttentionQuestion) -> _Outcome:
    """Triton for image tokens and a causal backend for the rest."""
    causal = replace(q, needs=replace(q.needs, is_mm_prefix=False))
    halves = ((facts.causal_half or "", causal), ("TRITON_ATTN", q))
    if any(any(invalid_reasons(q.facts.backends[name].value, half)) for name, half in halves):
        return _Outcome()
    if facts.causal_half == "FLASH_ATTN" and flash_attention_version(causal, for_head=True) not in (3, 4):
        return _Outcome()
    cases = tuple(_composite_case(facts, *case) for case in _window_cases(condition, q))
    return _Outcome(cases, is_certain=not condition)


def _window_cases(condition: str, q: AttentionQuestion) -> Iterator[tuple[str, AttentionCgSupport]]:
    if not q.needs.has_sliding_window:
        yield condition, SINGLE_TOKEN
        return
    prefix = f"{condition} and " if condition else "if "
    yield f"{prefix}its windows end at image tokens", SINGLE_TOKEN
    yield f"{prefix}its windows do not end at image tokens", NEVER


def _composite_case(facts: BackendFacts, condition: str, support: AttentionCgSupport) -> Candidate:
    return Candidate(
        backend=facts.name,
        cg_support=support,
        updates_in_place=False,
        replays_varlen=False,
        condition=condition,
        because="image and text batches take different kernels",
        source=_COMPOSITE_SUPPORT,
    )


def indexer_support(q: AttentionQuestion) -> Resolved[AttentionCgSupport]:
    """The graph support of the index layers of DeepSeek sparse attention.

    Source: vllm/v1/attention/backends/mla/indexer.py, DeepseekV32IndexerMetadataBuilder.
    """
    if is_sm100(q.device) and q.kernels.deep_gemm:
        return Resolved(ALWAYS, Origin.DERIVED, "the kernel takes requests of any length")
    if _flattens(q):
        return Resolved(ALWAYS, Origin.DERIVED, "every query token is a row of its own")
    return Resolved(UNIFORM_BATCH, Origin.DERIVED, "the kernel takes whole requests of one length")


def _flattens(q: AttentionQuestion) -> bool:
    native = q.facts.indexer_native_lengths.value if _is_deep_hopper(q) else (1, 2)
    trimmed = q.needs.enable_adaptive_verification and _is_deep_hopper(q)
    return q.needs.query_len_tokens_per_request not in native or trimmed


def _is_deep_hopper(q: AttentionQuestion) -> bool:
    return q.device.compute_capability[0] == 9 and q.kernels.deep_gemm


def least_support(candidate: Candidate, q: AttentionQuestion) -> tuple[AttentionCgSupport, str]:
    """The least of all a model's attention groups, and the backend it belongs to.

    Source: vllm/v1/worker/gpu/attn_utils.py, get_attn_cg_support.
    """
    groups = [(candidate.cg_support, candidate.backend)]
    if _has_indexer(q):
        groups.append((indexer_support(q).value, "DEEPSEEK_V32_INDEXER"))
    states = q.facts.state_backends
    groups.extend((states[name].value.support, name) for name in q.needs.state_backends)
    return min(groups, key=lambda group: group[0])


def _has_indexer(q: AttentionQuestion) -> bool:
    return q.needs.use_mla and q.needs.use_sparse


def all_update_in_place(draft_candidates: Iterable[Candidate], draft: AttentionQuestion) -> bool:
    """Whether every draft group refreshes its metadata inside the graph, so that one graph holds K - 1 steps.

    A draft head has no recurrent layers, whatever its target has.
    Source: vllm/v1/worker/gpu/spec_decode/speculator.py, _configure_decode_metadata_update.
    """
    index_layers = not _has_indexer(draft) or draft.needs.decode_context_parallel_size == 1
    return index_layers and all(candidate.updates_in_place for candidate in draft_candidates)


def adaptive_verification_refusals(candidate: Candidate, q: AttentionQuestion) -> tuple[Refusal, ...]:
    """Groups that cannot run or replay the trimmed batches of adaptive verification.

    Source: vllm/v1/worker/gpu/spec_decode/adaptive_verification.py.
    """
    stuck = [] if candidate.replays_varlen else [candidate.backend]
    if _has_indexer(q) and not _indexer_trims(q):
        stuck.append("DEEPSEEK_V32_INDEXER")
    states = q.facts.state_backends
    stuck.extend(name for name in q.needs.state_backends if not _state_trims(states[name].value))
    because = "`{}` cannot replay batches trimmed on the GPU"
    help_text = "delete it, or name another `attention.backend`"
    return tuple(Refusal(ADAPTIVE, because.format(name), _VARLEN, help=help_text) for name in stuck)


def _indexer_trims(q: AttentionQuestion) -> bool:
    return q.kernels.deep_gemm and (is_sm100(q.device) or _is_deep_hopper(q))


def _state_trims(facts: BackendFacts) -> bool:
    return facts.trims_on_device and (facts.replays_varlen or facts.support is ALWAYS)

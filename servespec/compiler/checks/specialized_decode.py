"""`decode_backend: latency_specialized`: what the engine's executor for few requests needs, before it ends over it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable
from servespec.compiler.facts import specialized_decode as facts
from servespec.compiler.facts.attention_workspaces import BATCH_INVARIANT_VARIABLE
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import is_sm100
from servespec.compiler.graphs.shape import Routine
from servespec.compiler.lower import is_additional_config
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.compiler.resolve.request import engine_field, turns_on, uses_microbatches, verifies_adaptively
from servespec.compiler.resolve.resolution import Resolution
from servespec.diagnostics import Diagnostic, Place


@dataclass(frozen=True, slots=True)
class Need:
    """``words`` follow `it needs`; ``holds`` looks at what was resolved."""

    words: str
    holds: Callable[[Resolution], bool]


def _parallel(resolution: Resolution, name: str) -> int:
    return int(engine_field(resolution.request.spec, "parallel", name, 1) or 1)


def _is_undivided(resolution: Resolution) -> bool:
    """Neither pipeline stages, nor experts over ranks, nor microbatches."""
    parallel = resolution.request.spec.parallel
    is_one_stage = parallel.pipeline_parallel_size == 1 and not parallel.enable_expert_parallel
    return is_one_stage and not uses_microbatches(resolution.request.spec)


def _has_full_decode(resolution: Resolution) -> bool:
    return resolution.frame.mode.decode_mode() is CudaGraphMode.FULL


def _is_not_traced(resolution: Resolution) -> bool:
    return engine_field(resolution.request.spec, "compilation", "mode", None) not in ("STOCK_TORCH_COMPILE", 1)


def _stays_awake(resolution: Resolution) -> bool:
    return not engine_field(resolution.request.spec, "model", "enable_sleep_mode", False)


def _drafts_by_dspark(resolution: Resolution) -> bool:
    method = resolution.drafting.method.value
    return method == facts.DRAFTING_METHOD.value and not verifies_adaptively(resolution.request.spec)


def _has_deepseek_attention(resolution: Resolution) -> bool:
    spec = resolution.request.spec
    return (
        spec.attention.backend == facts.DEEPSEEK_BACKEND.value
        and spec.memory.kv_cache_dtype in facts.DEEPSEEK_CACHE_TYPES.value
        and engine_field(spec, "attention", "indexer_kv_dtype", "auto") == facts.DEEPSEEK_INDEXER_TYPE.value
        and bool(engine_field(spec, "attention", "indexer_sparse_logits", False))
    )


_COMMON = (
    Need("Model Runner V2", lambda one: one.runner is ModelRunner.V2),
    Need("a model that torch.compile does not trace", _is_not_traced),
    Need("no sleep mode", _stays_awake),
)

_DEEPSEEK_NEEDS = (
    Need(
        "a GPU of compute capability 10.3", lambda one: one.device.compute_capability == facts.DEEPSEEK_CAPABILITY.value
    ),
    Need(
        f"{facts.DEEPSEEK_RANKS.value} tensor-parallel ranks and no other parallelism",
        lambda one: (
            one.request.spec.parallel.tensor_parallel_size == facts.DEEPSEEK_RANKS.value
            and one.request.spec.parallel.data_parallel_size == 1
            and _parallel(one, "decode_context_parallel_size") == 1
            and _parallel(one, "prefill_context_parallel_size") == 1
            and _is_undivided(one)
        ),
    ),
    Need("DSpark without adaptive verification", _drafts_by_dspark),
    Need(
        f"the attention backend {facts.DEEPSEEK_BACKEND.value}, an fp8 KV cache and an mxfp4 index with sparse logits",
        _has_deepseek_attention,
    ),
    Need(
        "FULL graphs for decodes alone",
        lambda one: _has_full_decode(one) and one.frame.mode.mixed_mode() is not CudaGraphMode.FULL,
    ),
    Need(
        "neither LoRA, KV transfer nor batch invariance",
        lambda one: (
            one.request.spec.lora is None
            and one.request.spec.kv_transfer is None
            and not turns_on(one.request.spec, BATCH_INVARIANT_VARIABLE)
        ),
    ),
    *_COMMON,
)

_KIMI_NEEDS = (
    Need("a GPU of compute capability 10.x", lambda one: is_sm100(one.device)),
    Need(
        "8 or 16 tensor-parallel ranks and no other parallelism but of the decode context",
        lambda one: (
            one.request.spec.parallel.tensor_parallel_size in facts.KIMI_RANKS.value
            and _parallel(one, "decode_context_parallel_size") in (1, one.request.spec.parallel.tensor_parallel_size)
            and _is_undivided(one)
        ),
    ),
    Need(
        "DSpark without adaptive verification, or no speculation",
        lambda one: one.request.spec.speculative is None or _drafts_by_dspark(one),
    ),
    Need(
        f"at most {facts.KIMI_MOST_DRAFTS.value} drafts",
        lambda one: one.frame.num_speculative_tokens <= facts.KIMI_MOST_DRAFTS.value,
    ),
    Need("FULL graphs for decodes", _has_full_decode),
    Need("no LoRA", lambda one: one.request.spec.lora is None),
    Need(
        "states that are neither replayed nor recovered",
        lambda one: (
            not any(
                engine_field(one.request.spec, "memory", name, False)
                for name in ("use_replayssm", "use_kda_recoverssm")
            )
        ),
    ),
    *_COMMON,
)

NEEDS: Mapping[str, tuple[Need, ...]] = {
    facts.DEEPSEEK_ARCHITECTURE: _DEEPSEEK_NEEDS,
    facts.KIMI_ARCHITECTURE: _KIMI_NEEDS,
}
"""By architecture; of each what the spec can say, and not what only the machine can."""


def asked_decode_backend(resolution: Resolution) -> tuple[str, Any] | None:
    """The key of `engine.args` that names a decode backend, and the name."""
    for key, value in resolution.request.spec.engine.args.items():
        if is_additional_config(key) and isinstance(value, Mapping) and facts.DECODE_BACKEND_KEY in value:
            return key, value[facts.DECODE_BACKEND_KEY]
    return None


def _specialized_decode(subject: Findable) -> Iterator[Diagnostic]:
    found = asked_decode_backend(subject.resolution)
    if found is None or found[1] == "auto":
        return
    key, name = found
    place = subject.place("engine", "args", key, facts.DECODE_BACKEND_KEY)
    if name != facts.LATENCY_SPECIALIZED.value:
        message = f"the engine has no decode backend `{name}`"
        yield rules.R120.at(place, message, f"write `{facts.LATENCY_SPECIALIZED.value}`, or delete it")
        return
    architectures = subject.resolution.request.target.traits.architectures
    known = next((one for one in architectures if one in NEEDS), None)
    if known is None or subject.resolution.engine.facts_version != facts.LATENCY_SPECIALIZED.version:
        message = f"vLLM {subject.resolution.engine.version} has no specialised decode of {_listed(architectures)}"
        yield rules.R120.at(place, message, f"delete it; it has one of {_listed(NEEDS)}, from 0.33.0 on")
        return
    yield from _missing(subject, place, NEEDS[known])
    if known == facts.DEEPSEEK_ARCHITECTURE:
        yield from _reach(subject, place)


def _missing(subject: Findable, place: Place, needs: tuple[Need, ...]) -> Iterator[Diagnostic]:
    missing = [need.words for need in needs if not need.holds(subject.resolution)]
    if missing:
        message = f"the engine's specialised decode needs {'; '.join(missing)}"
        yield rules.R120.at(place, message, "write them in the spec, or delete it: the engine ends at start-up")


def _reach(subject: Findable, place: Place) -> Iterator[Diagnostic]:
    """Which decode graphs run on it, and what only the machine decides."""
    decodes = [one for one in subject.shapes if one.routine is Routine.UNIFORM_DECODE]
    rows = facts.DEEPSEEK_ROWS.value
    wider = sum(one.tokens > rows for one in decodes)
    requests = rows // subject.frame.query_len
    few = max(facts.DEEPSEEK_LOW_BATCH_ROWS.value // subject.frame.query_len, 1)
    said = f"; {wider} of {len(decodes)} decode graphs are wider and run the stock layers" if wider else ""
    message = (
        f"specialised decode runs steps of up to {requests} requests ({rows} tokens), and with its fastest matrix "
        f"products of up to {few}{said}"
    )
    help_text = (
        f"the machine must have NVLink multicast and DeepGEMM, and flashinfer-python {facts.DEEPSEEK_FLASHINFER.value} "
        "for all of it"
    )
    if any(one.routine is Routine.UNIFORM_DECODE and one.tokens > rows for one in subject.asked):
        help_text += f"; `max_decode_cudagraph_capture_requests: {requests}` leaves the wider ones out"
    yield rules.P148.at(place, message, help_text)


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names) or "this model"


CHECKS: tuple[Check, ...] = (_specialized_decode,)

"""Which of the engine's two model runners a spec resolves to, and what that runner refuses.

Source: vllm/config/vllm.py, VllmConfig.use_v2_model_runner, VllmConfig._validate_v2_model_runner and
VllmConfig._validate_v1_model_runner.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.model_runner import RUNNER_FACTS, names_of
from servespec.compiler.resolve.step import Refusal
from servespec.provenance import Origin, Resolved

VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
RUNNER = f"engine.env.{VARIABLE}"

_CONFIG = "vllm/config/vllm.py: VllmConfig"
_CHOICE = f"{_CONFIG}.use_v2_model_runner"
_V1_LIST = f"{_CONFIG}._get_v1_model_runner_unsupported_features"
_V2_LIST = f"{_CONFIG}._get_v2_model_runner_unsupported_features"


class ModelRunner(StrEnum):
    V1 = "v1"
    V2 = "v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerRequest:
    """Everything the engine looks at.

    ``variable`` is VLLM_USE_V2_MODEL_RUNNER (None: unset).  ``has_triton`` is false on the CPU build.
    ``mode`` is the configured graph mode, None where it is not settled; only microbatching asks.
    """

    version: str
    variable: bool | None = None
    has_triton: bool = True
    has_hisparse: bool = False
    has_watermark: bool = False
    architectures: tuple[str, ...] = ()
    is_multimodal: bool = False
    is_encoder_decoder: bool = False
    is_hybrid: bool = False
    is_diffusion: bool = False
    is_mm_encoder_only: bool = False
    has_lora: bool = False
    distributed_executor_backend: str | None = None
    pipeline_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_batch_sharded_sampling: bool = False
    uses_microbatches: bool = False
    async_scheduling: bool | None = None
    mode: CudaGraphMode | None = None
    method: str | None = None
    parallel_drafting: bool = False
    use_heterogeneous_vocab: bool = False
    enable_adaptive_verification: bool = False
    draft_lm_head_quantization: bool = False
    draft_architectures: tuple[str, ...] = ()
    draft_layer_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerResolution:
    """The runner, why, and what stops the engine from starting with it."""

    runner: Resolved[ModelRunner]
    findings: tuple[Refusal, ...] = ()


def resolve_model_runner(request: RunnerRequest) -> RunnerResolution:
    """The runner the engine chooses, with its refusals."""
    runner = _choice(request)
    findings = tuple(_contradictions(request)) + tuple(_refusals(request, runner.value))
    return RunnerResolution(runner=runner, findings=findings)


def _choice(request: RunnerRequest) -> Resolved[ModelRunner]:
    if request.has_hisparse:
        return Resolved(ModelRunner.V2, Origin.DERIVED, "HiSparse exists only there")
    if request.has_watermark:
        return Resolved(ModelRunner.V2, Origin.DERIVED, "watermarking exists only there")
    if request.variable is not None:
        runner = ModelRunner.V2 if request.variable else ModelRunner.V1
        return Resolved(runner, Origin.SPEC, f"`{VARIABLE}` is set")
    if not request.has_triton:
        return Resolved(ModelRunner.V1, Origin.DERIVED, "Model Runner V2 needs Triton")
    missing = v2_unsupported(request)
    if missing:
        return Resolved(ModelRunner.V1, Origin.DERIVED, f"Model Runner V2 lacks {', '.join(missing)}")
    return Resolved(ModelRunner.V2, Origin.ENGINE_DEFAULT, "the engine's default")


def _contradictions(request: RunnerRequest) -> Iterator[Refusal]:
    if request.has_hisparse and request.variable is False:
        because = f"HiSparse needs Model Runner V2 and `{VARIABLE}` is 0"
        yield Refusal(RUNNER, because, _CHOICE, help="write `model_runner: v2`, or delete `hisparse_config`")


def _refusals(request: RunnerRequest, runner: ModelRunner) -> Iterator[Refusal]:
    source = _V2_LIST if runner is ModelRunner.V2 else _V1_LIST
    missing = v2_unsupported(request) if runner is ModelRunner.V2 else v1_unsupported(request)
    for feature in missing:
        help_text = (
            "delete `model_runner`, or what it lacks" if request.variable is not None else "delete what it lacks"
        )
        yield Refusal(RUNNER, f"Model Runner {runner.upper()} lacks {feature}", source, help=help_text)


def v2_unsupported(request: RunnerRequest) -> tuple[str, ...]:
    """What a spec asks for that Model Runner V2 lacks, in the engine's order."""
    drafting = _v2_drafting(request) if request.method is not None else ()
    return (*_v2_layout(request), *drafting, *_v2_microbatches(request))


def _v2_layout(request: RunnerRequest) -> Iterator[str]:
    if request.distributed_executor_backend == "external_launcher" and request.pipeline_parallel_size > 1:
        yield "pipeline parallelism under the external launcher"


def _v2_drafting(request: RunnerRequest) -> Iterator[str]:
    if request.method in RUNNER_FACTS[request.version].v2_unsupported_methods.value:
        yield f"speculative method `{request.method}`"
    if request.parallel_drafting and request.method not in ("dflash", "dspark"):
        yield "parallel drafting outside DFlash and DSpark"
    if request.use_heterogeneous_vocab:
        yield "draft models with a vocabulary of their own"


def _v2_microbatches(request: RunnerRequest) -> tuple[str, ...]:
    if not request.uses_microbatches:
        return ()
    if request.variable is None:
        return (f"microbatches unless `{VARIABLE}` is 1",)
    blockers = (
        (request.has_lora, "LoRA"),
        (request.method is not None, "speculative decoding"),
        (request.pipeline_parallel_size > 1, "pipeline parallelism"),
        (_context_parallel(request), "context parallelism"),
        (request.is_multimodal or request.is_encoder_decoder, "multimodal models"),
        (request.is_hybrid, "hybrid models"),
        (request.mode is CudaGraphMode.PIECEWISE, "piecewise graphs alone"),
        (request.is_mm_encoder_only, "encoder-only models"),
    )
    return tuple(f"microbatches with {what}" for blocks, what in blockers if blocks)


def _context_parallel(request: RunnerRequest) -> bool:
    return request.decode_context_parallel_size > 1 or request.prefill_context_parallel_size > 1


def v1_unsupported(request: RunnerRequest) -> tuple[str, ...]:
    """What a spec asks for that Model Runner V1 lacks."""
    drafting = _v1_drafting(request) if request.method is not None else ()
    return (*_v1_layout(request), *drafting, *_v1_model(request))


def _v1_layout(request: RunnerRequest) -> Iterator[str]:
    if request.prefill_context_parallel_size > 1:
        yield "prefill context parallelism"
    # Unset asynchronous scheduling is turned off by the engine in this case.
    if request.pipeline_parallel_size > 1 and request.async_scheduling:
        yield "pipeline parallelism with asynchronous scheduling"
    if request.enable_batch_sharded_sampling:
        yield "batch-sharded sampling"


def _v1_drafting(request: RunnerRequest) -> Iterator[str]:
    facts = RUNNER_FACTS[request.version]
    drafts = set(request.draft_architectures)
    is_dflash = request.method == "dflash"
    checks = (
        (request.method == "dspark", "DSpark"),
        (is_dflash and bool(drafts & names_of(facts.v1_xpress_drafts)), "XPress drafts"),
        (request.enable_adaptive_verification, "adaptive verification"),
        (_quantizes_draft_head(request), "draft head quantization"),
        (bool(drafts & names_of(facts.v1_attention_free_drafts)), "attention-free MTP drafts"),
        (is_dflash and _mixes_windows(request.draft_layer_types), "DFlash drafts of mixed attention"),
        (is_dflash and bool(drafts & facts.v1_candidate_drafts.value), "DFlash drafts with candidate heads"),
    )
    return (what for applies, what in checks if applies)


def _quantizes_draft_head(request: RunnerRequest) -> bool:
    known = RUNNER_FACTS[request.version].knows_draft_lm_head_quantization
    return known and request.draft_lm_head_quantization


def _mixes_windows(layer_types: tuple[str, ...]) -> bool:
    sliding = layer_types.count("sliding_attention")
    return 0 < sliding < len(layer_types)


def _v1_model(request: RunnerRequest) -> Iterator[str]:
    if request.is_diffusion:
        yield "diffusion models"
    refused = names_of(RUNNER_FACTS[request.version].v1_unsupported_architectures)
    yield from (f"architecture `{name}`" for name in request.architectures if name in refused)

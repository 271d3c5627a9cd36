"""What a worker makes of the configured CUDA-graph mode once it knows the attention backends.

Source: vllm/config/compilation.py, CompilationConfig.resolve_cudagraph_mode_and_sizes.
"""

from dataclasses import dataclass, replace
from typing import Final

from servespec.compiler.facts.cudagraph_mode import COMPILATION, AttentionCgSupport, CudaGraphMode
from servespec.compiler.resolve.config_mode import MODE
from servespec.compiler.resolve.step import Refusal, Step, TypedField

NOTHING_CUT: Final = "the model has neither compiled nor breakable pieces"
"""Why PIECEWISE graphs leave the mode."""

_WORKER = f"{COMPILATION}: CompilationConfig.resolve_cudagraph_mode_and_sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """What a worker knows when it settles the mode.

    ``support`` is the least of all attention groups, target and draft; ``backend`` the one it belongs to;
    ``query_len_tokens_per_request`` is 1 + K.
    """

    mode: CudaGraphMode
    support: AttentionCgSupport
    backend: str
    query_len_tokens_per_request: int
    is_v2_runner: bool = True
    is_vllm_compiled: bool = True
    splits_attention: bool = True
    use_inductor_graph_partition: bool = False
    piecewise_available: bool = True
    enable_adaptive_verification: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResolution:
    """The mode that the graph managers get; ``rounds_sizes_to_query_len`` as in
    :class:`servespec.compiler.resolve.config_mode.ModeResolution`."""

    mode: CudaGraphMode
    rounds_sizes_to_query_len: bool = False
    steps: tuple[Step, ...] = ()
    findings: tuple[Refusal, ...] = ()


def resolve_worker_mode(request: WorkerRequest) -> WorkerResolution:
    """What a worker makes of the configured mode."""
    state = WorkerResolution(mode=request.mode)
    if request.enable_adaptive_verification and request.mode.has_full():
        state = _adaptive_mode(request, state)
    if state.mode is CudaGraphMode.NONE:
        return state
    if state.mode.mixed_mode() is CudaGraphMode.FULL and request.support is AttentionCgSupport.NEVER:
        return replace(state, findings=(_no_full_graphs(request, state.mode),))
    for rule in (_mixed_support, _decode_support, _draft_support, _piece_support):
        state = rule(request, state)
    return replace(state, rounds_sizes_to_query_len=_rounds(request, state.mode))


def _moved(state: WorkerResolution, mode: CudaGraphMode, because: str, source: str) -> WorkerResolution:
    if mode is state.mode:
        return state
    step = Step(because, str(state.mode), str(mode), source)
    return replace(state, mode=mode, steps=(*state.steps, step))


def _adaptive_mode(request: WorkerRequest, state: WorkerResolution) -> WorkerResolution:
    source = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py: resolve_adaptive_cudagraph_mode"
    decode_only = state.mode is CudaGraphMode.FULL_DECODE_ONLY or not request.piecewise_available
    mode = CudaGraphMode.FULL_DECODE_ONLY if decode_only else CudaGraphMode.FULL_AND_PIECEWISE
    return _moved(state, mode, "adaptive verification has a decode route of its own", source)


def _no_full_graphs(request: WorkerRequest, mode: CudaGraphMode) -> Refusal:
    because = f"`{mode}` does not run with attention backend `{request.backend}`"
    typed = (TypedField("compilation", "cudagraph_mode", "PIECEWISE"),)
    return Refusal(MODE, because, _WORKER, help="write {}, or another `attention.backend`", typed=typed)


def _mixed_support(request: WorkerRequest, state: WorkerResolution) -> WorkerResolution:
    if state.mode.mixed_mode() is not CudaGraphMode.FULL or request.support is AttentionCgSupport.ALWAYS:
        return state
    mode = CudaGraphMode.FULL_DECODE_ONLY
    if request.splits_attention:
        mode = CudaGraphMode.FULL_AND_PIECEWISE
    return _moved(state, mode, f"`{request.backend}` cannot capture mixed batches whole", _WORKER)


def _decode_support(request: WorkerRequest, state: WorkerResolution) -> WorkerResolution:
    if not state.mode.has_full() or request.support is not AttentionCgSupport.NEVER:
        return state
    pieces = request.splits_attention or request.use_inductor_graph_partition
    mode = CudaGraphMode.PIECEWISE if request.is_vllm_compiled and pieces else CudaGraphMode.NONE
    return _moved(state, mode, f"`{request.backend}` cannot be captured whole", _WORKER)


def _draft_support(request: WorkerRequest, state: WorkerResolution) -> WorkerResolution:
    drafting = request.query_len_tokens_per_request > 1
    if not drafting or not state.mode.has_full() or request.support >= AttentionCgSupport.UNIFORM_BATCH:
        return state
    mode = CudaGraphMode.PIECEWISE if request.splits_attention else CudaGraphMode.NONE
    because = f"`{request.backend}` captures decode of one token a request only"
    return _moved(state, mode, because, _WORKER)


def _piece_support(request: WorkerRequest, state: WorkerResolution) -> WorkerResolution:
    if request.piecewise_available or not state.mode.has_piecewise():
        return state
    return _moved(state, state.mode.without_piecewise(), NOTHING_CUT, _WORKER)


def _rounds(request: WorkerRequest, mode: CudaGraphMode) -> bool:
    return not request.is_v2_runner and mode.has_full() and request.query_len_tokens_per_request > 1

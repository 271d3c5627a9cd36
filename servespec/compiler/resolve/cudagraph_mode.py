"""The CUDA-graph mode that the graph managers get: the configuration's, then the worker's."""

from dataclasses import replace

from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport, CompilationMode
from servespec.compiler.resolve.config_mode import ModeRequest, ModeResolution, resolve_config_mode
from servespec.compiler.resolve.worker_mode import WorkerRequest, resolve_worker_mode


def resolve_mode(
    request: ModeRequest,
    support: AttentionCgSupport,
    backend: str,
    query_len_tokens_per_request: int,
    has_compiled_submodule: bool | None = None,
) -> ModeResolution:
    """The mode the graph managers get, configuration and worker taken together.

    ``has_compiled_submodule``: whether the loaded model supports torch.compile; None takes it to, where the
    compilation mode is VLLM_COMPILE.
    """
    config = resolve_config_mode(request)
    worker = resolve_worker_mode(
        worker_request(request, config, support, backend, query_len_tokens_per_request, has_compiled_submodule)
    )
    return replace(
        config,
        mode=worker.mode,
        rounds_sizes_to_query_len=worker.rounds_sizes_to_query_len,
        steps=config.steps + worker.steps,
        findings=config.findings + worker.findings,
    )


def worker_request(
    request: ModeRequest,
    config: ModeResolution,
    support: AttentionCgSupport,
    backend: str,
    query_len_tokens_per_request: int,
    has_compiled_submodule: bool | None = None,
) -> WorkerRequest:
    """What the workers of a resolved configuration know; see :func:`resolve_mode`."""
    compiled = config.compilation_mode is CompilationMode.VLLM_COMPILE
    submodule = compiled if has_compiled_submodule is None else has_compiled_submodule
    return WorkerRequest(
        mode=config.mode,
        support=support,
        backend=backend,
        query_len_tokens_per_request=query_len_tokens_per_request,
        is_v2_runner=request.is_v2_runner,
        is_vllm_compiled=compiled,
        splits_attention=config.splits_attention,
        use_inductor_graph_partition=request.use_inductor_graph_partition,
        # Model Runner V1 does not ask.
        piecewise_available=not request.is_v2_runner or config.breakable.value or submodule,
        enable_adaptive_verification=request.enable_adaptive_verification,
    )

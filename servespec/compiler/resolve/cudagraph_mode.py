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
    *,
    supports_compile: bool = True,
) -> ModeResolution:
    """The mode the graph managers get, configuration and worker taken together.

    ``supports_compile`` says that torch.compile takes part of the model where the compilation mode has it do so.
    """
    config = resolve_config_mode(request)
    worker = resolve_worker_mode(
        worker_request(
            request, config, support, backend, query_len_tokens_per_request, supports_compile=supports_compile
        )
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
    *,
    supports_compile: bool = True,
) -> WorkerRequest:
    """What the workers of a resolved configuration know; see :func:`resolve_mode`."""
    compiled = config.compilation_mode is CompilationMode.VLLM_COMPILE
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
        piecewise_available=not request.is_v2_runner or config.breakable.value or (compiled and supports_compile),
        enable_adaptive_verification=request.enable_adaptive_verification,
    )

"""The functions and classes that servespec replaces or relies on, and their digests in one wheel."""

import ast

from engine_reading.source import Engine
from servespec.compiler.facts.relied_on import RELIED_ON_BY
from servespec.compiler.facts.source_digest import digest_of, names_in

_GPU = "vllm/v1/worker/gpu"
_CUDAGRAPH_MANAGER = """__init__ _build_lora_dispatch_map _resolve_effective_loras _maybe_ubatch_twin
_init_candidates needs_capture _capture_stream capture captured_token_counts dispatch run_fullgraph
run_pw_graph init_breakable_cg_runner"""
_CUDAGRAPH_UTILS = """AttentionState BatchExecutionDescriptor _is_compatible ModelCudaGraphManager
prepare_inputs_to_capture profile_cudagraph_memory _extrapolate_full_graph_memory make_cudagraph_stats"""

# Names that only one version has are recorded for that version alone; what only some uses rely on is in RELIED_ON_BY.
TARGETS: dict[str, str] = {
    "vllm/config/vllm.py": """VllmConfig._set_cudagraph_sizes VllmConfig.use_v2_model_runner
        VllmConfig._get_v2_model_runner_unsupported_features VllmConfig._get_dbo_unsupported_features
        VllmConfig.uniform_decode_query_len VllmConfig._normalize_piecewise_cudagraph_mode
        VllmConfig._maybe_enable_breakable_cudagraph""",
    "vllm/config/compilation.py": """CUDAGraphMode CompilationConfig.resolve_cudagraph_mode_and_sizes
        CompilationConfig.set_splitting_ops_for_v1 CompilationConfig.post_init_cudagraph_sizes""",
    f"{_GPU}/cudagraph_utils.py": " ".join(
        [_CUDAGRAPH_UTILS, *(f"CudaGraphManager.{name}" for name in _CUDAGRAPH_MANAGER.split())]
    ),
    f"{_GPU}/dp_utils.py": "DPSyncState sync_cudagraph_and_dp_padding dispatch_cg_and_sync_dp",
    f"{_GPU}/lora_utils.py": "get_lora_capture_cases get_num_active_loras_for_dispatch",
    "vllm/v1/spec_decode/dynamic/utils.py": """validate_and_normalize_dynamic_sd_schedule
        build_dynamic_sd_schedule_lookup""",
    "vllm/engine/arg_utils.py": """EngineArgs.get_batch_defaults
        EngineArgs._set_default_max_num_seqs_and_batched_tokens_args""",
    "vllm/compilation/cuda_graph.py": "CUDAGraphStat",
    "vllm/v1/metrics/loggers.py": "load_stat_logger_plugin_factories StatLoggerManager.record",
    "vllm/v1/worker/utils.py": "get_uniform_decode_token_count",
    f"{_GPU}/model_runner.py": "GPUModelRunner.initialize_kv_cache GPUModelRunner.capture_model",
    "vllm/v1/attention/backends/flash_attn.py": """FlashAttentionMetadataBuilder.__init__
        FlashAttentionMetadataBuilder.build""",
    "vllm/v1/attention/backends/mla/flashattn_mla.py": """FlashAttnMLAMetadataBuilder.__init__
        FlashAttnMLAMetadataBuilder._build_decode""",
}
_SPEC_DECODE = f"{_GPU}/spec_decode/**/*.py"
_WORKER_BASE = "vllm/v1/worker/worker_base.py"


def digests(engine: Engine) -> dict[str, str]:
    """``file:name`` to digest, for every target that the wheel has."""
    wanted = [(path, name) for path, names in TARGETS.items() for name in names.split()]
    on_demand = [tuple(key.split(":")) for names in RELIED_ON_BY.values() for key in sorted(names)]
    found = {}
    for path, name in [*wanted, *on_demand, *_speculator_targets(engine), *_extension_targets(engine)]:
        file = engine.root / path
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if name in names_in(text):
            found[f"{path}:{name}"] = digest_of(text, name)
    return dict(sorted(found.items()))


def _speculator_targets(engine: Engine) -> list[tuple[str, str]]:
    """Each speculator's ``init_cudagraph_manager`` and every method of a graph manager of its own."""
    found = []
    for path in engine.paths(_SPEC_DECODE):
        for name in names_in((engine.root / path).read_text(encoding="utf-8")):
            owner, _, method = name.rpartition(".")
            if method == "init_cudagraph_manager" or (owner.endswith("CudaGraphManager") and method):
                found.append((path, name))
    return found


def _extension_targets(engine: Engine) -> list[tuple[str, str]]:
    """The hooks through which a worker extension starts and ends."""
    module = engine.module(_WORKER_BASE)
    classes = [one.name for one in module.tree.body if isinstance(one, ast.ClassDef)]
    return [(_WORKER_BASE, f"{name}.{hook}") for name in classes for hook in ("init_device", "shutdown")]

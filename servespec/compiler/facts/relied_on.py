"""Functions of the engine that only some uses of it rely on: an engine that differs there can serve all the same.

Everything else whose digest is recorded is relied on by every plan and every launch.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

_GPU = "vllm/v1/worker/gpu"
_DRAFTERS = f"{_GPU}/spec_decode"


class Use(StrEnum):
    """What relies on more of the engine than serving does."""

    MEASURING = "measuring"
    """`verify` and `steps`, which drive the engine's steps themselves."""
    REMEDIES = "remedies"
    """Remedies, which replace some of its functions."""
    LOAD_AWARE = "load aware"
    """Adaptive verification from a number of requests on, which takes its manager off the runner for smaller steps."""


_MEASURING = {
    "vllm/v1/core/sched/output.py": "SchedulerOutput NewRequestData CachedRequestData",
    "vllm/v1/worker/gpu_worker.py": "Worker.compile_or_warm_up_model Worker.execute_model Worker.sample_tokens",
    f"{_GPU}/states.py": "RequestState.add_request",
    f"{_GPU}/async_utils.py": "AsyncOutput.get_output",
    f"{_GPU}/warmup.py": "_warmup_block_counter _reserved_block_count",
    f"{_GPU}/model_states/default.py": "DefaultModelState.prepare_attn",
    f"{_GPU}/model_runner.py": """GPUModelRunner.execute_model GPUModelRunner.sample_tokens GPUModelRunner.sample
        GPUModelRunner.add_requests GPUModelRunner.update_requests GPUModelRunner.gather_batch_req_state
        GPUModelRunner.prepare_inputs ExecuteModelState""",
    f"{_DRAFTERS}/target_dependent_ar/speculator.py": """TargetDependentARSpeculator.propose
        TargetDependentARSpeculator._prefill TargetDependentARSpeculator._generate_draft
        TargetDependentARSpeculator._generate_fused_drafts""",
    f"{_DRAFTERS}/dflash/speculator.py": "DFlashSpeculator.propose DFlashSpeculator._generate_draft",
    f"{_DRAFTERS}/multi_module_mtp/speculator.py": """MultiModuleMTPSpeculator.propose
        MultiModuleMTPSpeculator._generate_drafts""",
}
_REMEDIES = {
    "vllm/config/vllm.py": "VllmConfig.compute_hash",
    "vllm/config/cache.py": "CacheConfig.compute_hash",
    "vllm/compilation/breakable_cudagraph.py": """BreakableCUDAGraphWrapper._capture BreakableCUDAGraphWrapper._replay
        BreakableCUDAGraphWrapper.__call__""",
    "vllm/utils/torch_utils.py": "weak_ref_tensor weak_ref_tensors",
    "vllm/distributed/parallel_state.py": "graph_capture GraphCaptureContext GroupCoordinator.graph_capture",
    "vllm/v1/worker/startup_plan.py": """compute_plan_fingerprint _load_plan _applicable_kv_cache_memory_bytes
        maybe_apply_startup_plan maybe_save_startup_plan""",
    "vllm/utils/mem_utils.py": "MemorySnapshot memory_profiling",
    f"{_GPU}/model_runner.py": "GPUModelRunner.profile_run",
    "vllm/v1/worker/gpu_worker.py": """Worker.determine_available_memory Worker._scoped_allocator_max_split
        Worker.compile_or_warm_up_model""",
    f"{_DRAFTERS}/eagle/eagle3_utils.py": "requires_aux_hidden_states",
    f"{_DRAFTERS}/extract_hidden_states.py": "ExtractHiddenStatesSpeculator.propose",
    f"{_DRAFTERS}/target_dependent_ar/speculator.py": "TargetDependentARSpeculator.propose",
    f"{_DRAFTERS}/dflash/speculator.py": """DFlashSpeculator.propose DFlashSpeculator._prepare_graph_replay
        DFlashSpeculator._store_hidden_states""",
}


_LOAD_AWARE = {
    "vllm/v1/worker/gpu_worker.py": "Worker._compile_or_warm_up_model",
    f"{_GPU}/warmup.py": "warmup_kernels",
    f"{_GPU}/model_runner.py": """GPUModelRunner.execute_model GPUModelRunner.sample_tokens GPUModelRunner._dummy_run
        GPUModelRunner.add_requests GPUModelRunner.gather_batch_req_state GPUModelRunner.prepare_inputs""",
    f"{_GPU}/async_utils.py": "StepTimingCollector StepTimingSample",
    f"{_GPU}/input_batch.py": "set_dummy_context",
    f"{_DRAFTERS}/adaptive_verification.py": """AdaptiveVerificationManager maybe_create_adaptive_verification_manager
        build_cost_tables_from_curves""",
    f"{_DRAFTERS}/acceptance_estimator.py": "OnlineAcceptanceEstimator",
    f"{_DRAFTERS}/rejection_sampler.py": "RejectionSampler",
    f"{_DRAFTERS}/speculator.py": "DraftModelSpeculator.observe_verification",
}


def _keys(named: Mapping[str, str]) -> Iterator[str]:
    return (f"{path}:{name}" for path, names in named.items() for name in names.split())


RELIED_ON_BY: Final[Mapping[Use, frozenset[str]]] = MappingProxyType(
    {
        Use.MEASURING: frozenset(_keys(_MEASURING)),
        Use.REMEDIES: frozenset(_keys(_REMEDIES)),
        Use.LOAD_AWARE: frozenset(_keys(_LOAD_AWARE)),
    }
)
"""By ``file:name``, as digests are recorded."""


def relied_on(name: str, uses: frozenset[Use]) -> bool:
    """Whether serving, or one of ``uses``, relies on the function ``name``."""
    wanting = {use for use, names in RELIED_ON_BY.items() if name in names}
    return not wanting or bool(wanting & uses)

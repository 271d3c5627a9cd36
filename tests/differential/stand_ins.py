"""What lifted engine code meets in place of a GPU, a process group, torch and the engine's configs.

:class:`Engine` is one engine's text with these stand-ins.  A stand-in computes nothing that a comparison
is about: configs are the engine's own properties and methods on attributes that a test sets.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.differential.lifting import EngineText

Schedule = Sequence[tuple[int, int, int]]

CONFIG = "vllm.config.vllm"
COMPILATION = "vllm.config.compilation"
PARALLEL = "vllm.config.parallel"
SCHEDULER = "vllm.config.scheduler"
SPECULATIVE = "vllm.config.speculative"
ARGS = "vllm.engine.arg_utils"
PLATFORM = "vllm.platforms.interface"
GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
DRAFTING = "vllm.v1.worker.gpu.spec_decode"
_BREAKABLE = "vllm.compilation.breakable_cudagraph"
_GROUPS = "vllm.distributed.parallel_state"

_PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    f"{CONFIG}:VllmConfig": (
        (
            "num_speculative_tokens",
            "uniform_decode_query_len",
            "num_lookahead_tokens",
            "use_v2_model_runner",
            "_set_cudagraph_sizes",
            "_set_max_num_scheduled_tokens",
            "_normalize_piecewise_cudagraph_mode",
            "_validate_adaptive_verification",
            "_get_v2_model_runner_unsupported_features",
            "_get_v1_model_runner_unsupported_features",
            "_get_dbo_unsupported_features",
            "_dflash_needs_multi_kv_group",
            "_is_dflash_candidate_draft",
            "_uses_breakable_cudagraph_by_default",
        ),
        (),
    ),
    f"{COMPILATION}:CompilationConfig": (
        (
            "_attention_ops",
            "post_init_cudagraph_sizes",
            "resolve_cudagraph_mode_and_sizes",
            "splitting_ops_contain_attention",
            "adjust_cudagraph_sizes_for_spec_decode",
        ),
        (),
    ),
    f"{PARALLEL}:ParallelConfig": (("use_ubatching", "num_ubatches", "use_batched_dp_moe"), ()),
    f"{SPECULATIVE}:SpeculativeConfig": (
        (
            "uses_dynamic_speculative_decoding",
            "use_multi_module_mtp",
            "use_gemma4_mtp",
            "use_eagle",
            "uses_draft_model",
            "use_ngram",
            "use_dflash",
            "use_dspark",
        ),
        ("is_xpress", "max_num_new_slots_for_drafting"),  # 0.33 has the first, 0.32 the second
    ),
    f"{ARGS}:EngineArgs": (
        ("get_batch_defaults", "_set_default_max_num_seqs_and_batched_tokens_args"),
        (),
    ),
    f"{SCHEDULER}:SchedulerConfig": (
        (
            "DEFAULT_MAX_NUM_BATCHED_TOKENS",
            "DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP",
            "DEFAULT_MAX_NUM_SEQS",
        ),
        (),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What lifted code learns when it asks the platform or the environment."""

    capability: tuple[int, int] = (9, 0)
    memory_bytes: int = 0
    name: str = ""
    breakable_graphs: bool = False
    v2_model_runner: bool | None = None
    triton: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """The fields of a speculative config that graph planning depends on."""

    num_speculative_tokens: int
    method: str = "eagle3"
    schedule: Schedule | None = None
    draft_architectures: tuple[str, ...] = ()
    draft_config: Mapping[str, Any] = field(default_factory=dict)
    parallel_drafting: bool = False
    use_heterogeneous_vocab: bool = False
    enable_adaptive_verification: bool = False
    draft_lm_head_quantization: str | None = None


class Anything:
    """Accepts any attribute, call and item assignment; stands for tensors and layers during a capture."""

    def __getattr__(self, name: str) -> "Anything":
        return self

    def __call__(self, *_: Any, **__: Any) -> "Anything":
        return self


class _Log:
    """Keeps the engine's warnings unformatted: most calls are made thousands of times."""

    def __init__(self) -> None:
        self.warnings: list[tuple[Any, ...]] = []

    def warning(self, *line: Any) -> None:
        self.warnings.append(line)

    warning_once = warning

    def info(self, *line: Any) -> None:
        pass

    info_once = debug = info


@dataclass(slots=True)
class Engine:
    """One engine's text with its stand-ins; ``machine`` is swapped for the length of a call."""

    root: Path
    machine: Machine = field(default_factory=Machine)
    log: _Log = field(default_factory=_Log)
    text: EngineText = field(init=False)
    _parts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = EngineText(self.root, _stand_ins(self))

    @contextmanager
    def on(self, machine: Machine) -> Iterator[None]:
        previous, self.machine = self.machine, machine
        self.log.warnings.clear()
        try:
            yield
        finally:
            self.machine = previous

    def part(self, symbol: str) -> Any:
        """The class of :data:`_PARTS` cut down to the members listed there."""
        if symbol not in self._parts:
            members, optional = _PARTS[symbol]
            self._parts[symbol] = self.text.part_of_class(symbol, members, optional)
        return self._parts[symbol]

    def make(self, symbol: str, **attributes: Any) -> Any:
        """An instance of :meth:`part` with these attributes and no others."""
        instance = self.part(symbol)()
        vars(instance).update(attributes)
        return instance

    def mode(self, name: str) -> Any:
        return self.text.get(f"{COMPILATION}:CUDAGraphMode")[name]


@functools.cache
def engine(root: Path) -> Engine:
    """The engine at ``root``, lifted once."""
    return Engine(root)


def compilation(
    engine: Engine, cudagraph_mode: str, sizes: Sequence[int] | None, max_size: int | None, **attributes: Any
) -> Any:
    return engine.make(
        f"{COMPILATION}:CompilationConfig",
        cudagraph_mode=engine.mode(cudagraph_mode),
        cudagraph_capture_sizes=None if sizes is None else list(sizes),
        max_cudagraph_capture_size=max_size,
        compile_sizes=None,
        **attributes,
    )


def speculative(engine: Engine, speculation: Speculation | None) -> Any:
    if speculation is None or speculation.num_speculative_tokens == 0:
        return None
    hf_config = SimpleNamespace(**speculation.draft_config)
    draft = SimpleNamespace(architectures=list(speculation.draft_architectures), hf_config=hf_config)
    schedule = speculation.schedule
    return engine.make(
        f"{SPECULATIVE}:SpeculativeConfig",
        method=speculation.method,
        num_speculative_tokens=speculation.num_speculative_tokens,
        num_speculative_tokens_per_batch_size=None if schedule is None else list(schedule),
        draft_model_config=draft,
        parallel_drafting=speculation.parallel_drafting,
        use_heterogeneous_vocab=speculation.use_heterogeneous_vocab,
        enable_adaptive_verification=speculation.enable_adaptive_verification,
        draft_lm_head_quantization=speculation.draft_lm_head_quantization,
    )


def parallel(engine: Engine, **attributes: Any) -> Any:
    settings: dict[str, Any] = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "prefill_context_parallel_size": 1,
        "distributed_executor_backend": None,
        "enable_batch_sharded_sampling": False,
        "enable_expert_parallel": False,
        "all2all_backend": None,
        "enable_dbo": False,
        "ubatch_size": 0,
        "dbo_decode_token_threshold": 32,
        "dbo_prefill_token_threshold": 512,
    }
    unknown = set(attributes) - set(settings)
    assert not unknown, f"not a stand-in field of the parallel config: {sorted(unknown)}"
    return engine.make(f"{PARALLEL}:ParallelConfig", **{**settings, **attributes})


def vllm_config(engine: Engine, **attributes: Any) -> Any:
    """A config with these parts and, where not given, the plainest value of the others."""
    settings: dict[str, Any] = {
        "model_config": SimpleNamespace(enforce_eager=False, is_diffusion=False, architectures=[]),
        "speculative_config": None,
        "diffusion_config": None,
        "lora_config": None,
        "attention_config": SimpleNamespace(hisparse_config=None),
        "watermark_config": None,
        "cache_config": SimpleNamespace(use_kda_recoverssm=False),
        "performance_mode": "balanced",
        "is_mm_encoder_only": False,
    }
    return engine.make(f"{CONFIG}:VllmConfig", **{**settings, **attributes})


def _context(*args: Any, **kwargs: Any) -> Any:
    return nullcontext()


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _no_decorator(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda decorated: decorated


def _no_inputs(*args: Any, **kwargs: Any) -> tuple[None, None]:
    return None, None


def _stand_ins(engine: Engine) -> dict[str, Any]:
    """Keys: ``module:name`` as the importing statement spells it, or the name of a whole module."""
    torch = SimpleNamespace(
        inference_mode=_no_decorator,
        full=_nothing,
        int32=None,
        cuda=SimpleNamespace(CUDAGraph=object, graph=_context),
    )
    group = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    return {
        "torch": torch,
        "torch.nn": SimpleNamespace(Module=object),
        "tqdm:tqdm": None,
        "vllm.envs": _Environment(engine),
        "vllm.logger:init_logger": lambda _name: engine.log,
        "vllm.platforms:current_platform": _Platform(engine),
        "vllm.triton_utils:HAS_TRITON": _Triton(engine),
        f"{ARGS}:SchedulerConfig": _Part(engine, f"{SCHEDULER}:SchedulerConfig"),
        f"{_BREAKABLE}:BreakableCUDAGraphWrapper": _nothing,
        "vllm.compilation.counter:compilation_counter": SimpleNamespace(num_cudagraph_captured=0),
        "vllm.compilation.cudagraph_pool:capture_pool": _context,
        f"{_GROUPS}:get_pp_group": lambda: group,
        f"{_GROUPS}:graph_capture": _context,
        f"{_GROUPS}:is_global_first_rank": lambda: False,
        "vllm.model_executor.offloader.base:get_offloader": Anything,
        "vllm.utils.torch_utils:current_stream": _nothing,
        f"{GRAPHS}:prepare_inputs_to_capture": _no_inputs,
        f"{DRAFTING}.dflash.cudagraph:_prepare_dflash_inputs_to_capture": _no_inputs,
    }


class _Part:
    """A class cut down on first use: the engine's text exists only after its stand-ins."""

    def __init__(self, engine: Engine, symbol: str) -> None:
        self._engine, self._symbol = engine, symbol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine.part(self._symbol), name)


class _Triton:
    """``HAS_TRITON`` of the machine in use; only its truth is asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __bool__(self) -> bool:
        return self._engine.machine.triton


class _Environment:
    """``vllm.envs`` as far as lifted code reads it; any other variable is an AttributeError."""

    VLLM_BATCH_INVARIANT = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def VLLM_USE_BREAKABLE_CUDAGRAPH(self) -> bool:  # noqa: N802 - the engine's name
        return self._engine.machine.breakable_graphs

    @property
    def VLLM_USE_V2_MODEL_RUNNER(self) -> bool | None:  # noqa: N802 - the engine's name
        return self._engine.machine.v2_model_runner


class _Platform:
    """A CUDA platform of the machine in use; capabilities are compared by the engine's own methods."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @functools.cached_property
    def _comparisons(self) -> Any:
        text = self._engine.text
        capability = text.get(f"{PLATFORM}:DeviceCapability")
        part = text.part_of_class(f"{PLATFORM}:Platform", ("is_device_capability", "is_device_capability_family"))

        def get_device_capability(cls: Any, device_id: int = 0) -> Any:
            return capability(*self._engine.machine.capability)

        part.get_device_capability = classmethod(get_device_capability)
        return part

    def is_device_capability(self, capability: tuple[int, int]) -> bool:
        return bool(self._comparisons.is_device_capability(capability))

    def is_device_capability_family(self, capability: int) -> bool:
        return bool(self._comparisons.is_device_capability_family(capability))

    def get_device_total_memory(self) -> int:
        return self._engine.machine.memory_bytes

    def get_device_name(self) -> str:
        return self._engine.machine.name

    def get_global_graph_pool(self) -> object:
        return self

    def is_cuda(self) -> bool:
        return True

    is_cuda_alike = is_cuda

    def is_cpu(self) -> bool:
        return False

    is_rocm = is_tpu = is_unspecified = is_cpu

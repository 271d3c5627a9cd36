"""The graph mode through the engine's rules, each by a hand-computed example, and the drafters' modes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servespec.compiler.facts.cudagraph_mode import (
    MODE_FACTS,
    AttentionCgSupport,
    CompilationMode,
    CudaGraphMode,
    connector_needs_piecewise,
)
from servespec.compiler.resolve.config_mode import ModeRequest, ModeResolution, resolve_breakable, resolve_config_mode
from servespec.compiler.resolve.cudagraph_mode import resolve_mode
from servespec.compiler.resolve.drafter_mode import DrafterRoutine, drafter_mode
from servespec.compiler.resolve.step import Weight
from servespec.compiler.resolve.worker_mode import WorkerRequest, resolve_worker_mode
from servespec.provenance import Origin

NONE = CudaGraphMode.NONE
PIECEWISE = CudaGraphMode.PIECEWISE
FULL = CudaGraphMode.FULL
DECODE = CudaGraphMode.FULL_DECODE_ONLY
BOTH = CudaGraphMode.FULL_AND_PIECEWISE

NEVER = AttentionCgSupport.NEVER
SINGLE = AttentionCgSupport.UNIFORM_SINGLE_TOKEN_DECODE
UNIFORM = AttentionCgSupport.UNIFORM_BATCH
ALWAYS = AttentionCgSupport.ALWAYS

V1 = {"is_v2_runner": False}


def config(version: str = "0.33.0", **changes: object) -> ModeResolution:
    return resolve_config_mode(ModeRequest(version=version, **changes))  # type: ignore[arg-type]


def test_the_parts_of_each_mode() -> None:
    parts = {mode: (mode.decode_mode(), mode.mixed_mode(), mode.separate_routine()) for mode in CudaGraphMode}

    assert parts == {
        NONE: (NONE, NONE, False),
        PIECEWISE: (PIECEWISE, PIECEWISE, False),
        FULL: (FULL, FULL, False),
        DECODE: (FULL, NONE, True),
        BOTH: (FULL, PIECEWISE, True),
    }
    assert [mode for mode in CudaGraphMode if mode.has_full()] == [FULL, DECODE, BOTH]
    assert [mode for mode in CudaGraphMode if mode.has_piecewise()] == [PIECEWISE, BOTH]
    assert [mode.without_piecewise() for mode in CudaGraphMode] == [NONE, NONE, FULL, DECODE, DECODE]


@pytest.mark.parametrize(
    ("level", "mode", "compilation"),
    [
        (0, NONE, CompilationMode.NONE),
        (1, PIECEWISE, CompilationMode.VLLM_COMPILE),
        (2, BOTH, CompilationMode.VLLM_COMPILE),
        (3, BOTH, CompilationMode.VLLM_COMPILE),
    ],
)
def test_optimization_levels(level: int, mode: CudaGraphMode, compilation: CompilationMode) -> None:
    found = config(optimization_level=level)

    assert (found.mode, found.compilation_mode) == (mode, compilation)


@pytest.mark.parametrize("mode", list(CudaGraphMode))
def test_a_written_mode_stands_where_nothing_is_against_it(mode: CudaGraphMode) -> None:
    found = config(mode=mode)

    assert (found.mode, found.mode_at_sizing) == (mode, mode)
    assert [step.after for step in found.steps] == ["mode=VLLM_COMPILE"]


@pytest.mark.parametrize("mode", [None, *CudaGraphMode])
def test_eager_is_always_without_graphs(mode: CudaGraphMode | None) -> None:
    found = config(mode=mode, enforce_eager=True)

    assert (found.mode, found.compilation_mode) == (NONE, CompilationMode.NONE)


def test_without_compilation_only_decode_graphs_are_left() -> None:
    assert config(torch_compile_disabled=True).mode is DECODE
    assert config(compilation_mode=CompilationMode.NONE).mode is DECODE
    assert config(compilation_mode=CompilationMode.NONE, mode=PIECEWISE).mode is NONE
    assert config(compilation_mode=CompilationMode.NONE, mode=FULL).mode is FULL


def test_breakable_graphs_keep_pieces_without_compilation() -> None:
    found = config(architectures=("DeepseekV4ForCausalLM",))

    assert (found.mode, found.compilation_mode) == (BOTH, CompilationMode.NONE)
    assert found.breakable.value
    assert not found.splits_attention
    assert found.findings == ()


def test_the_variable_overrides_the_architecture() -> None:
    off = resolve_breakable(
        ModeRequest(version="0.33.0", architectures=("DeepseekV4ForCausalLM",), breakable_variable=False)
    )
    on = resolve_breakable(ModeRequest(version="0.33.0", breakable_variable=True))

    assert (off.value, off.origin) == (False, Origin.SPEC)
    assert (on.value, on.origin) == (True, Origin.SPEC)


def test_0_32_does_not_break_graphs_of_newer_architectures() -> None:
    assert config("0.33.0", architectures=("Step5ForCausalLM",)).breakable.value
    assert not config("0.32.0", architectures=("Step5ForCausalLM",)).breakable.value


def test_the_longcat_hook_fills_only_what_is_not_set() -> None:
    longcat = ("LongcatFlashNgramForCausalLM",)

    assert (config(architectures=longcat).mode, config(architectures=longcat, mode=DECODE).mode) == (FULL, DECODE)
    assert config(architectures=longcat).compilation_mode is CompilationMode.NONE


def test_tiers_survive_on_v2_and_not_under_data_parallelism() -> None:
    kept = config(has_tiers=True, method="eagle3")
    dropped = config(has_tiers=True, method="eagle3", data_parallel_size=2)

    assert (kept.keeps_tiers, kept.mode) == (True, BOTH)
    assert (dropped.keeps_tiers, dropped.mode) == (False, BOTH)


def test_tiers_on_v1() -> None:
    kept = config(has_tiers=True, method="eagle3", **V1)
    dropped = config(has_tiers=True, method="suffix", **V1)
    older = config("0.32.0", has_tiers=True, method="suffix", **V1)

    assert (kept.keeps_tiers, kept.mode) == (True, PIECEWISE)
    assert (dropped.keeps_tiers, dropped.mode) == (False, BOTH)
    assert [(one.field, one.weight) for one in dropped.findings] == [("speculative.dynamic", Weight.WARNED)]
    assert (older.keeps_tiers, older.mode) == (True, PIECEWISE)


def test_hisparse_refuses_full() -> None:
    assert len(config(has_hisparse=True, mode=FULL).findings) == 1
    assert config(has_hisparse=True, mode=BOTH).findings == ()


def test_a_cpu_has_no_graphs() -> None:
    found = config(on_cpu=True)

    assert (found.mode, found.mode_at_sizing) == (NONE, NONE)
    assert found.compilation_mode is CompilationMode.DYNAMO_TRACE_ONCE
    assert config(on_cpu=True, has_lora=True).compilation_mode is CompilationMode.NONE


@pytest.mark.parametrize(
    ("mode", "pooling", "encoder_decoder"),
    [(FULL, PIECEWISE, DECODE), (BOTH, PIECEWISE, DECODE), (DECODE, PIECEWISE, DECODE), (PIECEWISE, PIECEWISE, DECODE)],
)
def test_kinds_of_models(mode: CudaGraphMode, pooling: CudaGraphMode, encoder_decoder: CudaGraphMode) -> None:
    assert config(mode=mode, is_pooling=True).mode is pooling
    assert config(mode=mode, is_encoder_decoder=True).mode is encoder_decoder


def test_connectors_between_layers_need_pieces() -> None:
    assert config(connector_needs_piecewise=True).mode is PIECEWISE
    assert config(connector_needs_piecewise=True, mode=NONE).mode is NONE


def test_which_connectors_work_between_layers() -> None:
    layerwise = {"kv_connector": "LMCacheConnectorV1", "kv_connector_extra_config": {"use_layerwise": True}}

    assert connector_needs_piecewise("LMCacheConnectorV1", {"use_layerwise": True})
    assert not connector_needs_piecewise("LMCacheConnectorV1", {})
    assert not connector_needs_piecewise("NixlConnector", {"use_layerwise": True})
    assert not connector_needs_piecewise(None, {})
    assert connector_needs_piecewise("MultiConnector", {"connectors": [{"kv_connector": "NixlConnector"}, layerwise]})
    assert not connector_needs_piecewise("MultiConnector", {"connectors": [{"kv_connector": "NixlConnector"}]})


def test_stock_compilation_has_no_graphs_on_v2() -> None:
    stock = CompilationMode.STOCK_TORCH_COMPILE

    v2 = config(compilation_mode=stock, mode=FULL)

    assert (v2.mode, v2.mode_at_sizing) == (NONE, FULL)
    assert config(compilation_mode=stock, mode=FULL, **V1).mode is FULL


def test_adaptive_verification_is_refused_for_three_reasons() -> None:
    found = config(enable_adaptive_verification=True, mode=PIECEWISE, has_lora=True, pipeline_parallel_size=2)

    assert [finding.because for finding in found.findings] == [
        "adaptive verification does not run with LoRA",
        "adaptive verification needs full graphs and the mode is `PIECEWISE`",
        "adaptive verification does not run with pipeline parallelism",
    ]
    assert config(enable_adaptive_verification=True).findings == ()


def test_eager_experts() -> None:
    moonep = {"all2all_backend": "moonep"}
    deepep = {"all2all_backend": "deepep_high_throughput", "data_parallel_size": 2}

    assert config(**moonep, uses_all2all=True).mode is NONE
    assert config(**moonep).mode is BOTH
    assert config(**deepep, expert_data_parallel_size=2).mode is NONE
    assert config(**deepep).mode is BOTH


def test_deepep_is_asked_only_where_the_model_is_compiled() -> None:
    found = config(
        all2all_backend="deepep_high_throughput",
        expert_data_parallel_size=2,
        compilation_mode=CompilationMode.NONE,
    )

    assert found.mode is DECODE


@pytest.mark.parametrize(
    ("mode", "expected"), [(PIECEWISE, NONE), (BOTH, FULL), (DECODE, DECODE), (FULL, FULL), (NONE, NONE)]
)
def test_a_model_in_one_piece(mode: CudaGraphMode, expected: CudaGraphMode) -> None:
    found = config(mode=mode, splitting_ops=())

    assert (found.mode, found.mode_at_sizing, found.splits_attention) == (expected, mode, False)


def test_fused_attention_quantization_leaves_one_piece() -> None:
    fused = config(fuses_attention_quantization=True)
    partitioned = config(fuses_attention_quantization=True, use_inductor_graph_partition=True)
    all_ops = MODE_FACTS["0.33.0"].attention_ops.value
    contradicting = config(fuses_attention_quantization=True, splitting_ops=all_ops)

    assert (fused.mode, fused.splits_attention) == (FULL, False)
    assert (partitioned.mode, partitioned.splits_attention) == (BOTH, True)
    assert [finding.field for finding in contradicting.findings] == ["compilation.splitting_ops"]


def test_steps_tell_the_story_in_order() -> None:
    found = config(is_pooling=True)

    assert [(step.before, step.after) for step in found.steps] == [
        ("mode=unset", "mode=VLLM_COMPILE"),
        ("unset", "FULL_AND_PIECEWISE"),
        ("FULL_AND_PIECEWISE", "PIECEWISE"),
    ]


def worker(mode: CudaGraphMode, support: AttentionCgSupport, q: int = 1, **changes: object) -> CudaGraphMode:
    request = WorkerRequest(mode=mode, support=support, backend="B", query_len_tokens_per_request=q, **changes)  # type: ignore[arg-type]
    return resolve_worker_mode(request).mode


ONE_PIECE = {"splits_attention": False}


@pytest.mark.parametrize(
    ("mode", "support", "q", "split", "whole"),
    [
        (FULL, ALWAYS, 8, FULL, FULL),
        (FULL, UNIFORM, 8, BOTH, DECODE),
        (FULL, UNIFORM, 1, BOTH, DECODE),
        (FULL, SINGLE, 1, BOTH, DECODE),
        (FULL, SINGLE, 8, PIECEWISE, NONE),
        (BOTH, ALWAYS, 8, BOTH, BOTH),
        (BOTH, UNIFORM, 8, BOTH, BOTH),
        (BOTH, SINGLE, 1, BOTH, BOTH),
        (BOTH, SINGLE, 8, PIECEWISE, NONE),
        (BOTH, NEVER, 1, PIECEWISE, NONE),
        (DECODE, NEVER, 8, PIECEWISE, NONE),
        (DECODE, SINGLE, 8, PIECEWISE, NONE),
        (PIECEWISE, NEVER, 8, PIECEWISE, PIECEWISE),
        (NONE, NEVER, 8, NONE, NONE),
    ],
)
def test_what_a_worker_makes_of_the_mode(
    mode: CudaGraphMode, support: AttentionCgSupport, q: int, split: CudaGraphMode, whole: CudaGraphMode
) -> None:
    assert worker(mode, support, q) is split
    assert worker(mode, support, q, **ONE_PIECE) is whole


def test_an_uncompiled_model_has_no_pieces_to_fall_back_to() -> None:
    assert worker(BOTH, NEVER, is_vllm_compiled=False) is NONE
    assert worker(BOTH, NEVER, use_inductor_graph_partition=True, **ONE_PIECE) is PIECEWISE


def test_full_without_any_support_is_refused() -> None:
    request = WorkerRequest(mode=FULL, support=NEVER, backend="B", query_len_tokens_per_request=1)

    found = resolve_worker_mode(request)

    assert [finding.because for finding in found.findings] == ["`FULL` does not run with attention backend `B`"]


def test_pieces_that_cannot_be_captured_are_dropped() -> None:
    assert worker(BOTH, ALWAYS, piecewise_available=False) is DECODE
    assert worker(PIECEWISE, ALWAYS, piecewise_available=False) is NONE
    assert worker(FULL, UNIFORM, piecewise_available=False) is DECODE


def test_adaptive_verification_has_a_decode_route_of_its_own() -> None:
    adaptive = {"enable_adaptive_verification": True}

    assert worker(FULL, ALWAYS, 6, **adaptive) is BOTH
    assert worker(DECODE, ALWAYS, 6, **adaptive) is DECODE
    assert worker(FULL, ALWAYS, 6, piecewise_available=False, **adaptive) is DECODE


@given(
    mode=st.sampled_from(CudaGraphMode),
    support=st.sampled_from(AttentionCgSupport),
    q=st.integers(1, 16),
    split=st.booleans(),
    v2=st.booleans(),
)
def test_a_settled_mode_stays_settled(
    mode: CudaGraphMode, support: AttentionCgSupport, q: int, split: bool, v2: bool
) -> None:
    request = WorkerRequest(
        mode=mode,
        support=support,
        backend="B",
        query_len_tokens_per_request=q,
        splits_attention=split,
        is_v2_runner=v2,
    )
    first = resolve_worker_mode(request)
    if first.findings:
        return
    again = WorkerRequest(
        mode=first.mode,
        support=support,
        backend="B",
        query_len_tokens_per_request=q,
        splits_attention=split,
        is_v2_runner=v2,
    )

    assert resolve_worker_mode(again).mode is first.mode
    assert not (first.mode.has_full() and support is NEVER)
    assert first.rounds_sizes_to_query_len == (not v2 and q > 1 and first.mode.has_full())


def test_both_halves_together() -> None:
    found = resolve_mode(ModeRequest(version="0.33.0"), SINGLE, "FLASHINFER", 8)

    assert (found.mode, found.mode_at_sizing) == (PIECEWISE, BOTH)
    assert found.steps[-1].because == "`FLASHINFER` captures decode of one token a request only"


def test_a_breakable_model_falls_further() -> None:
    request = ModeRequest(version="0.33.0", architectures=("DeepseekV32ForCausalLM",))

    assert resolve_mode(request, SINGLE, "X", 8).mode is NONE
    assert resolve_mode(request, UNIFORM, "X", 8).mode is BOTH


def test_a_model_that_is_not_compiled_after_all_loses_its_pieces() -> None:
    request = ModeRequest(version="0.33.0")

    assert resolve_mode(request, ALWAYS, "X", 1, supports_compile=False).mode is DECODE
    assert resolve_mode(ModeRequest(version="0.33.0", **V1), ALWAYS, "X", 1, supports_compile=False).mode is BOTH


@pytest.mark.parametrize("target", list(CudaGraphMode))
def test_step0_runs_as_the_target(target: CudaGraphMode) -> None:
    assert drafter_mode(DrafterRoutine.STEP0, target, SINGLE, breakable=False).value is target


@pytest.mark.parametrize(
    ("target", "later"), [(NONE, NONE), (PIECEWISE, NONE), (FULL, DECODE), (DECODE, DECODE), (BOTH, DECODE)]
)
def test_later_steps_and_blocks_have_decode_graphs_alone(target: CudaGraphMode, later: CudaGraphMode) -> None:
    assert drafter_mode(DrafterRoutine.LATER_STEPS, target, SINGLE, breakable=False).value is later
    assert drafter_mode(DrafterRoutine.BLOCK, target, UNIFORM, breakable=True).value is later
    assert drafter_mode(DrafterRoutine.BLOCK, target, SINGLE, breakable=True).value is NONE


@pytest.mark.parametrize(
    ("target", "breakable", "expected"),
    [
        (BOTH, True, BOTH),
        (BOTH, False, DECODE),
        (PIECEWISE, True, PIECEWISE),
        (PIECEWISE, False, NONE),
        (FULL, False, FULL),
        (DECODE, False, DECODE),
    ],
)
def test_multi_module_mtp(target: CudaGraphMode, breakable: bool, expected: CudaGraphMode) -> None:
    assert drafter_mode(DrafterRoutine.MULTI_MODULE_MTP, target, UNIFORM, breakable).value is expected


def test_multi_module_mtp_of_0_32_never_has_pieces() -> None:
    found = drafter_mode(DrafterRoutine.MULTI_MODULE_MTP, BOTH, UNIFORM, breakable=True, version="0.32.0")

    assert found.value is DECODE

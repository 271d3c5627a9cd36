"""What the engine fills in and refuses, against the engine: limits, modes, model runner, adapters, tiers.

Left: ``servespec.compiler.resolve``. Right: ``engine_oracle`` and, for what Model Runner V1 refuses, the engine's own
method on the same stand-ins.  Small spaces are compared whole, the others on random requests.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servespec.compiler.facts.architectures import BREAKABLE_ARCHITECTURES
from servespec.compiler.facts.cudagraph_mode import AttentionCgSupport, CompilationMode, CudaGraphMode
from servespec.compiler.facts.devices import Device
from servespec.compiler.graphs.tiers import tiers_up_to
from servespec.compiler.resolve import batch_limits, config_mode, model_runner
from servespec.compiler.resolve.batch_limits import BatchRequest, Drafting, resolve_batch_limits
from servespec.compiler.resolve.config_mode import ModeRequest, resolve_config_mode
from servespec.compiler.resolve.drafter_mode import DrafterRoutine, drafter_mode
from servespec.compiler.resolve.model_runner import ModelRunner, RunnerRequest, resolve_model_runner
from servespec.compiler.resolve.step import Weight, refused
from servespec.compiler.resolve.worker_mode import WorkerRequest, resolve_worker_mode
from servespec.units import Bytes, Requests
from tests.differential import engine_oracle as oracle
from tests.differential import stand_ins
from tests.differential.engine_oracle import Refusal
from tests.differential.stand_ins import Machine, Speculation
from tests.plans import compiled, spec_of

pytestmark = pytest.mark.engine

every_root = pytest.mark.parametrize(
    "root",
    oracle.available_roots() or [pytest.param(None, marks=pytest.mark.skip(reason="no engine under .engines"))],
    ids=lambda root: root.name if root else "none",
)
many = settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])

MODES = [mode.value for mode in CudaGraphMode]
GIB = 1 << 30
METHODS = ("eagle", "eagle3", "mtp", "dflash", "dspark", "draft_model", "ngram", "suffix", "custom_class", "medusa")


def version_of(root: Path) -> str:
    return oracle.engine_version(root)


# -- Batch limits -----------------------------------------------------------------------------------------

machines = st.builds(
    Machine,
    capability=st.sampled_from([(8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)]),
    memory_bytes=st.sampled_from([70 * GIB, 160 * GIB]).flatmap(
        lambda edge: st.sampled_from([edge - 1, edge, edge + 1])
    )
    | st.integers(1, 300 * GIB),
    name=st.sampled_from(["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "nvidia a100x", "NVIDIA GB10", "NVIDIA GB200"]),
)
limits = st.fixed_dictionaries(
    {
        "max_model_len": st.sampled_from([1, 7, 512, 4096, 32768, 1 << 20]) | st.integers(1, 20000),
        "max_num_seqs": st.none() | st.integers(1, 3000),
        "max_num_batched_tokens": st.none() | st.integers(1, 40000),
        "performance_mode": st.sampled_from(["balanced", "interactivity", "throughput"]),
        "enable_chunked_prefill": st.booleans(),
        "prefix_lm_item_tokens": st.none() | st.integers(1, 40000),
        "world_size": st.sampled_from([1, 2, 8]),
        "data_parallel_size": st.sampled_from([1, 1, 2]),
        "enable_expert_parallel": st.booleans(),
        "all2all_backend": st.sampled_from(
            ["allgather_reducescatter", "deepep_low_latency", "deepep_high_throughput", "nixl_ep"]
        ),
    }
)


def device_of(machine: Machine) -> Device:
    return Device(
        name="a-gpu",
        device_name=machine.name,
        compute_capability=machine.capability,
        total_memory_bytes=Bytes(machine.memory_bytes),
        sm_count=1,
    )


def batch_request(root: Path, machine: Machine, asked: Mapping[str, Any]) -> BatchRequest:
    same = ("max_num_seqs", "max_num_batched_tokens", "performance_mode", "enable_chunked_prefill")
    layout = ("data_parallel_size", "enable_expert_parallel", "all2all_backend", "prefix_lm_item_tokens")
    return BatchRequest(
        device=device_of(machine),
        version=version_of(root),
        max_model_len_tokens=asked["max_model_len"],
        tensor_parallel_size=asked["world_size"],
        is_multimodal_prefix_lm=asked["prefix_lm_item_tokens"] is not None,
        **{name: asked[name] for name in (*same, *layout)},
    )


@every_root
@given(machine=machines, asked=limits)
@many
def test_batch_limits(root: Path, machine: Machine, asked: dict[str, Any]) -> None:
    ours = resolve_batch_limits(batch_request(root, machine, asked))

    assert (ours.max_num_seqs.value, ours.max_num_batched_tokens.value) == oracle.batch_defaults(root, machine, **asked)


drafting = st.fixed_dictionaries(
    {
        "method": st.sampled_from(METHODS),
        "num_speculative_tokens": st.integers(1, 20),
        "parallel_drafting": st.booleans(),
        "sample_from_anchor": st.booleans(),
    }
)


def speculation_of(drafts: Mapping[str, Any]) -> Speculation:
    """The config as ``SpeculativeConfig.__post_init__`` leaves it: block drafters always draft in parallel."""
    return Speculation(
        num_speculative_tokens=drafts["num_speculative_tokens"],
        method=drafts["method"],
        parallel_drafting=drafts["parallel_drafting"] or drafts["method"] in ("dflash", "dspark"),
        draft_config={"sample_from_anchor": drafts["sample_from_anchor"]},
    )


class Scheduling(NamedTuple):
    refused: bool
    max_num_active_seqs: int | None


@every_root
@given(
    drafts=drafting,
    seqs=st.integers(1, 2000),
    tokens=st.integers(1, 30) | st.integers(1, 20000),
    active=st.none() | st.integers(1, 2000),
)
@many
def test_scheduling_limits(root: Path, drafts: dict[str, Any], seqs: int, tokens: int, active: int | None) -> None:
    ours = resolve_batch_limits(
        BatchRequest(
            device=device_of(Machine()),
            version=version_of(root),
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            max_num_active_seqs=active,
            max_model_len_tokens=1 << 20,
            drafting=Drafting(**drafts),
        )
    )
    engine = oracle.scheduling_limits(
        root,
        speculation_of(drafts),
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        max_num_active_seqs=active,
    )

    assert our_scheduling(ours) == engine_scheduling(engine)


def our_scheduling(ours: batch_limits.BatchLimits) -> Scheduling:
    stopped = any("slots of drafting" in finding.because for finding in refused(ours.findings))
    return Scheduling(stopped, None if stopped else ours.max_num_active_seqs.value)


def engine_scheduling(engine: int | Refusal | None) -> Scheduling:
    return Scheduling(True, None) if isinstance(engine, Refusal) else Scheduling(False, engine)


# -- Modes ------------------------------------------------------------------------------------------------


class WorkerCase(NamedTuple):
    mode: str
    support: str
    query_len: int
    compiled: bool
    splits: bool
    partition: bool
    pieces: bool
    adaptive: bool


def worker_cases() -> Iterator[WorkerCase]:
    """Every combination; the engine verifies adaptively only where the configured mode has full graphs."""
    supports = [level.name for level in AttentionCgSupport]
    for mode, support, query_len in product(MODES, supports, (1, 2, 8)):
        adaptive = (False, True) if CudaGraphMode(mode).has_full() else (False,)
        for switches in product(*((False, True),) * 4, adaptive):
            yield WorkerCase(mode, support, query_len, *switches)


def our_worker_mode(case: WorkerCase) -> str:
    found = resolve_worker_mode(
        WorkerRequest(
            mode=CudaGraphMode(case.mode),
            support=AttentionCgSupport[case.support],
            backend="stand-in",
            query_len_tokens_per_request=case.query_len,
            is_vllm_compiled=case.compiled,
            splits_attention=case.splits,
            use_inductor_graph_partition=case.partition,
            piecewise_available=case.pieces,
            enable_adaptive_verification=case.adaptive,
        )
    )
    return "refused" if found.findings else found.mode.value


def engine_worker_mode(root: Path, case: WorkerCase) -> str:
    found = oracle.resolve_mode(
        root,
        mode=case.mode,
        support=case.support,
        decode_query_len=case.query_len,
        compiled=case.compiled,
        splitting_ops_contain_attention=case.splits,
        use_inductor_graph_partition=case.partition,
        piecewise_capture_available=case.pieces,
        adaptive_verification=case.adaptive,
    )
    return "refused" if isinstance(found, Refusal) else found


@every_root
def test_every_mode_of_a_worker(root: Path) -> None:
    cases = list(worker_cases())
    engine = {case: engine_worker_mode(root, case) for case in cases}

    assert {case: our_worker_mode(case) for case in cases} == engine
    assert {*engine.values()} == {"refused", *MODES}


@every_root
@pytest.mark.parametrize("breakable", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_modes_whose_pieces_do_not_exist(root: Path, is_compiled: bool, breakable: bool) -> None:
    compilation = CompilationMode.VLLM_COMPILE if is_compiled else CompilationMode.NONE
    ours = {
        mode: resolve_config_mode(
            ModeRequest(
                version=version_of(root),
                mode=CudaGraphMode(mode),
                compilation_mode=compilation,
                breakable_variable=breakable,
            )
        ).mode_at_sizing.value
        for mode in MODES
    }

    assert ours == {
        mode: oracle.normalized_mode(
            root, mode=mode, compiled=is_compiled and not breakable, breakable_graphs=breakable
        )
        for mode in MODES
    }


_MANAGERS = {
    DrafterRoutine.STEP0: ("eagle3", "prefill_cudagraph_manager"),
    DrafterRoutine.LATER_STEPS: ("eagle3", "decode_cudagraph_manager"),
    DrafterRoutine.BLOCK: ("dflash", "query_cudagraph_manager"),
    DrafterRoutine.MULTI_MODULE_MTP: ("mtp", "cudagraph_manager"),
}


@every_root
@pytest.mark.parametrize("routine", DrafterRoutine)
def test_every_mode_of_a_drafter(root: Path, routine: DrafterRoutine) -> None:
    method, attribute = _MANAGERS[routine]
    drafts = Speculation(num_speculative_tokens=3, method=method, draft_config={"num_nextn_predict_layers": 3})
    cases = list(product(MODES, [level.name for level in AttentionCgSupport], (False, True)))
    engine = {
        (mode, support, breakable): oracle.drafter_managers(
            root,
            drafts if attribute == "cudagraph_manager" else Speculation(num_speculative_tokens=3, method=method),
            sizes=(1, 2, 4, 8),
            max_size=8,
            max_num_seqs=4,
            mode=mode,
            breakable_graphs=breakable,
            draft_support=support,
        )[attribute].mode
        for mode, support, breakable in cases
    }

    assert {
        (mode, support, breakable): drafter_mode(
            routine, CudaGraphMode(mode), AttentionCgSupport[support], breakable, version_of(root)
        ).value.value
        for mode, support, breakable in cases
    } == engine


@every_root
@pytest.mark.parametrize("mode", MODES)
def test_what_adaptive_verification_refuses(root: Path, mode: str) -> None:
    drafts = Speculation(num_speculative_tokens=3, method="dspark", enable_adaptive_verification=True)
    for lora, stages in product((False, True), (1, 2)):
        ours = resolve_config_mode(
            ModeRequest(
                version=version_of(root),
                mode=CudaGraphMode(mode),
                has_lora=lora,
                pipeline_parallel_size=stages,
                enable_adaptive_verification=True,
            )
        ).findings
        engine = oracle.adaptive_verification_refusal(root, drafts, mode=mode, lora=lora, pipeline_parallel_size=stages)

        assert [finding.field for finding in ours[:1]] == ([] if engine is None else [config_mode.ADAPTIVE])
        assert {finding.weight for finding in ours} <= {Weight.REFUSED}


@every_root
def test_breakable_architectures(root: Path) -> None:
    assert BREAKABLE_ARCHITECTURES[version_of(root)].value == oracle.breakable_architectures(root)


# -- The model runner -------------------------------------------------------------------------------------

_ENGINES_WORDS = {
    "pipeline parallelism with external_launcher": "pipeline parallelism under the external launcher",
    "parallel drafting for EAGLE speculative decoding": "parallel drafting outside DFlash and DSpark",
    "heterogeneous-vocabulary draft models": "draft models with a vocabulary of their own",
    "dual batch overlap": f"microbatches unless `{model_runner.VARIABLE}` is 1",
    "dual batch overlap with LoRA": "microbatches with LoRA",
    "dual batch overlap with speculative decoding": "microbatches with speculative decoding",
    "dual batch overlap with pipeline parallelism": "microbatches with pipeline parallelism",
    "dual batch overlap with context parallelism": "microbatches with context parallelism",
    "dual batch overlap with PIECEWISE CUDA graphs": "microbatches with piecewise graphs alone",
    "prefill context parallel": "prefill context parallelism",
    "pipeline parallelism with async scheduling": "pipeline parallelism with asynchronous scheduling",
    "dspark speculative decoding": "DSpark",
    "xpress speculative decoding": "XPress drafts",
    "adaptive draft verification": "adaptive verification",
    "draft lm_head quantization": "draft head quantization",
    "Parse 3.5 MTP": "attention-free MTP drafts",
    "mixed sliding/full dflash drafts": "DFlash drafts of mixed attention",
    "DFlash candidate-head drafts": "DFlash drafts with candidate heads",
    "diffusion models": "diffusion models",
    "batch-sharded sampling": "batch-sharded sampling",
    "Step5": "architecture `Step5ForCausalLM`",
}


def in_our_words(feature: str) -> str:
    if feature.startswith("speculative method "):
        return feature.replace("'", "`")
    return _ENGINES_WORDS[feature]


layouts = st.fixed_dictionaries(
    {
        "distributed_executor_backend": st.sampled_from([None, "mp", "external_launcher"]),
        "pipeline_parallel_size": st.sampled_from([1, 2]),
        "decode_context_parallel_size": st.sampled_from([1, 1, 2]),
        "prefill_context_parallel_size": st.sampled_from([1, 1, 2]),
        "enable_batch_sharded_sampling": st.booleans(),
    }
)
microbatches = st.sampled_from([{}, {"enable_dbo": True}, {"ubatch_size": 2}, {"ubatch_size": 1}])
drafts_or_none = st.none() | st.builds(
    Speculation,
    num_speculative_tokens=st.just(3),
    method=st.sampled_from(METHODS),
    parallel_drafting=st.booleans(),
    use_heterogeneous_vocab=st.booleans(),
    enable_adaptive_verification=st.booleans(),
    draft_lm_head_quantization=st.none() | st.just("fp8"),
    draft_architectures=st.sampled_from(
        [
            (),
            ("Qwen3XPressModel",),
            ("ParseAuxMTPModel",),
            ("DFlash2DraftModel",),
            ("DFlash2BeamDraftModel",),
            ("LiLiCorrDraftModel",),
        ]
    ),
    draft_config=st.sampled_from(
        [
            {},
            {"layer_types": ["sliding_attention", "full_attention"]},
            {"layer_types": ["sliding_attention"] * 2},
            {"layer_types": ["full_attention"]},
        ]
    ),
)


def runner_request(
    root: Path, layout: Mapping[str, Any], batches: Mapping[str, Any], drafts: Speculation | None, **rest: Any
) -> RunnerRequest:
    speculative: dict[str, Any] = {}
    if drafts is not None:
        speculative = {
            "method": drafts.method,
            "parallel_drafting": drafts.parallel_drafting,
            "use_heterogeneous_vocab": drafts.use_heterogeneous_vocab,
            "enable_adaptive_verification": drafts.enable_adaptive_verification,
            "draft_lm_head_quantization": drafts.draft_lm_head_quantization is not None,
            "draft_architectures": drafts.draft_architectures,
            "draft_layer_types": tuple(drafts.draft_config.get("layer_types", ())),
        }
    uses = batches.get("enable_dbo", False) or batches.get("ubatch_size", 0) > 1
    return RunnerRequest(version=version_of(root), uses_microbatches=uses, **layout, **speculative, **rest)


@every_root
@given(
    layout=layouts,
    batches=microbatches,
    drafts=drafts_or_none,
    lora=st.booleans(),
    mode=st.sampled_from(MODES),
    variable=st.sampled_from([None, False, True]),
    hisparse=st.booleans(),
    watermark=st.booleans(),
    triton=st.sampled_from([True, True, False]),
)
@many
def test_the_model_runner(
    root: Path,
    layout: dict[str, Any],
    batches: dict[str, Any],
    drafts: Speculation | None,
    lora: bool,
    mode: str,
    variable: bool | None,
    hisparse: bool,
    watermark: bool,
    triton: bool,
) -> None:
    request = runner_request(
        root,
        layout,
        batches,
        drafts,
        has_lora=lora,
        mode=CudaGraphMode(mode),
        variable=variable,
        has_hisparse=hisparse,
        has_watermark=watermark,
        has_triton=triton,
    )
    machine = Machine(v2_model_runner=variable, triton=triton)
    asked: dict[str, Any] = {"speculation": drafts, "lora": lora, "mode": mode, **layout, **batches}
    lacks = oracle.model_runner_v2_unsupported(root, machine, **asked)
    chosen = oracle.uses_v2_model_runner(root, machine, hisparse=hisparse, watermark=watermark, **asked)
    ours = resolve_model_runner(request)

    assert model_runner.v2_unsupported(request) == tuple(map(in_our_words, lacks))
    if isinstance(chosen, Refusal):
        assert [finding.because.split()[0] for finding in ours.findings[:1]] == ["HiSparse"]
    else:
        assert ours.runner.value is (ModelRunner.V2 if chosen else ModelRunner.V1)


def engine_v1_unsupported(
    root: Path, layout: Mapping[str, Any], drafts: Speculation | None, asynchronous: bool | None, model: Any
) -> list[str]:
    """``VllmConfig._get_v1_model_runner_unsupported_features`` in our words."""
    lifted = stand_ins.engine(root)
    config = stand_ins.vllm_config(
        lifted,
        model_config=model,
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
        speculative_config=stand_ins.speculative(lifted, drafts),
        parallel_config=stand_ins.parallel(lifted, **layout),
    )
    return sorted(map(in_our_words, config._get_v1_model_runner_unsupported_features()))


@every_root
@given(
    layout=layouts,
    drafts=drafts_or_none,
    asynchronous=st.sampled_from([None, False, True]),
    diffusion=st.booleans(),
    architecture=st.sampled_from(["Step5ForCausalLM", "Qwen3ForCausalLM"]),
)
@many
def test_what_model_runner_v1_lacks(
    root: Path,
    layout: dict[str, Any],
    drafts: Speculation | None,
    asynchronous: bool | None,
    diffusion: bool,
    architecture: str,
) -> None:
    request = runner_request(
        root,
        layout,
        {},
        drafts,
        async_scheduling=asynchronous,
        is_diffusion=diffusion,
        architectures=(architecture,),
    )
    model = SimpleNamespace(is_diffusion=diffusion, architecture=architecture)

    assert sorted(model_runner.v1_unsupported(request)) == engine_v1_unsupported(
        root, layout, drafts, asynchronous, model
    )


# -- Adapters and tiers -----------------------------------------------------------------------------------


@every_root
@pytest.mark.usefixtures("quiet_shell")
@pytest.mark.parametrize("specialize_lora", [True, False])
@pytest.mark.parametrize("specialize_active", [True, False])
def test_lora_cases(root: Path, specialize_active: bool, specialize_lora: bool) -> None:
    switches = {"specialize_active_lora": specialize_active, "cudagraph_specialize_lora": specialize_lora}
    counts = (1, 2, 3, 4, 7, 8, 15, 31)
    ours = {
        most: compiled(
            spec_of(
                "llama-3.1-8b",
                "h200",
                engine={"version": version_of(root)},
                lora={"max_loras": most, **switches},
            )
        ).resolution.frame.lora_cases
        for most in counts
    }

    assert ours == {most: oracle.lora_cases(root, max_loras=most, **switches) for most in counts}


@every_root
def test_without_adapters_there_is_one_case(root: Path) -> None:
    plan = compiled(spec_of("llama-3.1-8b", "h200", engine={"version": version_of(root)}))

    assert plan.resolution.frame.lora_cases == oracle.lora_cases(root, max_loras=None) == (0,)


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Ranges that start at 1 and do not overlap, with gaps, in any order."""
    starts = sorted({1, *draw(st.sets(st.integers(2, 300), max_size=6))})
    ends = [start - 1 for start in starts[1:]] + [400]
    ranges = [(a, draw(st.integers(a, b)), draw(st.integers(0, 12))) for a, b in zip(starts, ends, strict=True)]
    return draw(st.permutations(ranges))


@every_root
@given(schedule=schedules(), max_num_seqs=st.integers(1, 320), k=st.integers(1, 10))
@settings(many, max_examples=200)
def test_tiers(root: Path, schedule: list[tuple[int, int, int]], max_num_seqs: int, k: int) -> None:
    tiers = tiers_up_to(schedule, Requests(max_num_seqs), k)
    unrolled = [t.num_speculative_tokens for t in tiers for _ in range(t.from_requests, t.to_requests + 1)]
    dense = oracle.dense_schedule(root, schedule, max_num_seqs=max_num_seqs, num_speculative_tokens=k)

    assert isinstance(dense, tuple)
    assert unrolled == list(dense[1:])
    assert all(a.num_speculative_tokens != b.num_speculative_tokens for a, b in pairwise(tiers))

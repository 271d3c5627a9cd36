"""The oracle against numbers that are known from elsewhere, and against itself with a fault put in.

The counts are those of vLLM pull request "separate prefill/decode graph sizes" (its columns for the engine
without the change) and of the same quantities read off real objects of 0.33.0.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.differential import engine_oracle as oracle
from tests.differential.engine_oracle import Graph, Manager, Refusal, Sizes
from tests.differential.stand_ins import Machine, Schedule, Speculation

pytestmark = pytest.mark.engine

ROOTS = oracle.available_roots()
GIB = 1 << 30
WIDE_SEQS = 1024
SCHEDULE_7_3_1 = ((1, 16, 7), (17, 128, 3), (129, WIDE_SEQS, 1))


@pytest.fixture(
    params=ROOTS or [pytest.param(None, marks=pytest.mark.skip(reason="no engine under .engines"))],
    ids=lambda root: root.name if root else "none",
)
def root(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def step_limit(sm100: bool) -> int:
    return 16384 if sm100 else 8192


def sizes_of(root: Path, sm100: bool, k: int, schedule: Schedule | None = None, max_num_seqs: int = WIDE_SEQS) -> Sizes:
    sizes = oracle.stock_capture_sizes(
        root,
        sm100=sm100,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=step_limit(sm100),
        num_speculative_tokens=k,
        schedule=schedule,
    )
    assert isinstance(sizes, Sizes)
    return sizes


def target_of(
    root: Path,
    sm100: bool,
    k: int,
    schedule: Schedule | None = None,
    max_num_seqs: int = WIDE_SEQS,
    varlen_decode: bool = False,
) -> Manager:
    sizes = sizes_of(root, sm100, k, schedule, max_num_seqs)
    return oracle.stock_manager(
        root,
        sizes=sizes.capture_sizes,
        max_size=sizes.max_capture_size,
        max_num_seqs=max_num_seqs,
        mode="FULL_AND_PIECEWISE",
        decode_query_len=1 + k,
        num_speculative_tokens=k,
        schedule=schedule,
        varlen_decode=varlen_decode,
    )


def drafters_of(
    root: Path, sm100: bool, speculation: Speculation, **settings: object
) -> dict[str, oracle.DrafterManager]:
    sizes = sizes_of(root, sm100, speculation.num_speculative_tokens, speculation.schedule)
    return oracle.drafter_managers(
        root,
        speculation,
        sizes=sizes.capture_sizes,
        max_size=sizes.max_capture_size,
        max_num_seqs=WIDE_SEQS,
        mode="FULL_AND_PIECEWISE",
        **settings,  # type: ignore[arg-type]
    )


def count_at_reach(graphs: Sequence[Graph], mode: str, in_tokens: bool = False) -> str:
    own = [graph for graph in graphs if graph.mode == mode]
    reach = max(graph.num_tokens if in_tokens else graph.num_requests or 0 for graph in own)
    return f"{len(own)}@{reach}"


# -- The capture list and the managers made of it ---------------------------------------------------------

COLUMNS = (0, 1, 2, 3, 5, 7, 15)


@pytest.mark.parametrize(
    ("sm100", "expected"),
    [
        (True, ["83@1024", "83@1024", "97@1024", "83@1024", "85@1024", "83@1024", "83@1024"]),
        (False, ["51@512", "51@512", "60@512", "51@512", "53@512", "51@512", "51@512"]),
    ],
)
def test_target_piecewise(root: Path, sm100: bool, expected: list[str]) -> None:
    actual = [count_at_reach(target_of(root, sm100, k).descs, "PIECEWISE", in_tokens=True) for k in COLUMNS]

    assert actual == expected


@pytest.mark.parametrize(
    ("sm100", "expected"),
    [
        (True, ["83@1024", "82@512", "93@336", "81@256", "80@168", "80@128", "64@64"]),
        (False, ["51@512", "50@256", "56@168", "49@128", "48@83", "48@64", "32@32"]),
    ],
)
def test_target_uniform_decode(root: Path, sm100: bool, expected: list[str]) -> None:
    actual = [count_at_reach(target_of(root, sm100, k).descs, "FULL") for k in COLUMNS]

    assert actual == expected


@pytest.mark.parametrize(
    ("sm100", "expected"),
    [
        (True, ["83@1024", "97@1024", "83@1024", "85@1024", "83@1024", "83@1024"]),
        (False, ["51@512", "60@512", "51@512", "53@512", "51@512", "51@512"]),
    ],
)
def test_one_token_draft_decodes(root: Path, sm100: bool, expected: list[str]) -> None:
    managers = [
        drafters_of(root, sm100, Speculation(num_speculative_tokens=k))["decode_cudagraph_manager"] for k in COLUMNS[1:]
    ]

    assert [count_at_reach(m.planned, "FULL") for m in managers] == expected
    assert [m.captured == m.planned for m in managers] == [False, True, True, True, True, True]
    assert managers[0].captured == ()


@pytest.mark.parametrize(
    ("sm100", "expected"),
    [
        (True, ["83@1024", "95@512", "81@336", "81@202", "80@144", "65@68"]),
        (False, ["51@512", "58@256", "49@166", "49@100", "48@71", "33@34"]),
    ],
)
def test_dspark_blocks_of_k(root: Path, sm100: bool, expected: list[str]) -> None:
    managers = [
        drafters_of(root, sm100, Speculation(num_speculative_tokens=k, method="dspark"))["query_cudagraph_manager"]
        for k in COLUMNS[1:]
    ]

    assert [count_at_reach(m.captured, "FULL") for m in managers] == expected


@pytest.mark.parametrize(("sm100", "k", "expected"), [(True, 5, "85@1024"), (False, 5, "53@512"), (True, 2, "97@1024")])
def test_adaptive_verification(root: Path, sm100: bool, k: int, expected: str) -> None:
    manager = target_of(root, sm100, k, varlen_decode=True)

    assert count_at_reach(manager.descs, "FULL", in_tokens=True) == expected
    assert {graph.max_query_len for graph in manager.descs if graph.mode == "FULL"} == {1 + k}


@pytest.mark.parametrize(("sm100", "target", "one_token"), [(True, 243, 166), (False, 147, 102)])
def test_dynamic_speculation_7_3_1(root: Path, sm100: bool, target: int, one_token: int) -> None:
    speculation = Speculation(num_speculative_tokens=7, schedule=SCHEDULE_7_3_1)
    graphs = target_of(root, sm100, 7, SCHEDULE_7_3_1).descs
    fused = drafters_of(root, sm100, speculation)["decode_cudagraph_manager"]
    stepwise = drafters_of(root, sm100, speculation, in_place_metadata=False)["decode_cudagraph_manager"]

    assert sum(graph.mode == "FULL" for graph in graphs) == target
    assert len(fused.captured) == one_token
    assert {graph.drafts for graph in fused.captured} == {7, 3}
    assert len(stepwise.captured) == one_token // 2


@pytest.mark.parametrize(
    ("method", "draft_config", "expected"),
    [
        ("dflash", {}, {"query_cudagraph_manager": ("FULL_DECODE_ONLY", 8, 243)}),
        ("dspark", {}, {"query_cudagraph_manager": ("FULL_DECODE_ONLY", 7, 80)}),
        ("dspark", {"sample_from_anchor": False}, {"query_cudagraph_manager": ("FULL_DECODE_ONLY", 8, 243)}),
        ("mtp", {"num_nextn_predict_layers": 3}, {"cudagraph_manager": ("FULL_DECODE_ONLY", 8, 243)}),
        ("ngram", {}, {}),
        ("draft_model", {}, {}),
        ("extract_hidden_states", {}, {}),
    ],
)
def test_drafters_under_dynamic_speculation(
    root: Path, method: str, draft_config: dict[str, object], expected: dict[str, tuple[str, int, int]]
) -> None:
    speculation = Speculation(
        num_speculative_tokens=7, method=method, schedule=SCHEDULE_7_3_1, draft_config=draft_config
    )

    managers = drafters_of(root, True, speculation)

    assert {n: (m.mode, m.decode_query_len, len(m.captured)) for n, m in managers.items()} == expected


def test_block_drafter_without_uniform_batch_support_is_eager(root: Path) -> None:
    speculation = Speculation(num_speculative_tokens=7, method="dflash")

    managers = drafters_of(root, True, speculation, draft_support="UNIFORM_SINGLE_TOKEN_DECODE")

    assert managers["query_cudagraph_manager"].mode == "NONE"
    assert managers["query_cudagraph_manager"].captured == ()


@pytest.mark.parametrize(
    ("max_num_seqs", "k", "piecewise", "full"),
    [(256, 0, "51@512", "35@256"), (64, 7, "83@1024", "80@64"), (8, 7, "19@128", "8@8")],
)
def test_small_batches_on_sm100(root: Path, max_num_seqs: int, k: int, piecewise: str, full: str) -> None:
    graphs = target_of(root, True, k, max_num_seqs=max_num_seqs).descs
    decode = [graph for graph in graphs if graph.mode == "FULL"]

    assert count_at_reach(graphs, "PIECEWISE", in_tokens=True) == piecewise
    assert max(graph.num_requests or 0 for graph in decode) == max_num_seqs
    if k == 0 or max_num_seqs == 8:
        assert count_at_reach(graphs, "FULL") == full


@pytest.mark.parametrize("k", [0, 3, 5, 7])
def test_gpt_oss_keeps_its_own_maximum(root: Path, k: int) -> None:
    sizes = oracle.stock_capture_sizes(
        root,
        sm100=False,
        max_num_seqs=WIDE_SEQS,
        max_num_batched_tokens=8192,
        num_speculative_tokens=k,
        gpt_oss=True,
    )
    assert isinstance(sizes, Sizes)
    manager = oracle.stock_manager(
        root,
        sizes=sizes.capture_sizes,
        max_size=sizes.max_capture_size,
        max_num_seqs=WIDE_SEQS,
        mode="FULL_AND_PIECEWISE",
        decode_query_len=1 + k,
        num_speculative_tokens=k,
    )

    assert (len(sizes.capture_sizes), sizes.max_capture_size) == (83, 1024)
    assert sum(g.mode == "FULL" for g in manager.descs) == {0: 83, 3: 81, 5: 80, 7: 80}[k]


def test_an_explicit_maximum_loses_the_widest_decode_batch(root: Path) -> None:
    sizes = oracle.stock_capture_sizes(
        root, sm100=True, max_num_seqs=6, max_num_batched_tokens=8192, num_speculative_tokens=6, max_size=42
    )

    assert sizes == Sizes((1, 2, 4, 8, 16, 24, 32, 40), 40)


@pytest.mark.parametrize(
    ("written", "kind"),
    [({"sizes": []}, "AssertionError"), ({"sizes": [1, 8], "max_size": 16}, "ValueError")],
)
def test_refused_lists(root: Path, written: dict[str, object], kind: str) -> None:
    answer = oracle.stock_capture_sizes(
        root,
        sm100=True,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        **written,  # type: ignore[arg-type]
    )

    assert isinstance(answer, Refusal)
    assert answer.kind == kind


# -- Dispatch ---------------------------------------------------------------------------------------------


class LadderMisses(NamedTuple):
    missed: int
    reachable: int


def ladder_misses(root: Path, sm100: bool, k: int, schedule: Schedule, max_num_seqs: int) -> LadderMisses:
    """Batch sizes that a FULL graph of their own query length could hold, and how many get another answer."""
    manager = target_of(root, sm100, k, schedule, max_num_seqs)
    ks = oracle.dense_schedule(root, schedule, max_num_seqs=max_num_seqs, num_speculative_tokens=k)
    assert isinstance(ks, tuple)
    widest: dict[int, int] = {}
    for graph in manager.descs:
        if graph.uniform_token_count is not None:
            assert graph.num_requests is not None
            widest[graph.uniform_token_count] = max(graph.num_requests, widest.get(graph.uniform_token_count, 0))
    reachable = [(n, 1 + ks[n]) for n in range(1, max_num_seqs + 1) if n <= widest.get(1 + ks[n], 0)]
    missed = sum(manager.dispatch(n, n * q, q, 0, q).mode != "FULL" for n, q in reachable)
    return LadderMisses(missed, len(reachable))


@pytest.mark.parametrize(
    ("schedule", "sm100", "max_num_seqs", "expected"),
    [
        (SCHEDULE_7_3_1, True, 1024, (0, 512)),
        (((1, 16, 5), (17, 128, 3), (129, 1024, 1)), True, 1024, (64, 512)),
        (((1, 16, 5), (17, 128, 3), (129, 1024, 1)), False, 1024, (32, 256)),
        (((1, 32, 6), (33, 128, 4), (129, 1024, 2)), True, 1024, (115, 336)),
        (((1, 32, 5), (33, 1024, 2)), True, 1024, (30, 336)),
        (((1, 16, 4), (17, 32, 2), (33, 128, 0)), True, 128, (39, 128)),
    ],
)
def test_interleaved_tiers_lose_full_coverage(
    root: Path, schedule: Schedule, sm100: bool, max_num_seqs: int, expected: tuple[int, int]
) -> None:
    k = max(entry[2] for entry in schedule)

    assert ladder_misses(root, sm100, k, schedule, max_num_seqs) == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ((200, 800, 4), ("FULL", 800, 200)),
        ((257, 1028, 4), ("NONE", 1028, 257)),
        ((200, 800, None), ("PIECEWISE", 800, None)),
        ((200, 1100, None), ("NONE", 1100, 200)),
        ((100, 100, 1), ("PIECEWISE", 104, None)),
        ((3, 12, 4), ("FULL", 16, 4)),
    ],
)
def test_dispatch_at_k_3_on_sm100(
    root: Path, step: tuple[int, int, int | None], expected: tuple[str, int, int | None]
) -> None:
    graph = target_of(root, True, 3).dispatch(*step)

    assert graph[:3] == expected


def test_a_step_with_a_prefill_takes_no_verification_graph(root: Path) -> None:
    manager = target_of(root, True, 3, varlen_decode=True)

    assert manager.dispatch(8, 20, None, 0, 4).mode == "FULL"
    assert manager.dispatch(8, 20, None, 0, None).mode == "PIECEWISE"
    assert manager.dispatch(8, 20, None, 0, 5).mode == "PIECEWISE"


def test_the_engine_captures_what_it_planned(root: Path) -> None:
    manager = target_of(root, True, 7, SCHEDULE_7_3_1)

    assert manager.captured() == manager.descs


def test_lora_cases_and_microbatches_multiply_graphs(root: Path) -> None:
    cases = oracle.lora_cases(root, max_loras=4, specialize_active_lora=True)
    sizes = (1, 2, 4, 8, 16, 24, 32, 40)
    manager = oracle.stock_manager(
        root,
        sizes=sizes,
        max_size=40,
        max_num_seqs=40,
        mode="FULL_AND_PIECEWISE",
        decode_query_len=1,
        lora_cases=cases,
        ubatches=True,
    )
    full = [g for g in manager.descs if g.mode == "FULL"]

    assert cases == (0, 1, 2, 4, 5)
    assert len(manager.descs) - len(full) == len(cases) * len(sizes)
    assert len([g for g in full if g.ubatches == 1]) == len(cases) * len(sizes)
    assert sorted({g.num_tokens for g in full if g.ubatches == 2}) == [32, 40]
    assert manager.dispatch(3, 3, 1, active_loras=3).active_loras == 4


# -- Modes and defaults -----------------------------------------------------------------------------------

GPUS = {
    "gb200": Machine(capability=(10, 0), memory_bytes=185 * GIB, name="NVIDIA GB200"),
    "h200": Machine(capability=(9, 0), memory_bytes=139 * GIB, name="NVIDIA H200"),
    "a100": Machine(capability=(8, 0), memory_bytes=79 * GIB, name="NVIDIA A100-SXM4-80GB"),
    "gb10": Machine(capability=(12, 1), memory_bytes=119 * GIB, name="NVIDIA GB10"),
    "rtx6000": Machine(capability=(12, 0), memory_bytes=95 * GIB, name="NVIDIA RTX PRO 6000"),
}


@pytest.mark.parametrize(
    ("gpu", "settings", "expected"),
    [
        ("gb200", {}, (1024, 16384)),
        ("h200", {}, (1024, 8192)),
        ("rtx6000", {}, (1024, 8192)),
        ("a100", {}, (256, 2048)),
        ("h200", {"usage": "LLM_CLASS"}, (1024, 16384)),
        ("h200", {"usage": None}, (128, 2048)),
        ("gb200", {"performance_mode": "throughput"}, (2048, 32768)),
        ("gb200", {"max_num_seqs": 8, "max_model_len": 512}, (8, 4096)),
        ("a100", {"enable_chunked_prefill": False}, (256, 32768)),
        ("a100", {"prefix_lm_item_tokens": 4000}, (256, 4000)),
        (
            "h200",
            {"all2all_backend": "nixl_ep", "enable_expert_parallel": True, "data_parallel_size": 2},
            (256, 256),
        ),
    ],
)
def test_batch_defaults(root: Path, gpu: str, settings: dict[str, object], expected: tuple[int, int]) -> None:
    arguments = {"max_model_len": 32768, **settings}

    assert oracle.batch_defaults(root, GPUS[gpu], **arguments) == expected  # type: ignore[arg-type]


def test_batch_defaults_of_gb10_differ_between_versions(root: Path) -> None:
    expected = {"0.33.0": (256, 2048), "0.32.0": (1024, 8192)}[oracle.engine_version(root)]

    assert oracle.batch_defaults(root, GPUS["gb10"], max_model_len=32768) == expected


def test_active_requests_of_a_block_drafter_differ_between_versions(root: Path) -> None:
    expected = {"0.33.0": 512, "0.32.0": None}[oracle.engine_version(root)]
    speculation = Speculation(num_speculative_tokens=7, method="dflash")

    actual = oracle.scheduling_limits(root, speculation, max_num_seqs=1024, max_num_batched_tokens=4096)

    assert actual == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"mode": "FULL_AND_PIECEWISE", "support": "ALWAYS"}, "FULL_AND_PIECEWISE"),
        ({"mode": "FULL", "support": "UNIFORM_BATCH"}, "FULL_AND_PIECEWISE"),
        ({"mode": "FULL_AND_PIECEWISE", "support": "NEVER"}, "PIECEWISE"),
        (
            {"mode": "FULL_AND_PIECEWISE", "support": "UNIFORM_SINGLE_TOKEN_DECODE", "decode_query_len": 4},
            "PIECEWISE",
        ),
        (
            {
                "mode": "FULL_AND_PIECEWISE",
                "support": "UNIFORM_SINGLE_TOKEN_DECODE",
                "decode_query_len": 4,
                "splitting_ops_contain_attention": False,
            },
            "NONE",
        ),
        (
            {"mode": "FULL_AND_PIECEWISE", "support": "ALWAYS", "piecewise_capture_available": False},
            "FULL_DECODE_ONLY",
        ),
        ({"mode": "FULL", "support": "ALWAYS", "adaptive_verification": True}, "FULL_AND_PIECEWISE"),
    ],
)
def test_resolved_mode(root: Path, arguments: dict[str, object], expected: str) -> None:
    assert oracle.resolve_mode(root, **arguments) == expected  # type: ignore[arg-type]


def test_a_model_with_mamba_layers_needs_a_block_for_each_request(root: Path) -> None:
    refusal = oracle.resolve_mode(
        root, mode="FULL_AND_PIECEWISE", support="UNIFORM_BATCH", mamba_blocks=100, max_num_seqs=128
    )

    assert isinstance(refusal, Refusal)
    assert "max_num_seqs (128) exceeds available Mamba cache blocks (100)" in refusal.message


@pytest.mark.parametrize(
    ("speculation", "settings", "expected"),
    [
        (None, {}, ()),
        (Speculation(num_speculative_tokens=3, method="suffix"), {}, ("speculative method 'suffix'",)),
        (
            Speculation(num_speculative_tokens=3, parallel_drafting=True),
            {},
            ("parallel drafting for EAGLE speculative decoding",),
        ),
        (None, {"enable_dbo": True}, ("dual batch overlap",)),
    ],
)
def test_model_runner_v2_unsupported(
    root: Path, speculation: Speculation | None, settings: dict[str, Any], expected: tuple[str, ...]
) -> None:
    actual = oracle.model_runner_v2_unsupported(root, speculation=speculation, **settings)

    assert actual == expected
    assert oracle.uses_v2_model_runner(root, speculation=speculation, **settings) is not bool(expected)


@pytest.mark.parametrize(
    ("method", "draft_config", "expected"),
    [
        ("eagle3", {}, "EagleSpeculator"),
        ("mtp", {}, "MTPSpeculator"),
        ("mtp", {"model_type": "gemma4_mtp"}, "Gemma4Speculator"),
        ("mtp", {"num_nextn_predict_layers": 3}, "MultiModuleMTPSpeculator"),
        ("dflash", {}, "DFlashSpeculator"),
        ("dspark", {}, "DSparkSpeculator"),
        ("ngram", {}, "NgramGPUSpeculator"),
    ],
)
def test_speculator_class(root: Path, method: str, draft_config: dict[str, object], expected: str) -> None:
    speculation = Speculation(num_speculative_tokens=3, method=method, draft_config=draft_config)

    assert oracle.speculator_class(root, speculation) == expected


def test_other_facts(root: Path) -> None:
    assert "DeepseekV4ForCausalLM" in oracle.breakable_architectures(root)
    assert (
        oracle.uniform_decode_token_count(
            root, num_requests=3, num_tokens=12, max_query_len=4, decode_graph_eligible=True
        )
        == 4
    )
    assert (
        oracle.uniform_decode_token_count(
            root, num_requests=3, num_tokens=12, max_query_len=4, decode_graph_eligible=False
        )
        is None
    )
    assert (
        oracle.normalized_mode(root, mode="FULL_AND_PIECEWISE", compiled=False, breakable_graphs=False)
        == "FULL_DECODE_ONLY"
    )


# -- Where this side comes from ---------------------------------------------------------------------------


def test_everything_lifted_stands_in_the_engine(root: Path) -> None:
    target_of(root, True, 3)
    print(oracle.provenance_report(root))

    files = {Path(taken.file) for taken in oracle.provenance(root)}
    symbols = {taken.symbol for taken in oracle.provenance(root)}

    assert {file.is_relative_to(root / "vllm") for file in files} == {True}
    assert oracle.engine_version(root) in root.name
    assert {
        "vllm.config.vllm:VllmConfig._set_cudagraph_sizes",
        "vllm.v1.worker.gpu.cudagraph_utils:CudaGraphManager",
    } <= symbols


@pytest.mark.parametrize(
    ("module", "text", "fault"),
    [
        ("config/vllm.py", "1024 if current_platform.is_device_capability_family(100)", "1000 if True"),
        ("v1/worker/gpu/cudagraph_utils.py", "rounded_num_tokens > max_cg_capture_size", "False"),
        ("v1/spec_decode/dynamic/utils.py", "num_speculative_tokens,\n            )", "0)"),
    ],
)
def test_a_fault_in_the_engines_text_shows(root: Path, tmp_path: Path, module: str, text: str, fault: str) -> None:
    faulty = tmp_path / root.name
    for name in _LIFTED_FILES:
        (faulty / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / "vllm" / name, faulty / "vllm" / name)
    original = (root / "vllm" / module).read_text(encoding="utf-8")
    assert text in original
    (faulty / "vllm" / module).write_text(original.replace(text, fault, 1), encoding="utf-8")

    schedule = ((1, 16, 5), (17, 1024, 1))

    assert target_of(faulty, True, 5, schedule).descs != target_of(root, True, 5, schedule).descs


_LIFTED_FILES = (
    "compilation/breakable_cudagraph.py",
    "config/compilation.py",
    "config/parallel.py",
    "config/speculative.py",
    "config/vllm.py",
    "platforms/interface.py",
    "utils/math_utils.py",
    "v1/spec_decode/dynamic/utils.py",
    "v1/worker/gpu/cudagraph_utils.py",
    "v1/worker/ubatch_utils.py",
)

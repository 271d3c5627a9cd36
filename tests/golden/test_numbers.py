"""Counts and reaches written by hand: what the split settings capture, and what the unmodified engine does.

`64 @ 1024` is 64 sizes up to 1024 requests, or tokens for piecewise graphs and adaptive verification.
Source: vLLM pull request "separate prefill/decode graph sizes", Graphs per runner.
"""

from typing import Any

import pytest

from tests.plans import Json, codes_of, extent, full_requests, model_folder, planned, row_of, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

LIMITS = {"gb200": (1024, 16384), "h200": (1024, 8192)}
TIERS_7_3_1 = [
    {"up_to": 16, "num_speculative_tokens": 7},
    {"up_to": 256, "num_speculative_tokens": 3},
    {"num_speculative_tokens": 1},
]
POWERS_OF_TWO = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def plan(gpu: str, model: str = "qwen3-8b", overrides: Json | None = None, **sections: Any) -> Json:
    """The plan at the server's default limits, under the extension, which captures what the fields ask for."""
    seqs, tokens = LIMITS[gpu]
    defaults: Json = {
        "scheduler": {"max_num_seqs": seqs, "max_num_batched_tokens": tokens},
        "engine": {"version": "0.33.0", "lowering": "extension"},
    }
    of_model = {"id": model_folder(model), "hf_overrides": overrides or {}}
    return planned(spec_of(model, gpu, **{**defaults, "model": of_model, **sections}))


def eagle3(k: int) -> Json | None:
    if k == 0:
        return None
    return {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": k}


def dspark(k: int) -> Json:
    return {"method": "dspark", "model": model_folder("dspark-draft"), "num_speculative_tokens": k}


def dflash(k: int) -> Json:
    return {"method": "dflash", "model": model_folder("dflash-draft"), "num_speculative_tokens": k}


def both(graphs: Json, routine: str, query_len: int | None = None) -> tuple[str, str]:
    """Ours, and stock."""
    return extent(graphs, routine, query_len), extent(graphs["stock"], routine, query_len)


@pytest.mark.parametrize(
    ("gpu", "k", "expected"),
    [
        ("gb200", 0, ("39 @ 8192", "83 @ 1024")),
        ("gb200", 1, ("39 @ 8192", "83 @ 1024")),
        ("gb200", 2, ("39 @ 8192", "97 @ 1024")),
        ("gb200", 3, ("39 @ 8192", "83 @ 1024")),
        ("gb200", 5, ("39 @ 8192", "85 @ 1024")),
        ("gb200", 7, ("39 @ 8192", "83 @ 1024")),
        ("gb200", 15, ("39 @ 8192", "83 @ 1024")),
        ("h200", 0, ("51 @ 512", "51 @ 512")),
        ("h200", 1, ("51 @ 512", "51 @ 512")),
        ("h200", 2, ("60 @ 512", "60 @ 512")),
        ("h200", 3, ("51 @ 512", "51 @ 512")),
        ("h200", 5, ("53 @ 512", "53 @ 512")),
        ("h200", 7, ("51 @ 512", "51 @ 512")),
        ("h200", 15, ("51 @ 512", "51 @ 512")),
    ],
)
def test_target_piecewise(gpu: str, k: int, expected: tuple[str, str]) -> None:
    assert both(plan(gpu, speculative=eagle3(k)), "piecewise") == expected


@pytest.mark.parametrize(
    ("gpu", "k", "expected"),
    [
        ("gb200", 0, ("64 @ 1024", "83 @ 1024")),
        ("gb200", 1, ("64 @ 1024", "82 @ 512")),
        ("gb200", 2, ("64 @ 1024", "93 @ 336")),
        ("gb200", 3, ("64 @ 1024", "81 @ 256")),
        ("gb200", 5, ("54 @ 682", "80 @ 168")),
        ("gb200", 7, ("48 @ 512", "80 @ 128")),
        ("gb200", 15, ("37 @ 256", "64 @ 64")),
        ("h200", 0, ("51 @ 512", "51 @ 512")),
        ("h200", 1, ("50 @ 256", "50 @ 256")),
        ("h200", 2, ("56 @ 168", "56 @ 168")),
        ("h200", 3, ("49 @ 128", "49 @ 128")),
        ("h200", 5, ("48 @ 83", "48 @ 83")),
        ("h200", 7, ("48 @ 64", "48 @ 64")),
        ("h200", 15, ("32 @ 32", "32 @ 32")),
    ],
)
def test_target_uniform_decode(gpu: str, k: int, expected: tuple[str, str]) -> None:
    assert both(plan(gpu, speculative=eagle3(k)), "uniform_decode") == expected


@pytest.mark.parametrize(
    ("gpu", "expected"), [("gb200", ("64 @ 6144", "85 @ 1024")), ("h200", ("28 @ 498", "53 @ 512"))]
)
def test_adaptive_verification(gpu: str, expected: tuple[str, str]) -> None:
    speculative = {**dspark(5), "enable_adaptive_verification": True}

    graphs = plan(gpu, "deepseek-v4-flash", speculative=speculative)

    assert both(graphs, "adaptive_verification") == expected


@pytest.mark.parametrize(
    ("gpu", "k", "piecewise", "uniform"),
    [
        ("gb200", 3, ("39 @ 8192", "83 @ 1024"), ("64 @ 1024", "81 @ 256")),
        ("gb200", 7, ("39 @ 8192", "83 @ 1024"), ("48 @ 512", "80 @ 128")),
        ("h200", 3, ("51 @ 512", "51 @ 512"), ("49 @ 128", "49 @ 128")),
    ],
)
@pytest.mark.parametrize("method", ["eagle3", "mtp of one module", "gemma-4-mtp"])
def test_draft_step_0(method: str, gpu: str, k: int, piecewise: tuple[str, str], uniform: tuple[str, str]) -> None:
    model, speculative = {
        "eagle3": ("qwen3-8b", eagle3(k)),
        "mtp of one module": ("deepseek-v3", {"method": "mtp", "num_speculative_tokens": k}),
        "gemma-4-mtp": (
            "gemma-4",
            {"method": "mtp", "model": model_folder("gemma-4-mtp"), "num_speculative_tokens": k},
        ),
    }[method]

    graphs = plan(gpu, model, speculative=speculative)

    assert both(graphs, "step0_piecewise") == piecewise
    assert both(graphs, "step0_uniform") == uniform


@pytest.mark.parametrize(
    ("gpu", "k", "expected"),
    [
        ("gb200", 2, ("64 @ 1024", "97 @ 1024")),
        ("gb200", 3, ("64 @ 1024", "83 @ 1024")),
        ("gb200", 7, ("64 @ 1024", "83 @ 1024")),
        ("h200", 2, ("64 @ 1024", "60 @ 512")),
        ("h200", 3, ("64 @ 1024", "51 @ 512")),
    ],
)
def test_later_draft_steps(gpu: str, k: int, expected: tuple[str, str]) -> None:
    assert both(plan(gpu, speculative=eagle3(k)), "later_steps") == expected


def test_one_draft_needs_no_later_steps() -> None:
    graphs = plan("gb200", speculative=eagle3(1))

    assert "later_steps" not in {row["routine"] for row in graphs["runners"]}


@pytest.mark.parametrize(
    ("gpu", "k", "expected"),
    [
        ("gb200", 7, ("51 @ 585", "80 @ 144")),
        ("gb200", 5, ("58 @ 819", "81 @ 202")),
        ("gb200", 3, ("64 @ 1024", "81 @ 336")),
        ("h200", 7, ("48 @ 64", "48 @ 71")),
        ("h200", 5, ("48 @ 83", "49 @ 100")),
        ("h200", 3, ("49 @ 128", "49 @ 166")),
    ],
)
def test_dspark_block(gpu: str, k: int, expected: tuple[str, str]) -> None:
    graphs = plan(gpu, speculative=dspark(k))

    assert row_of(graphs, "block")["query_len"] == k
    assert both(graphs, "block") == expected


@pytest.mark.parametrize(
    ("gpu", "k", "expected"),
    [
        ("gb200", 7, ("48 @ 512", "80 @ 128")),
        ("gb200", 15, ("37 @ 256", "64 @ 64")),
        ("h200", 7, ("48 @ 64", "48 @ 64")),
        ("h200", 15, ("32 @ 32", "32 @ 32")),
    ],
)
def test_dflash_block(gpu: str, k: int, expected: tuple[str, str]) -> None:
    assert both(plan(gpu, speculative=dflash(k)), "block") == expected


def test_dspark_without_an_anchor_needs_a_query_for_the_bonus_token_too() -> None:
    draft = {"method": "dspark", "model": model_folder("dspark-draft-without-anchor"), "num_speculative_tokens": 7}

    graphs = plan("gb200", speculative=draft)

    assert row_of(graphs, "block")["query_len"] == 8
    assert both(graphs, "block") == ("48 @ 512", "80 @ 128")


@pytest.mark.parametrize(
    ("gpu", "k", "expected"),
    [
        ("gb200", 3, ("64 @ 1024", "81 @ 256")),
        ("gb200", 7, ("48 @ 512", "80 @ 128")),
        ("h200", 3, ("49 @ 128", "49 @ 128")),
    ],
)
def test_multi_module_mtp(gpu: str, k: int, expected: tuple[str, str]) -> None:
    # K = 7 does not fit three modules, so the model gets as many as K.
    speculative = {"method": "mtp", "num_speculative_tokens": k}

    graphs = plan(gpu, "three-mtp-modules", {"num_nextn_predict_layers": k}, speculative=speculative)

    assert both(graphs, "block", k + 1) == expected


def graphs_in(graphs: Json, *routines: str) -> int:
    return sum(row["graphs"] for row in graphs["runners"] if row["routine"] in routines)


@pytest.mark.parametrize(
    ("gpu", "target", "one_token"), [("gb200", (112, 243), (128, 166)), ("h200", (176, 147), (128, 102))]
)
def test_dynamic_speculation(gpu: str, target: tuple[int, int], one_token: tuple[int, int]) -> None:
    graphs = plan(gpu, speculative={**(eagle3(7) or {}), "dynamic": TIERS_7_3_1})

    assert (graphs_in(graphs, "uniform_decode"), graphs_in(graphs["stock"], "uniform_decode")) == target
    assert (graphs_in(graphs, "later_steps"), graphs_in(graphs["stock"], "later_steps")) == one_token


@pytest.mark.parametrize(
    ("model", "speculative", "expected"),
    [
        ("minimax-m3", eagle3(3), (270, 411)),
        ("deepseek-v4-flash", dspark(7), (138, 243)),
    ],
)
def test_all_graphs_of_a_deployment(model: str, speculative: Json, expected: tuple[int, int]) -> None:
    graphs = plan("gb200", model, speculative=speculative)

    totals = [sum(row["graphs"] for row in side["runners"]) for side in (graphs, graphs["stock"])]

    assert tuple(totals) == expected


def test_fewer_requests_get_a_shorter_decode_grid() -> None:
    assert both(plan("gb200", scheduler={"max_num_seqs": 256, "max_num_batched_tokens": 8192}), "uniform_decode") == (
        "37 @ 256",
        "35 @ 256",
    )


def test_gpt_oss_keeps_its_ceiling_off_compute_capability_10() -> None:
    graphs = plan("h200", "gpt-oss-20b")

    assert both(graphs, "piecewise") == ("83 @ 1024", "83 @ 1024")
    assert both(graphs, "uniform_decode") == ("64 @ 1024", "83 @ 1024")


def test_a_legacy_list_gains_the_cap_itself() -> None:
    legacy = {"cudagraph_capture_sizes": POWERS_OF_TWO}

    graphs = plan("h200", scheduler={"max_num_seqs": 8}, speculative=eagle3(5), compilation=legacy)

    assert row_of(graphs["stock"], "uniform_decode")["sizes"] == [1, 2, 3, 6]
    assert row_of(graphs, "uniform_decode")["sizes"] == [1, 2, 3, 6, 8]
    assert full_requests(graphs["stock"]) == {1, 2, 3, 4, 5, 6}
    assert full_requests(graphs) == set(range(1, 9))


def test_a_legacy_list_under_adaptive_verification() -> None:
    speculative = {**dspark(5), "enable_adaptive_verification": True}

    graphs = plan(
        "h200",
        "deepseek-v4-flash",
        speculative=speculative,
        compilation={"cudagraph_capture_sizes": POWERS_OF_TWO},
    )

    assert both(graphs, "adaptive_verification") == ("25 @ 258", "10 @ 512")


def test_a_legacy_list_under_dspark() -> None:
    graphs = plan("h200", speculative=dspark(5), compilation={"cudagraph_capture_sizes": POWERS_OF_TWO})

    ours, stock = (row_of(side, "block")["max_requests"] for side in (graphs, graphs["stock"]))

    assert (ours, stock) == (43, 52)


def test_a_tier_wider_than_the_widest_piecewise_size_is_found() -> None:
    graphs = plan("h200", speculative={**(eagle3(7) or {}), "dynamic": TIERS_7_3_1})

    assert row_of(graphs, "uniform_decode", 4)["max_tokens"] == 1024
    assert row_of(graphs, "piecewise")["max_tokens"] == 512
    assert "P114" in codes_of(graphs)


def test_a_list_keeps_the_first_count_that_holds_a_tiers_widest_batch() -> None:
    """The tier ends at 16 requests, and the list has nothing between 8 and 64."""
    graphs = plan(
        "h200",
        speculative={**(eagle3(7) or {}), "dynamic": TIERS_7_3_1},
        compilation={"decode_cudagraph_capture_request_sizes": [1, 8, 64, 300]},
    )

    assert row_of(graphs, "uniform_decode", 8)["sizes"] == [1, 8, 64]
    assert row_of(graphs, "uniform_decode", 4)["sizes"] == [1, 8, 64, 300]
    assert full_requests(graphs) == set(range(1, 301))


@pytest.mark.parametrize(("cap", "expected"), [(128, "37 @ 256"), (8192, "48 @ 512")])
def test_the_prefill_cap_bounds_a_block_drafter(cap: int, expected: str) -> None:
    graphs = plan(
        "gb200",
        speculative={**dflash(7), "dynamic": TIERS_7_3_1},
        compilation={"max_prefill_cudagraph_capture_tokens": cap},
    )

    assert extent(graphs, "block") == expected


def test_interactivity_captures_every_small_prefill() -> None:
    assert row_of(plan("gb200", performance_mode="interactivity"), "piecewise")["count"] == 65


def test_interleaved_tiers_lose_graphs_in_the_engine_and_not_in_ours() -> None:
    tiers = [
        {"up_to": 16, "num_speculative_tokens": 5},
        {"up_to": 128, "num_speculative_tokens": 3},
        {"num_speculative_tokens": 1},
    ]
    speculative = {**(eagle3(5) or {}), "dynamic": tiers}

    ours = plan("gb200", speculative=speculative)
    stock = plan("gb200", speculative=speculative, engine={"version": "0.33.0", "lowering": "none"})

    missed = [finding["message"] for finding in stock["diagnostics"] if finding["code"] == "P115"]
    assert [message.split()[0] for message in missed] == ["64"]
    assert len(full_requests(stock)) == 512 - 64
    assert "P115" not in codes_of(ours)
    assert full_requests(ours) == set(range(1, 1025))


@pytest.mark.parametrize(("k", "dead"), [(5, "23 of 64"), (7, "31 of 72")])
def test_dead_sizes_of_adaptive_verification(k: int, dead: str) -> None:
    speculative = {**dspark(k), "enable_adaptive_verification": True}

    graphs = plan("gb200", "deepseek-v4-flash", speculative=speculative)

    messages = [finding["message"] for finding in graphs["diagnostics"] if finding["code"] == "P104"]
    assert [" ".join(message.split()[:3]) for message in messages] == [dead]

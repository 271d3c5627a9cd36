"""The spec that mends a command line: batches get the graphs they could have, and comments say which had none."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from servespec.compiler.command_line import Mended, command_line_source, mended, read_command_line
from servespec.compiler.facts.engine_fields import table
from servespec.compiler.pipeline import compile_spec
from servespec.runtime.gather import Options, compile_request
from servespec.schema.source import SpecSource, read_source
from tests.plans import full_requests, model_folder

pytestmark = pytest.mark.usefixtures("quiet_shell")

EAGLE3 = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}


def source_of(*words: str, gpu: str = "h200") -> SpecSource:
    command = read_command_line(["vllm", "serve", model_folder("qwen3-8b"), *words], table("0.33.0"), {})
    assert command.leftovers == ()
    data = {**command.data, "engine": {**command.data.get("engine", {}), "version": "0.33.0"}}
    return command_line_source(type(command)(data, ()), gpu, 1)


def plan_of(source: SpecSource) -> dict[str, Any]:
    return compile_spec(compile_request(source, Options())).to_json()


def mended_and_planned(*words: str, gpu: str = "h200") -> tuple[str, dict[str, Any]]:
    """The mended text, and the plan that it gives."""
    source = source_of(*words, gpu=gpu)
    text = mended(source.data, plan_of(source)).text
    return text, plan_of(read_source(text, "mended.yaml"))


def compilation_lines(text: str) -> list[str]:
    return text.partition("compilation:\n")[2].partition("\nengine:")[0].splitlines()


DRAFTS = ["-sc", json.dumps(EAGLE3)]
SPECULATIVE = ["--max-num-seqs", "256", *DRAFTS]


def test_larger_batches_get_graphs() -> None:
    text, plan = mended_and_planned(*SPECULATIVE)

    assert text.splitlines()[0] == "# yaml-language-server: $schema=./spec.schema.json"
    assert compilation_lines(text) == [
        "  # decode batches of 65 to 256 requests ran eagerly",
        "  max_decode_cudagraph_capture_requests: 256",
        "  # steps of 513 to 8192 tokens with a prefill in them ran eagerly",
        "  max_prefill_cudagraph_capture_tokens: 8192",
    ]
    assert full_requests(plan) == set(range(1, 257))


def test_a_legacy_field_gives_way_and_prefill_reaches_as_far() -> None:
    reach = ["--max-num-batched-tokens", "16384", "--cudagraph-capture-sizes", "8", "64", "8192"]
    text, plan = mended_and_planned(*DRAFTS, "--max-num-seqs", "2048", *reach)

    assert compilation_lines(text) == [
        "  # decode batches of 1025 to 2048 requests ran eagerly",
        "  max_decode_cudagraph_capture_requests: 2048",
        "  # prefill graphs reach as far as before",
        "  max_prefill_cudagraph_capture_tokens: 8192",
    ]
    assert full_requests(plan) == set(range(1, 2049))


def test_the_budget_is_raised_where_it_holds() -> None:
    text, plan = mended_and_planned(
        "--max-num-seqs", "1024", "--max-num-batched-tokens", "16384", "-sc", json.dumps(EAGLE3), gpu="gb200"
    )

    assert "  # 1024 requests are 8192 tokens\n  max_decode_cudagraph_capture_tokens: 8192" in text
    assert full_requests(plan) == set(range(1, 1025))


def test_a_mode_without_full_graphs_is_changed() -> None:
    text, plan = mended_and_planned(*SPECULATIVE, "-cc.cudagraph_mode=PIECEWISE")

    assert "cudagraph_mode: FULL_AND_PIECEWISE" in text
    assert "ran from PIECEWISE graphs" in text
    assert full_requests(plan) == set(range(1, 257))


def test_the_one_mode_of_token_sizes_is_sized_in_tokens() -> None:
    text, plan = mended_and_planned(*SPECULATIVE, "-cc.cudagraph_mode=FULL")

    assert "max_prefill_cudagraph_capture_tokens: 2048" in text
    assert full_requests(plan) == set(range(1, 257))


def test_a_spec_whose_batches_all_have_graphs_stays() -> None:
    source = source_of("--max-num-seqs", "32", "--max-num-batched-tokens", "8192", gpu="gb200")

    assert mended(source.data, plan_of(source)) == Mended("")


def test_steps_with_a_prefill_get_graphs() -> None:
    text, plan = mended_and_planned("--max-num-seqs", "32")

    assert compilation_lines(text) == [
        "  # steps of 65 to 8192 tokens with a prefill in them ran eagerly",
        "  max_prefill_cudagraph_capture_tokens: 8192",
    ]
    assert eager_prefill(plan) == []
    assert full_requests(plan) == set(range(1, 33))


def test_a_mode_without_graphs_for_prefill_is_a_choice() -> None:
    source = source_of("-cc.cudagraph_mode=FULL_DECODE_ONLY", "--max-num-seqs", "32")

    assert mended(source.data, plan_of(source)) == Mended("")


def test_a_legacy_list_that_only_prefill_outgrows_keeps_the_reach_of_decode() -> None:
    text, plan = mended_and_planned("--max-num-seqs", "32", "--cudagraph-capture-sizes", "8", "32")

    assert compilation_lines(text) == [
        "  # decode graphs reach as far as before",
        "  max_decode_cudagraph_capture_requests: 32",
        "  # steps of 33 to 8192 tokens with a prefill in them ran eagerly",
        "  max_prefill_cudagraph_capture_tokens: 8192",
    ]
    assert (full_requests(plan), eager_prefill(plan)) == (set(range(1, 33)), [])


def test_prefill_graphs_end_where_memory_is_the_price() -> None:
    text, plan = mended_and_planned("--max-num-seqs", "32", "--max-num-batched-tokens", "16384")

    assert "max_prefill_cudagraph_capture_tokens: 8192" in text
    assert {row["from_tokens"] for row in eager_prefill(plan)} == {8193}
    assert mended(read_source(text, "mended.yaml").data, plan) == Mended("")


def eager_prefill(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in plan["coverage"]["prefill"] if row["mode"] == "EAGER"]


@pytest.mark.parametrize(
    ("words", "obstacle"),
    [
        ([*SPECULATIVE, "--enforce-eager"], "`enforce_eager` captures no graphs: every batch runs eagerly"),
    ],
)
def test_where_no_field_helps_it_is_said_why(words: list[str], obstacle: str) -> None:
    source = source_of(*words)

    assert mended(source.data, plan_of(source)) == Mended("", obstacle)


def a_plan(*ranges: tuple[int, int, str], runner: str = "v2", mode: str = "FULL_AND_PIECEWISE") -> Mapping[str, Any]:
    """As much of a plan as mending reads."""
    decode = [
        {"runner": "target", "from_requests": first, "to_requests": last, "query_len": 2, "mode": ran}
        for first, last, ran in ranges
    ]
    resolved = {"engine.model_runner": {"value": runner}, "compilation.cudagraph_mode": {"value": mode}}
    device = {"compute_capability": "9.0"}
    return {"coverage": {"decode": decode, "prefill": []}, "resolved": resolved, "device": device, "runners": []}


def test_each_stretch_has_its_line_and_what_cannot_be_scheduled_none() -> None:
    plan = a_plan(
        (1, 2, "FULL"), (3, 3, "EAGER"), (4, 4, "EAGER"), (5, 5, "PIECEWISE"), (6, 6, "FULL"), (7, 9, "UNSCHEDULED")
    )

    assert compilation_lines(mended({"compilation": {"mode": 3}}, plan).text) == [
        "  mode: 3",
        "  # decode batches of 3 to 4 requests ran eagerly",
        "  # decode batches of 5 requests ran from PIECEWISE graphs",
        "  max_decode_cudagraph_capture_requests: 6",
    ]


@pytest.mark.parametrize(
    ("plan", "obstacle"),
    [
        (a_plan((1, 2, "EAGER"), runner="v1"), "Model Runner V1 has one list for all graphs: decode cannot be sized"),
        (a_plan((1, 2, "EAGER"), mode="PIECEWISE"), "the engine captures PIECEWISE here: decode has no FULL graphs"),
    ],
)
def test_obstacles(plan: Mapping[str, Any], obstacle: str) -> None:
    assert mended({"model": {"id": "m"}}, plan) == Mended("", obstacle)

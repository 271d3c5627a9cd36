"""Figures that guides and the list of measurements say in a sentence are those of the files that they link."""

import json
import os
from pathlib import Path

import measured_launches as measured
import pytest
from doc_pages.curves_page import served_tiers
from doc_pages.tiers_bench import TiersBench

from servespec.compiler.curves.step_times import step_times_of
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.memory.graph_pools import GraphRemedy
from servespec.runtime.bench.ratios import geometric_mean
from servespec.schema.source import read_source
from tests.plans import REPOSITORY

STEPS = "2026-11-30-h200-steps-8b-k3.json"


@pytest.mark.parametrize("page", ["guide/step-times.md", "measurements/README.md"])
def test_what_graphs_of_the_8b_model_gained(page: str) -> None:
    document = json.loads((measured.MEASUREMENTS / STEPS).read_text(encoding="utf-8"))
    times = step_times_of(document, STEPS).sizes
    decode = {one.size: one for one in times if one.mode is CudaGraphMode.FULL}
    prefill = [one for one in times if one.query_len is None]
    last = max(one.size for one in prefill if one.pays)
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")

    assert max(decode) == 512
    assert decode[512].pays
    assert any(one.size > last for one in prefill)
    assert f"{decode[1].ratio:.1f} times at one request" in text
    assert f"{decode[512].ratio - 1:.1%} at 512".replace("%", " %") in text
    assert f"{last:,} tokens" in text


def served_by(curve: str, bench: str) -> TiersBench:
    return served_tiers(measured.MEASUREMENTS / f"2026-12-01-h200-steps-{curve}.json", f"2026-12-01-h200-{bench}.json")


def test_what_tiers_by_a_curve_served() -> None:
    dense = served_by("8b-fp8", "bench-tiers-8b-fp8")
    experts = served_by("30b-a3b-fp8-2", "bench-tiers-30b-a3b-fp8")
    text = (REPOSITORY / "docs/guide/following-the-load.md").read_text(encoding="utf-8")
    below_the_knee = [geometric_mean(dense.pairs("load", dense.fixed[7], load)) for load in (1, 16)]

    def over(found: TiersBench) -> list[float]:
        return [geometric_mean(found.over_all_loads("spec", arm)) for arm in found.fixed.values()]

    assert (list(dense.fixed), list(experts.fixed)) == ([0, 1, 3, 7], [3, 7])
    assert "served {:.2f}, {:.2f}, {:.2f} and {:.2f} times as many tokens".format(*over(dense)) in text
    assert "served {:.2f} and {:.2f} times those of K of 3 and 7".format(*over(experts)) in text
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "served {:.2f} and {:.2f} times the tokens of a fixed K of 3 and 7".format(*over(experts)) in readme
    assert (experts.loads[0], experts.loads[-1]) == (1, 512)
    assert [sum(found.is_below(load) for load in found.loads) for found in (dense, experts)] == [1, 1]
    assert [len(found.loads) for found in (dense, experts)] == [6, 6]
    assert all(abs(ratio - 1) < 0.02 for ratio in below_the_knee)


def test_the_tiers_of_a_measured_preset_are_those_that_were_served() -> None:
    chosen = served_by("30b-a3b-fp8-2", "bench-tiers-30b-a3b-fp8").choice["chosen"]
    text = (REPOSITORY / "servespec/presets/qwen3-30b-a3b-fp8__h200__variable-load.yaml").read_text(encoding="utf-8")
    written = read_source(text, "preset").data["speculative"]["dynamic"]

    assert [tier["num_speculative_tokens"] for tier in written] == [one["num_speculative_tokens"] for one in chosen]
    assert [tier["up_to"] for tier in written[:-1]] == [one["to_requests"] for one in chosen[:-1]]


def test_how_far_off_predictions_of_served_traffic_were() -> None:
    experts = served_by("30b-a3b-fp8-2", "bench-tiers-30b-a3b-fp8").median_errors()
    dense = served_by("8b-fp8-2", "bench-tiers-8b-fp8").median_errors()
    text = (REPOSITORY / "docs/guide/following-the-load.md").read_text(encoding="utf-8")

    steady, played = zip(experts, dense, strict=True)
    assert "were off by {:.0%} and {:.0%} at the median".format(*steady) in text
    assert "those of `servespec predict` by {:.0%} and {:.0%}".format(*played) in text


def test_the_engine_pads_a_cached_prompt_only_where_k_is_fixed() -> None:
    root = Path(os.environ.get("SERVESPEC_ENGINES", REPOSITORY / ".engines")) / "vllm-0.33.0"
    if not root.is_dir():
        pytest.skip("the engine's source is not there: python tools/fetch_engines.py")
    text = " ".join((root / "vllm/v1/core/sched/scheduler.py").read_text(encoding="utf-8").split())

    assert (
        "if ( (self.num_spec_tokens > 0 and self.dynamic_sd_lookup is None) and self.num_sampled_tokens_per_step > 0 "
        "and num_new_tokens == 1"
    ) in text


def test_what_one_capture_stream_saved() -> None:
    saved = sorted(one.measured_gib for one in measured.savings() if one.launch.is_planned)
    text = (REPOSITORY / "docs/concepts/remedies.md").read_text(encoding="utf-8")

    assert all(one.added == {GraphRemedy.ONE_CAPTURE_STREAM} for one in measured.savings() if one.launch.is_planned)
    assert f"[{' and '.join(f'{one:.2f}' for one in saved)} GiB]" in text


def test_how_many_launches_captured_what_was_planned() -> None:
    files = sorted(measured.MEASUREMENTS.glob("*-launches-extension*.json"))
    launches = [len(measured.document(file.name)["launches"]) for file in files]
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    lowering = (REPOSITORY / "docs/concepts/lowering.md").read_text(encoding="utf-8")

    words = {4: "four", 7: "seven", 9: "nine", 20: "twenty"}
    assert all(
        f"[{words[count]}](docs/measurements/{file.name})" in readme
        for count, file in zip(launches, files, strict=True)
    )
    assert f"{words[sum(launches)]} launches on one H200 captured what was planned" in lowering

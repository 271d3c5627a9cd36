"""Figures that guides and the list of measurements say in a sentence are those of the files that they link."""

import json
import os
import re
from pathlib import Path

import measured_launches as measured
import pytest
from doc_pages.curves_page import served_tiers
from doc_pages.tiers_bench import TiersBench
from doc_pages.twins import Twins, distance_of

from servespec.compiler.curves.step_times import step_times_of
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.memory import COUNT_BYTES
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.compiler.plan_rules import P150
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


SERVED = {
    "8b-fp8": "8b-fp8",
    "8b-fp8-2": "8b-fp8-2",
    "8b-fp8-3": "8b-fp8-2",
    "30b-a3b-fp8": "30b-a3b-fp8-2",
    "30b-a3b-fp8-2": "30b-a3b-fp8-2",
    "30b-a3b-fp8-3": "30b-a3b-fp8-2",
}
"""The curve that chose the tiers of each bench."""


def bench_of(name: str) -> TiersBench:
    return served_by(SERVED[name], f"bench-tiers-{name}")


def every_twin() -> list[Twins]:
    return [one for name in SERVED for one in bench_of(name).twins]


def over_all_loads(found: TiersBench) -> list[float]:
    return [geometric_mean(found.over_all_loads(found.tiers, arm)) for arm in found.fixed.values()]


def test_every_bench_of_tiers_is_told_beside_its_curve() -> None:
    names = {path.stem.partition("bench-tiers-")[2] for path in measured.MEASUREMENTS.glob("*-bench-tiers-*.json")}
    page = (REPOSITORY / "docs/reference/curves.md").read_text(encoding="utf-8")
    headings = re.findall(r"^##* .*$", page, re.MULTILINE)
    own = [one for one in headings if not one.startswith(("### Decode", "### Prefill", "### Milliseconds"))]

    assert names == set(SERVED)
    assert all(f"### Tiers of {name}, served beside fixed K" in headings for name in names)
    assert len(own) == len(set(own)), "an anchor leads to one place"
    for name, curve in SERVED.items():
        section = page.partition(f"## 2026-12-01-h200-steps-{curve}\n")[2].partition("\n## ")[0]
        assert f"### Tiers of {name}, served" in section


@pytest.mark.parametrize("name", SERVED)
def test_tiers_that_a_page_says_a_curve_chose_are_those_that_were_captured(name: str) -> None:
    found = bench_of(name)
    rows = [one for one in found.bench["arms"][found.tiers]["runners"] if one["routine"] == "uniform_decode"]

    assert {row["num_speculative_tokens"]: row["sizes"][-1] for row in rows if row["runner"] == "target"} == {
        one["num_speculative_tokens"]: one["to_requests"] for one in found.choice["chosen"]
    }


def test_what_tiers_by_a_curve_served() -> None:
    earlier, dense, again, cached, few, experts = map(bench_of, SERVED)
    guide = (REPOSITORY / "docs/guide/following-the-load.md").read_text(encoding="utf-8")
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    below_the_knee = [geometric_mean(earlier.pairs("load", earlier.fixed[7], load)) for load in (1, 16)]

    assert list(earlier.fixed) == list(dense.fixed) == [0, 1, 3, 7]
    assert (list(cached.fixed), list(experts.fixed), list(few.fixed)) == ([3, 7], [3, 7], [0, 1])
    assert "served {:.2f}, {:.2f}, {:.2f} and {:.2f} times as many tokens".format(*over_all_loads(dense)) in guide
    assert "had {:.2f}, {:.2f}, {:.2f} and {:.2f}, and".format(*over_all_loads(earlier)) in guide
    assert "served {:.2f} and {:.2f} times as many as no speculation".format(*over_all_loads(again)) in guide
    assert "served [{:.2f} and {:.2f}](".format(*over_all_loads(few)) in guide
    assert "in another bench [{:.2f} and {:.2f}](".format(*over_all_loads(experts)) in guide
    assert "had [{:.2f} and {:.2f}](".format(*over_all_loads(cached)) in guide
    of_experts = "{:.2f}, {:.2f}, {:.2f} and {:.2f}".format(*over_all_loads(few), *over_all_loads(experts))
    assert f"served {of_experts} times the tokens of a fixed K of 0, 1, 3 and 7" in readme
    assert (experts.loads[0], experts.loads[-1]) == (few.loads[0], few.loads[-1]) == (1, 512)
    benches = (earlier, dense, again, cached, few, experts)
    behind = [[load for load in found.loads if found.is_below(load)] for found in benches]
    assert behind == [[64], [1], [], [1], [], []]
    assert (earlier.best_fixed(64), dense.best_fixed(1), cached.best_fixed(1)) == (3, 7, 7)
    assert f"K of 7 served {geometric_mean(dense.best_over_tiers(1)) - 1:.0%} more".replace("%", " %") in guide
    assert all(abs(ratio - 1) < 0.02 for ratio in below_the_knee)


def test_what_load_aware_verification_served_beside_tiers() -> None:
    found = bench_of("8b-fp8-3")
    assert found.load_aware is not None
    arms = (found.load_aware, found.tiers)
    load_aware, tiers = ([geometric_mean(found.pairs(arm, found.fixed[7], at)) for at in found.loads] for arm in arms)
    guide = (REPOSITORY / "docs/guide/following-the-load.md").read_text(encoding="utf-8")

    assert list(found.loads) == [1, 16, 64, 128, 256, 512]
    told = "{:.2f} and {:.2f} of its tokens at 1 and 16 requests, {:.2f} at 64, the knee, and {:.2f}, {:.2f} and {:.2f}"
    assert told.format(*load_aware) in guide
    assert "served {:.2f}, {:.2f}, {:.2f}, {:.2f}, {:.2f} and {:.2f}: a draft".format(*tiers) in guide


def test_what_graphs_gained_a_dense_model_without_drafts() -> None:
    found = bench_of("8b-fp8-3")
    over_stock = [geometric_mean(found.pairs(found.fixed[0], "8b-k0-stock", load)) for load in found.loads]
    text = (REPOSITORY / "docs/guide/presets.md").read_text(encoding="utf-8")

    assert found.bench["arms"]["8b-k0-stock"]["lowering"] == "none"
    assert f"served up to {max(over_stock):.2f} times the stock engine's tokens" in text


def test_what_the_second_start_with_a_kept_cache_left_of_its_share() -> None:
    """Of the utilization of its spec, 0.9; the widest step comes on top of what is held."""
    widest = measured.document("2026-12-01-h200-memory-launches-13.json")["launches"][0]["measured"]["ranks"][0]
    text = (REPOSITORY / "docs/concepts/remedies.md").read_text(encoding="utf-8")
    shares = []
    for name in ("", "-2"):
        (launch,) = measured.document(f"2026-12-01-h200-launches-kept-kv{name}.json")["launches"]
        (rank,) = launch["measured"]["ranks"]
        memory = rank["memory"]
        taken = memory["held_bytes"] + memory["kv_cache_bytes"] + widest["memory"]["peak_bytes"]
        shares.append(round((0.9 * memory["device_bytes"] - taken) / measured.MIB))

    assert f"{-shares[0]} MiB beyond its share" in text
    assert f"left the second one {shares[1]} MiB below its share" in text


def test_what_decoding_with_a_small_tokenizer_takes() -> None:
    few, whole = measured.document("2026-12-01-detokenizing.json")["timed"]
    text = (REPOSITORY / "docs/guide/measuring.md").read_text(encoding="utf-8")

    told = f"{few['microseconds_a_token']:.0f} microseconds a token, against {whole['microseconds_a_token']:.1f}"
    assert told in text


def test_how_far_twins_differ() -> None:
    """In either direction, beyond the interval of their launch, and by more than tiers over K = 3 of a dense model."""
    found = every_twin()
    apart = distance_of(found)
    signs = {geometric_mean(one.ratios) > 1 for one in found if one.over == "spec" and not one.has_load_aware}
    over_three = [over_all_loads(bench_of(name))[2] for name in ("8b-fp8", "8b-fp8-2")]

    assert {(one.file.partition("tiers-")[2], one.arm, one.over) for one in found} == {
        ("8b-fp8.json", "k7", "spec"),
        ("8b-fp8.json", "load", "spec"),
        ("8b-fp8.json", "load", "k7"),
        ("8b-fp8-2.json", "8b-k7", "spec"),
        ("8b-fp8-3.json", "8b-load", "spec"),
        ("8b-fp8-3.json", "8b-spec", "spec"),
        ("8b-fp8-3.json", "8b-spec", "8b-load"),
        ("30b-a3b-fp8.json", "30b-k7", "spec"),
        ("30b-a3b-fp8-3.json", "30b-k7", "spec"),
    }
    assert signs == {True, False}
    assert {one.file.partition("tiers-")[2] for one in found if one.interval_holds_one} == {
        "8b-fp8-3.json",
        "30b-a3b-fp8-3.json",
    }
    assert all(1 < ratio < 1 + apart for ratio in over_three)
    for name, words in (
        ("README.md", "equal servers differed by up to {}"),
        ("docs/guide/following-the-load.md", "differed by up to {}"),
        ("docs/guide/measuring.md", "were up to {} apart"),
    ):
        assert words.format(f"{apart * 100:.0f} %") in (REPOSITORY / name).read_text(encoding="utf-8")


def test_every_bench_that_the_page_says_ran_side_by_side_did() -> None:
    benches = [measured.document(path.name) for path in measured.bench_files()]

    assert len(benches) >= 6
    assert all(one["design"]["side_by_side_kv_bytes"] for one in benches)


@pytest.mark.parametrize(("model", "bench"), [("qwen3-30b-a3b-fp8", "30b-a3b-fp8"), ("qwen3-8b-fp8", "8b-fp8-3")])
def test_the_tiers_of_a_measured_preset_are_those_that_were_served(model: str, bench: str) -> None:
    chosen = bench_of(bench).choice["chosen"]
    text = (REPOSITORY / f"servespec/presets/{model}__h200__variable-load.yaml").read_text(encoding="utf-8")
    written = read_source(text, "preset").data["speculative"]["dynamic"]

    assert [tier["num_speculative_tokens"] for tier in written] == [one["num_speculative_tokens"] for one in chosen]
    assert [tier["up_to"] for tier in written[:-1]] == [one["to_requests"] for one in chosen[:-1]]


def test_how_far_off_predictions_of_served_traffic_were() -> None:
    benches = [bench_of(name) for name in ("30b-a3b-fp8-2", "30b-a3b-fp8", "8b-fp8-2")]
    errors = [one.median_errors() for one in benches]
    speeds = [one.median_speed_error(one.played) for one in benches]
    at_once = [one.median_speed_error(one.played_at_once) for one in benches]
    text = (REPOSITORY / "docs/guide/following-the-load.md").read_text(encoding="utf-8")

    steady, played = zip(*errors, strict=True)
    assert "were off by {:.0%}, {:.0%} and {:.0%} at the median".format(*steady) in text
    assert "those of `servespec predict` by {:.0%}, {:.0%} and {:.0%}".format(*played) in text
    assert "from 64 requests on were off by {:.0%}, {:.0%} and {:.0%}".format(*speeds) in text
    assert f"were {at_once[2]:.0%} off without it, as they were {at_once[0]:.0%} and {at_once[1]:.0%} in" in text
    assert f"each request takes {benches[0].played['front_end_seconds'] * 1000:g} ms of client" in text


def test_the_engine_pads_a_cached_prompt_only_where_k_is_fixed() -> None:
    root = Path(os.environ.get("SERVESPEC_ENGINES", REPOSITORY / ".engines")) / "vllm-0.33.0"
    if not root.is_dir():
        pytest.skip("the engine's source is not there: python tools/fetch_engines.py")
    text = " ".join((root / "vllm/v1/core/sched/scheduler.py").read_text(encoding="utf-8").split())

    assert (
        "if ( (self.num_spec_tokens > 0 and self.dynamic_sd_lookup is None) and self.num_sampled_tokens_per_step > 0 "
        "and num_new_tokens == 1"
    ) in text


def test_what_compiling_takes_of_a_first_launch() -> None:
    found = {one.name: one.values for one in measured.repeated()}
    compiled, cached = min(found["KV tokens"]), max(found["KV tokens"])
    peaks = [f"{end(found['peak of a step']) * 1024:,.0f}" for end in (max, min)]
    text = (REPOSITORY / "docs/concepts/memory.md").read_text(encoding="utf-8")

    assert f"{compiled:,} tokens of KV cache when it was compiled and {cached:,} when it was not" in text
    assert f"{peaks[0]} against {peaks[1]} MiB for a dense 8B model" in P150.explanation
    assert f"{512 * 151936 * COUNT_BYTES.value / measured.MIB:.0f} MiB at 512 requests and 151,936 tokens" in text


def test_what_one_capture_stream_saved() -> None:
    saved = sorted(one.measured_gib for one in measured.savings() if one.launch.is_planned)
    text = (REPOSITORY / "docs/concepts/remedies.md").read_text(encoding="utf-8")

    assert all(one.added == {GraphRemedy.ONE_CAPTURE_STREAM} for one in measured.savings() if one.launch.is_planned)
    assert f"[{' and '.join(f'{one:.2f}' for one in saved)} GiB]" in text


def test_how_many_launches_captured_what_was_planned() -> None:
    kinds = ("extension", "bench-")
    files = [path for kind in kinds for path in measured.MEASUREMENTS.glob(f"*-launches-{kind}*.json")]
    launches = [
        sum(launch["lowering"] == "extension" for launch in measured.document(file.name)["launches"]) for file in files
    ]
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    lowering = (REPOSITORY / "docs/concepts/lowering.md").read_text(encoding="utf-8")

    words = {1: "one", 3: "three", 4: "four", 5: "five", 7: "seven", 9: "nine", 38: "thirty-eight"}
    assert all(
        f"[{words[count]}](docs/measurements/{file.name})" in readme
        for count, file in zip(launches, files, strict=True)
    )
    assert f"{words[sum(launches)]} launches on one H200 captured what was planned" in lowering

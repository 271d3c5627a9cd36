"""Figures that guides and the list of measurements say in a sentence are those of the files that they link."""

import json

import measured_launches as measured
import pytest
from doc_pages.compiling import plan_of_file
from doc_pages.curves_page import TIERS_EXAMPLE
from doc_pages.tiers_bench import tiers_bench

from servespec.compiler.curves.step_times import step_times_of
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.memory.graph_pools import GraphRemedy
from servespec.runtime.bench.ratios import geometric_mean
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


def test_what_tiers_by_a_curve_served() -> None:
    bench = measured.document("2026-12-01-h200-bench-tiers-8b-fp8.json")
    found = tiers_bench(plan_of_file(REPOSITORY / TIERS_EXAMPLE), bench)
    text = (REPOSITORY / "docs/guide/following-the-load.md").read_text(encoding="utf-8")
    over = [geometric_mean(found.over_all_loads("spec", arm)) for arm in found.fixed.values()]
    below_the_knee = [geometric_mean(found.pairs("load", found.fixed[7], load)) for load in (1, 16)]
    assert list(found.fixed) == [0, 1, 3, 7]
    assert "served {:.2f}, {:.2f}, {:.2f} and {:.2f} times as many tokens".format(*over) in text
    assert sum(found.is_below(load) for load in found.loads) == 1
    assert len(found.loads) == 6
    assert "off by {:.0%} at the median, those of `servespec predict` by {:.0%}".format(*found.median_errors()) in text
    assert all(abs(ratio - 1) < 0.02 for ratio in below_the_knee)


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

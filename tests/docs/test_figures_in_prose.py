"""Figures that guides and the list of measurements say in a sentence are those of the files that they link."""

import json

import measured_launches as measured
import pytest

from servespec.compiler.curves.step_times import step_times_of
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.memory.graph_pools import GraphRemedy
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


def test_what_one_capture_stream_saved() -> None:
    saved = sorted(one.measured_gib for one in measured.savings() if one.launch.is_planned)
    text = (REPOSITORY / "docs/concepts/remedies.md").read_text(encoding="utf-8")

    assert all(one.added == {GraphRemedy.ONE_CAPTURE_STREAM} for one in measured.savings() if one.launch.is_planned)
    assert f"[{' and '.join(f'{one:.2f}' for one in saved)} GiB]" in text

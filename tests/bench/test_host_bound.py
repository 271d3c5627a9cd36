"""Which loads of a bench one process of the host bounds, by benches that were measured."""

import json

import pytest

from servespec.render.bench_text import bench_text, host_bound_note
from tests.plans import REPOSITORY

Json = dict[str, object]


def measured(name: str) -> Json:
    found: Json = json.loads((REPOSITORY / "docs/measurements" / f"2026-12-01-h200-bench-{name}.json").read_bytes())
    return found


def test_long_answers_were_bounded_by_the_api_server() -> None:
    results = measured("30b-a3b-fp8-k3-1k")

    assert host_bound_note(results).startswith("at 64, 160 requests an API server or the client takes 0.9 of a core")
    assert host_bound_note(results) in bench_text(results)


@pytest.mark.parametrize("name", ["30b-a3b-fp8-k3", "tiers-30b-a3b-fp8-3", "tiers-8b-fp8-2"])
def test_short_answers_were_not(name: str) -> None:
    assert host_bound_note(measured(name)) == ""

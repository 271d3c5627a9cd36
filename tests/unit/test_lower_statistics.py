"""The engine's dispatch statistics are on unless the spec's own arguments say otherwise."""

from typing import Any

import pytest

from servespec.compiler.lower import Statistics
from tests.plans import compiled, model_folder, spec_of

FLAG = "--cudagraph-metrics"


@pytest.mark.parametrize(
    ("args", "statistics", "words"),
    [
        ({}, Statistics.SERVESPEC, [FLAG]),
        ({"cudagraph_metrics": False}, Statistics.OFF, ["--no-cudagraph-metrics"]),
        ({"no-cudagraph-metrics": True}, Statistics.OFF, ["--no-cudagraph-metrics"]),
        ({"cudagraph-metrics": True}, Statistics.SPEC, [FLAG]),
        ({"disable-log-stats": True}, Statistics.OFF, []),
        ({"disable-log-stats": True, "cudagraph-metrics": True}, Statistics.OFF, [FLAG]),
        ({"disable-log-stats": False}, Statistics.SERVESPEC, [FLAG]),
    ],
)
@pytest.mark.parametrize("lowering", ["legacy", "extension"])
def test_the_spec_has_the_last_word(
    args: dict[str, Any], statistics: Statistics, words: list[str], lowering: str
) -> None:
    engine = {"version": "0.33.0", "lowering": lowering, "args": args}

    lowered = compiled(spec_of("qwen3-8b", "h200", engine=engine)).lowered

    assert lowered.statistics is statistics
    assert [word for word in lowered.argv if "cudagraph-metrics" in word] == words


def test_they_are_on_where_graphs_are_off() -> None:
    """Every step is then eager, which the numbers say."""
    lowered = compiled(
        spec_of("qwen3-8b", "h200", model={"id": model_folder("qwen3-8b"), "enforce_eager": True})
    ).lowered

    assert FLAG in lowered.argv

"""Acceptance against the engine's own functions."""

import json
import random
from pathlib import Path

import pytest

from servespec.compiler.curves.acceptance import engine_rates_of_length
from servespec.runtime.acceptance_source import measured_acceptance
from tests.differential.engine_oracle import available_roots, engine_version
from tests.differential.engine_process import PYTHON, installed_root, run
from tests.differential.stand_ins import engine
from tests.metrics_server import serving


@pytest.mark.parametrize("root", available_roots(), ids=engine_version)
def test_synthetic_lengths_become_the_engines_rates(root: Path) -> None:
    lifted = engine(root).text.part_of_class(
        "vllm.config.speculative:SpeculativeConfig", ("_acceptance_length_to_rates",)
    )
    dice = random.Random(7)  # noqa: S311 - the same lengths on every run
    for _ in range(300):
        drafts = dice.randint(1, 16)
        length = dice.choice([1.0, 1 + drafts, dice.uniform(1, 1 + drafts), float(dice.randint(1, 1 + drafts))])
        engines = lifted._acceptance_length_to_rates(length, drafts)
        assert engine_rates_of_length(length, drafts) == pytest.approx(engines, abs=1e-12), (length, drafts)


@pytest.mark.engine
def test_rates_are_read_from_what_the_engines_own_counters_expose() -> None:
    """Of seeded steps on two engines: the share of all drafts of which each position was accepted."""
    if PYTHON is None or installed_root() is None:
        pytest.skip("needs an installed vLLM")
    dice = random.Random(11)  # noqa: S311 - the same steps on every run
    steps = [(dice.randint(0, 1), 3, dice.randint(0, 3)) for _ in range(400)]

    text = run("spec_decode_metrics.py", None, json.dumps({"positions": 3, "steps": steps}))
    with serving(text) as url:
        found = measured_acceptance(url, 0)

    expected = [sum(accepted > position for _, _, accepted in steps) / len(steps) for position in range(3)]
    assert found.drafts == len(steps)
    assert found.rates == pytest.approx(expected, abs=1e-4)
    assert found.findings == ()

"""Acceptance against the engine's own functions."""

import random
from pathlib import Path

import pytest

from servespec.compiler.curves.acceptance import engine_rates_of_length
from tests.differential.engine_oracle import available_roots, engine_version
from tests.differential.stand_ins import engine


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

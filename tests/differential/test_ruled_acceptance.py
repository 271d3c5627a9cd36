"""The engine's own estimator over real tensors, where a rule accepts drafts; its kernels stay out."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from servespec.runtime.extension.ruled_acceptance import estimate_by_rule
from tests.differential.lifting import EngineText
from tests.differential.test_extension import needs_engine, root

ESTIMATOR = "vllm.v1.worker.gpu.spec_decode.acceptance_estimator"
RATES = [0.79, 0.61, 0.47, 0.37, 0.29, 0.23, 0.18]


def from_here(function: Any) -> Any:
    """What torch imports by itself is looked for by the function that calls it, which is not to be lifted code."""

    def call(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    return call


@needs_engine
def test_it_starts_at_the_rates_by_which_the_engine_accepts_and_returns_there() -> None:
    torch = pytest.importorskip("torch")
    kernel: Any = defaultdict(lambda: lambda *_, **__: None)
    triton = SimpleNamespace(next_power_of_2=lambda number: 1 << (number - 1).bit_length())
    tensors = SimpleNamespace(zeros=from_here(torch.zeros), full=from_here(torch.full), float32=torch.float32)
    text = EngineText(
        root(),
        {
            "torch": tensors,
            f"{ESTIMATOR}:triton": triton,
            f"{ESTIMATOR}:_accumulate_kernel": kernel,
            f"{ESTIMATOR}:_refit_kernel": kernel,
            f"{ESTIMATOR}:_INIT_SLOPE": 0.5,
            f"{ESTIMATOR}:_INIT_BIAS": -0.2,
        },
    )
    members = ("__init__", "step", "REFIT_INTERVAL", "DAMPING_OBSERVATIONS", "L2")
    estimator_type = text.part_of_class(f"{ESTIMATOR}:OnlineAcceptanceEstimator", members)
    accepted = text.get("vllm.v1.spec_decode.utils:unconditional_to_conditional_rates")(RATES)

    estimate_by_rule(RATES, estimator_type)
    estimator = estimator_type(4, len(RATES), "cpu")
    starts = torch.sigmoid(estimator.intercepts).tolist()
    estimator.slope += 1
    estimator.intercepts += 1
    for _ in range(estimator.REFIT_INTERVAL):
        estimator.step(torch.zeros(2), torch.zeros(2), torch.zeros(2))

    assert starts == pytest.approx(accepted)
    assert estimator.slope.tolist() == [0.0]
    assert torch.sigmoid(estimator.intercepts).tolist() == starts

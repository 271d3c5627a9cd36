"""How the engine compiles decides which graphs there are."""

from typing import Any

import pytest

from servespec.compiler.facts.cudagraph_mode import CompilationMode, CudaGraphMode
from servespec.compiler.plan import Plan
from tests.plans import compiled, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

MIB = 1 << 20


def plan_of(**sections: Any) -> Plan:
    limits = {"max_num_seqs": 8, "max_num_batched_tokens": 8192}
    return compiled(spec_of("llama-3.1-8b", "h200", scheduler=limits, **sections))


@pytest.mark.parametrize(
    "sections",
    [
        {"compilation": {"mode": 0}},
        {"compilation": {"mode": "NONE"}},
        {"engine": {"version": "0.33.0", "env": {"TORCH_COMPILE_DISABLE": "1"}}},
    ],
)
def test_without_compiled_pieces_decodes_alone_have_graphs(sections: dict[str, Any]) -> None:
    """Source: vllm/config/vllm.py: VllmConfig._normalize_piecewise_cudagraph_mode."""
    plan = plan_of(**sections)

    assert plan.graphs.mode is CudaGraphMode.FULL_DECODE_ONLY
    assert {shape.mode for shape in plan.graphs.shapes} == {CudaGraphMode.FULL}


@pytest.mark.parametrize("written", [3, "VLLM_COMPILE", None])
def test_the_engines_own_way_has_both(written: int | str | None) -> None:
    assert plan_of(compilation={"mode": written}).graphs.mode is CudaGraphMode.FULL_AND_PIECEWISE


def test_other_ways_have_none_and_it_is_told() -> None:
    plan = plan_of(compilation={"mode": int(CompilationMode.STOCK_TORCH_COMPILE)})

    assert plan.graphs.shapes == ()
    assert "R104" in {finding.code for finding in plan.diagnostics}


def test_what_does_not_compile_tries_no_kernels() -> None:
    def peak_bytes(**sections: Any) -> int:
        ledger = plan_of(**sections).ledger
        assert ledger is not None
        return next(line.size for line in ledger.lines if line.owner == "peak of a step")

    step_bytes = 8192 * (3 * 4096 + 3 * 14336) * 2 - 95 * MIB
    assert peak_bytes(compilation={"mode": "NONE"}) == step_bytes
    assert peak_bytes(engine={"version": "0.33.0", "env": {"TORCH_COMPILE_DISABLE": "1"}}) == step_bytes
    assert peak_bytes(compilation={"mode": "VLLM_COMPILE"}) > step_bytes

"""How many devices a layout takes, wherever that is asked; a prefill's context takes ranks as tensors do."""

from typing import Any

import pytest

from servespec.compiler.command_line.reading import read_words
from servespec.compiler.command_line.word import typed_words
from servespec.compiler.facts.engine_fields import table
from servespec.compiler.parallel_ranks import RANK_FIELDS, ranks, replica_ranks, stage_ranks, world_ranks
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.runtime.capture_report import _is_of_last_stage, rank_names
from tests.plans import compiled, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

LAYOUT = {"tensor_parallel_size": 2, "prefill_context_parallel_size": 2}


def plan_of(count: int, **parallel: Any) -> Plan:
    layout = {**LAYOUT, **parallel}
    return compiled(spec_of("deepseek-v3", "h200", hardware={"gpu": "h200", "count": count}, parallel=layout))


def test_ranks_of_a_stage_of_a_replica_and_of_all() -> None:
    spec = plan_of(8, pipeline_parallel_size=2).resolution.request.spec

    assert (stage_ranks(spec), replica_ranks(spec), world_ranks(spec)) == (4, 8, 8)


def test_the_hardware_is_counted_with_them() -> None:
    with pytest.raises(SpecError, match="the layout needs 4 GPUs"):
        plan_of(2)

    assert "R114" not in {one.rule.code for one in plan_of(4).diagnostics}


def test_ranks_of_a_prefill_talk_to_each_other() -> None:
    ledger = plan_of(2, tensor_parallel_size=1).to_json()["memory"]

    assert "NCCL buffers" in {line["owner"] for line in ledger["lines"]}


def test_every_rank_leaves_a_report_and_the_last_stage_is_found() -> None:
    plan = plan_of(8, pipeline_parallel_size=2)
    names = rank_names(plan, lambda replica, rank: f"{replica}-{rank}")

    assert names == [f"0-{rank}" for rank in range(8)]
    assert [_is_of_last_stage(plan, (0, rank)) for rank in range(8)] == [False] * 4 + [True] * 4


def test_an_imported_command_counts_them() -> None:
    words = ["vllm", "serve", "org/model", "--tensor-parallel-size", "2", "--prefill-context-parallel-size", "2"]

    assert ranks(read_words(typed_words(words), table("0.33.0"), {}).data["parallel"]) == 4


def test_a_layout_has_the_ranks_of_its_spec() -> None:
    """The same whether it is counted from plain data or from a spec, with each field its own."""
    sizes = dict(zip(RANK_FIELDS, (2, 2, 2, 3), strict=True))
    spec = plan_of(24, **sizes).resolution.request.spec

    assert (ranks(sizes), world_ranks(spec)) == (24, 24)
    assert ranks({"tensor_parallel_size": "many", "data_parallel_size": 2}) == 2

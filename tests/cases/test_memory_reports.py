"""Public reports about memory, each answered from the ledger as the report expects.

Their models are seldom public whole; where a report is about arithmetic alone, its own numbers go in.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.memory.indexer_logits import indexer_row
from servespec.compiler.memory.kv_cache import KvCache, KvGroup, KvRequest, LayerKind
from servespec.compiler.memory.ledger import Ledger, ledger_of
from servespec.compiler.memory.line import Holder, MemoryLine, Part, exact_line
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.units import Bytes, Tokens
from tests.cases.reports import DEVICES, FILE, VERSION, Report, read_reports
from tests.cases.test_reports import IN_MEMORY
from tests.plans import Json, compiled, model_folder, planned, row_of

GIB = 1 << 30
REPORTS = {report.id: report for report in read_reports()}
pytestmark = [
    pytest.mark.usefixtures("quiet_shell"),
    pytest.mark.skipif(not REPORTS, reason=f"{FILE.name} does not lie beside this checkout"),
]


def spec(name: str, report: Report, /, **sections: Any) -> Json:
    gpu = DEVICES.get(report.input["gpu"], "h200")
    base: Json = {"servespec": 1, "hardware": {"gpu": gpu}, "engine": {"version": VERSION}}
    model = {"id": model_folder(name), "max_model_len": 4096} | sections.pop("model", {})
    return base | {"model": model} | sections


def ledger(plan: Plan) -> Ledger:
    assert plan.ledger is not None
    return plan.ledger


def a_block_for_every_state(report: Report) -> None:
    """Any hybrid with as many blocks, here eight layers of one."""
    expected, given = report.expected, report.input
    assert (expected["severity"], expected["rule"]) == ("error", "max_num_seqs_exceeds_state_blocks")
    suggested = expected["suggest_max_num_seqs"]

    def asked(requests: int, blocks: int) -> Json:
        tokens = max(given["max_num_batched_tokens"], requests)
        return spec(
            "qwen3-next-80b-a3b-fp8",
            report,
            model={"hf_overrides": {"num_hidden_layers": 8}},
            scheduler={"max_num_seqs": requests, "max_num_batched_tokens": tokens},
            memory={"num_gpu_blocks_override": blocks},
        )

    with pytest.raises(SpecError) as caught:
        compiled(asked(given["max_num_seqs"], given["state_blocks"]))
    (finding,) = [finding for finding in caught.value.diagnostics if finding.code == "P140"]
    assert f"`scheduler.max_num_seqs: {suggested}`" in finding.help

    followed, roomy = planned(asked(suggested, given["state_blocks"])), planned(asked(suggested, 2000))
    same = row_of(followed, "piecewise")["sizes"] == row_of(roomy, "piecewise")["sizes"]
    assert same == expected["prefill_list_unchanged"]


def the_engines_tokens(report: Report) -> None:
    """Concurrency in tokens, whatever another line of the log says."""
    concurrency, length = report.input["max_concurrency"], report.input["max_model_len"]
    group = KvGroup(
        kind=LayerKind.FULL,
        layers=1,
        block_tokens=length // 64,
        block_bytes=Bytes(1),
        window_tokens=None,
        state_blocks=0,
    )
    cache = KvCache(groups=(group,), request=KvRequest(max_model_len_tokens=length, in_flight_tokens=Tokens(0)))
    blocks = round(concurrency * cache.request_blocks)

    assert cache.tokens(blocks) == pytest.approx(report.expected["capacity_tokens"], rel=0.001)
    assert report.expected["ignore_raw_line"] == (cache.tokens(blocks) != report.input["raw_token_line"])


def blocks_of_a_window(report: Report) -> None:
    """A decoding request has one step of K + 1 tokens in flight."""
    given, expected = report.input, report.expected
    windowed = KvGroup(
        kind=LayerKind.WINDOW,
        layers=1,
        block_tokens=given["drafter_block"],
        block_bytes=Bytes(1),
        window_tokens=given["drafter_window"],
        state_blocks=0,
    )
    whole = replace(windowed, kind=LayerKind.FULL, window_tokens=None)
    request = KvRequest(max_model_len_tokens=Tokens(given["max_model_len"]), in_flight_tokens=Tokens(given["k"] + 1))

    assert windowed.request_blocks(request) == expected["drafter_blocks_needed"]
    assert whole.request_blocks(request) == expected["wrong_full_sequence_blocks"]
    shorter = replace(request, max_model_len_tokens=Tokens(15537))
    assert whole.request_blocks(shorter) == expected["blocks_at_15537"]


def an_estimate_in_utilization(report: Report) -> None:
    """What the engine estimates for graphs comes off the budget as a smaller utilization would."""
    given, expected = report.input, report.expected
    shared = spec("qwen3-8b", report)

    def cache_of(utilization: float, estimate_gib: float | None) -> int:
        plan = compiled(shared | {"memory": {"gpu_memory_utilization": utilization}})
        estimate = None
        if estimate_gib is not None:
            size = Bytes(int(estimate_gib * GIB))
            estimate = exact_line("graphs", Holder.ENGINE, Part.GRAPHS, size, "as reported")
        found = ledger_of(plan.resolution, (), estimate)
        assert found is not None
        return found.cache.size

    device = ledger(compiled(shared)).device_bytes / GIB
    scaled = given["engine_estimate_gib"] * device / given["total_gib"]
    with_estimate = cache_of(given["gpu_memory_utilization"], scaled)
    at_equivalent = cache_of(expected["equivalent_utilization"], None)

    assert with_estimate == pytest.approx(at_equivalent, abs=0.0005 * device * GIB)
    assert expected["kv_tokens_on"] < expected["kv_tokens_off"]


def an_estimate_below_zero(report: Report) -> None:
    """The engine's estimate was negative, so that its cache is larger than the budget without weights and peak."""
    given, expected = report.input, report.expected
    assert (expected["suspicious"], expected["warn"]) == (True, "negative_engine_estimate")
    plan = compiled(
        spec(
            "qwen3-8b",
            report,
            memory={"gpu_memory_utilization": given["gpu_memory_utilization"]},
            compilation={"cudagraph_mode": given["mode"]},
        )
    )
    found = ledger(plan)

    assert found.estimate is not None
    assert found.estimate.low >= expected["estimate_must_be_ge"]
    assert found.cache.high < given["engine_kv_gib"] * GIB
    bound = found.budget_bytes - found.of(Part.WEIGHTS).low - found.of(Part.ACTIVATIONS).low
    assert found.cache.high <= bound


def logits_of_an_indexer(report: Report) -> None:
    """Another engine's chunk of prefill has as many rows; ranks divide nothing."""
    given, expected = report.input, report.expected

    def row_bytes(ranks: int) -> int:
        plan = compiled(
            spec(
                "deepseek-v4-flash-fp4",
                report,
                model={"max_model_len": given["context"]},
                hardware={"gpu": "h200", "count": ranks},
                parallel={"tensor_parallel_size": ranks},
            )
        )
        row = indexer_row(plan.resolution)
        assert row is not None
        return row.scored_bytes

    size = given["max_num_batched_tokens"] * row_bytes(given["tp"])
    assert size / GIB == pytest.approx(expected["indexer_logits_gib"], abs=0.01)
    assert expected["not_divided_by_tp"] == (row_bytes(given["tp"]) == row_bytes(8))


def logits_of_a_block(report: Report) -> None:
    """A shard, what all ranks gather, and the same made contiguous, for one graph of as many rows."""
    given, expected = report.input, report.expected
    rows, whole = given["draft_rows"], 2 * given["vocab"]
    plan = compiled(
        spec(
            "deepseek-v4-flash-fp4",
            report,
            model={"max_model_len": None},
            hardware={"gpu": "gb200", "count": given["tp"]},
            parallel={"tensor_parallel_size": given["tp"], "enable_expert_parallel": True},
            scheduler={
                "max_num_seqs": given["max_num_seqs"],
                "max_num_batched_tokens": given["max_num_batched_tokens"],
            },
            speculative={"method": given["method"], "num_speculative_tokens": given["k"]},
        )
    )
    lines = {line.owner: line for line in ledger(plan).lines}
    held: MemoryLine = lines["block: draft logits in FULL graphs"]

    assert plan.resolution.drafting.kind is DrafterKind.BLOCK
    parts = (rows * whole // given["tp"], rows * whole, rows * whole)
    named = ("local_shard_gib", "allgather_gib", "contiguous_gib")
    assert [size / GIB for size in parts] == pytest.approx([expected[name] for name in named], abs=0.001)
    assert held.size / GIB == pytest.approx(expected["subtotal_gib"], rel=0.15)


ANSWERS: dict[str, Callable[[Report], None]] = {
    **dict.fromkeys(("bug-083", "bug-085", "bug-086", "bug-087", "bug-089"), a_block_for_every_state),
    "bug-068": an_estimate_below_zero,
    "bug-073": an_estimate_in_utilization,
    **dict.fromkeys(("bug-077", "bug-078"), logits_of_an_indexer),
    "bug-090": the_engines_tokens,
    "bug-091": blocks_of_a_window,
    "seed-13": logits_of_a_block,
}


def test_every_report_about_memory_that_is_run_has_an_answer() -> None:
    assert ANSWERS.keys() == set(IN_MEMORY)


@pytest.mark.parametrize("name", ANSWERS)
def test_report(name: str) -> None:
    ANSWERS[name](REPORTS[name])

"""Plans whose memory comes from the record of a launch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servespec.compiler.memory.line import Part
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.provenance import Basis, Origin
from servespec.runtime.capture import Capture, Evidence, RankCapture, RankMemory, RowCapture, RowCost, Verdict
from servespec.runtime.gather import Options
from servespec.runtime.record import Measured, record_of, write_record
from tests.plans import Json, compiled, model_folder, spec_of
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

GIB, MIB = 1 << 30, 1 << 20
MARGIN_BYTES = 150 * MIB
# As one launch on an H200 was: docs/measurements, Qwen3-8B with EAGLE3.
TOTAL, FREE = 150_109_880_320, 149_356_609_536
WEIGHTS, HELD, PEAK = 16_931_000_320, 23_144_431_616, 972_800_000


def spec(**sections: Any) -> Json:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    given = {"speculative": draft, "scheduler": {"max_num_seqs": 64}, "engine": EXTENSION, **sections}
    return spec_of("qwen3-8b", "h200", **given)


def recorded(
    folder: Path,
    *,
    ranks: int = 1,
    peak: int | None = PEAK,
    held: int = HELD,
    said: Json | None = None,
    **sections: Any,
) -> Path:
    """What a launch of that spec would leave, whose rows each took a third of a GiB; the last rank holds most."""
    plan = compiled(spec(**sections))
    cost = RowCost(pool_bytes=GIB // 4, device_bytes=GIB // 3, seconds=1.0)
    rows = tuple(RowCapture((row.graphs,) * ranks, Verdict.AS_PLANNED, (cost,) * ranks) for row in plan.graphs.rows)
    capture = Capture(
        evidence=Evidence.WORKERS, rows=rows, ranks=tuple(_rank(at, held, peak) for at in range(ranks)), findings=()
    )
    folder.mkdir(exist_ok=True)
    measured = Measured(started=1_800_000_000.0, capture=capture, said=said or {})
    assert write_record(folder, plan, measured) == ()
    return folder / "record.json"


def _rank(at: int, held: int, peak: int | None) -> RankCapture:
    memory = RankMemory(
        device_bytes=TOTAL,
        free_at_start_bytes=FREE,
        weights_bytes=WEIGHTS,
        held_bytes=held + at * MIB,
        peak_bytes=peak,
        engine_estimate_bytes=None,
        kv_cache_bytes=100 * GIB,
    )
    return RankCapture(data_parallel_rank=0, rank=at, capture_seconds=9.0, graph_bytes=2 * GIB, memory=memory)


def measured_plan(record: Path, **sections: Any) -> Plan:
    return compiled(spec(**sections), Options(measured=(record,)))


def codes(plan: Plan) -> list[str]:
    return [finding.code for finding in plan.diagnostics]


def test_every_line_is_the_measured_one(tmp_path: Path) -> None:
    plan = measured_plan(recorded(tmp_path))

    ledger = plan.ledger
    assert ledger is not None
    assert {line.basis for line in ledger.lines} == {Basis.MEASURED}
    assert ledger.of(Part.WEIGHTS).size == WEIGHTS
    assert ledger.of(Part.ACTIVATIONS).size == PEAK
    assert ledger.of(Part.GRAPHS).size == len(plan.graphs.rows) * (GIB // 3)
    budgeted = sum(line.size for line in ledger.lines if line.is_budgeted)
    assert budgeted == HELD + PEAK
    assert ledger.all_lines.size == budgeted + TOTAL - FREE


def test_the_cache_is_pinned_to_what_is_left(tmp_path: Path) -> None:
    plan = measured_plan(recorded(tmp_path), memory={"gpu_memory_utilization": 0.9})

    ledger, words = plan.ledger, plan.lowered.argv
    assert ledger is not None
    left = ledger.budget_bytes - HELD - PEAK - MARGIN_BYTES
    assert ledger.pinned_bytes is not None
    assert 0 <= left - ledger.pinned_bytes < MIB
    assert words[words.index("--kv-cache-memory-bytes") + 1] == str(ledger.pinned_bytes)
    totals = plan.to_json()["memory"]["totals"]
    assert totals["kv_cache_basis"] == "exact"
    assert totals["kv_cache_tokens"] == totals["kv_cache_low_tokens"] == totals["kv_cache_high_tokens"]
    assert plan.resolution.values["memory.kv_cache_memory_bytes"].origin is Origin.DERIVED


@settings(max_examples=25)
@given(share=st.floats(0.45, 0.95), held=st.integers(18 * GIB, 40 * GIB), peak=st.integers(0, 4 * GIB))
def test_a_budget_is_neither_exceeded_nor_wasted(
    share: float, held: int, peak: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = recorded(tmp_path_factory.mktemp("record"), held=held, peak=peak)

    ledger = measured_plan(record, memory={"gpu_memory_utilization": share}).ledger

    assert ledger is not None
    assert ledger.pinned_bytes is not None
    used = held + peak + ledger.pinned_bytes
    assert ledger.budget_bytes - MARGIN_BYTES - MIB < used <= ledger.budget_bytes - MARGIN_BYTES


def test_the_rank_that_holds_most_decides(tmp_path: Path) -> None:
    two = {"parallel": {"tensor_parallel_size": 2}, "hardware": {"gpu": "h200", "count": 2}}
    plan = measured_plan(recorded(tmp_path, ranks=2, **two), **two)

    assert plan.ledger is not None
    assert sum(line.size for line in plan.ledger.lines if line.is_budgeted) == HELD + MIB + PEAK


@pytest.mark.parametrize(
    "sections",
    [
        {"memory": {"kv_cache_memory_bytes": "20GiB"}},
        {"memory": {"num_gpu_blocks_override": 5000}},
        {"remedies": {"kv_from_measurement": True}},
    ],
)
def test_a_cache_that_has_a_size_keeps_it(tmp_path: Path, sections: Json) -> None:
    plan, own = measured_plan(recorded(tmp_path), **sections), compiled(spec(**sections))

    assert plan.ledger is not None
    assert own.ledger is not None
    assert plan.ledger.pinned_bytes == own.ledger.pinned_bytes
    assert "memory.kv_cache_memory_bytes" not in plan.resolution.values
    assert plan.lowered.argv == own.lowered.argv


def test_a_peak_that_was_not_measured_stays_a_formula(tmp_path: Path) -> None:
    """Of a launch with a cache of given size."""
    plan, own = measured_plan(recorded(tmp_path, peak=None)), compiled(spec())

    assert plan.ledger is not None
    assert own.ledger is not None
    assert plan.ledger.of(Part.ACTIVATIONS) == own.ledger.of(Part.ACTIVATIONS)
    assert plan.ledger.pinned_bytes is None


def test_other_graphs_are_by_formula_and_named(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    other = {"compilation": {"max_decode_cudagraph_capture_requests": 32}}

    plan, own = measured_plan(record, **other), compiled(spec(**other))

    assert plan.ledger is not None
    assert own.ledger is not None
    assert plan.ledger.of(Part.GRAPHS) == own.ledger.of(Part.GRAPHS)
    assert plan.ledger.of(Part.WEIGHTS).size == WEIGHTS
    assert plan.ledger.pinned_bytes is None
    (finding,) = [one for one in plan.diagnostics if one.code == "P137"]
    assert finding.message.startswith("the graphs of `target uniform_decode`, ")


@pytest.mark.parametrize(
    ("said", "sections", "is_told"),
    [
        ({"compiled_graphs": 2}, {}, True),
        ({}, {}, False),
        ({"compiled_graphs": 2}, {"remedies": {"kv_from_measurement": True}}, False),
    ],
)
def test_a_peak_that_counts_compiling_is_told_where_the_cache_leaves_it_free(
    tmp_path: Path, said: Json, sections: Json, is_told: bool
) -> None:
    plan = measured_plan(recorded(tmp_path, said=said), **sections)

    found = [one.message for one in plan.diagnostics if one.code == "P150"]
    assert [message.partition(",")[0] for message in found] == ["that launch compiled its models"] * is_told


@pytest.mark.parametrize(
    "free",
    [
        {"memory": {"gpu_memory_utilization": 0.5}},
        {"memory": {"kv_cache_memory_bytes": "20GiB"}},
        {"memory": {"estimate_cudagraph_memory": False}},
        {"serve": {"port": 9000, "host": "::1"}},
        {"model": {"id": model_folder("qwen3-8b"), "max_model_len": 8192, "served_model_name": "mine"}},
        {"remedies": {"kv_from_measurement": True}},
    ],
)
def test_it_holds_whatever_the_budget_the_address_and_the_context_are(tmp_path: Path, free: Json) -> None:
    plan = measured_plan(recorded(tmp_path), **free)

    assert {"P136", "P137"}.isdisjoint(codes(plan))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"scheduler": {"max_num_seqs": 65}}, "`--max-num-seqs`"),
        ({"memory": {"kv_cache_dtype": "fp8"}}, "`--kv-cache-dtype`"),
        ({"model": {"id": model_folder("llama-3.1-8b")}}, "`model`"),
        ({"speculative": None}, "`--speculative-config`"),
        ({"hardware": {"gpu": "h100"}}, "`device`"),
        ({"remedies": {"one_capture_stream": False}}, "`remedies`"),
        ({"engine": {**EXTENSION, "env": {"VLLM_USE_FLASHINFER_SAMPLER": "0"}}}, "`VLLM_USE_FLASHINFER_SAMPLER`"),
        ({"parallel": {"tensor_parallel_size": 2}, "hardware": {"gpu": "h200", "count": 2}}, "`device`"),
    ],
)
def test_a_record_of_other_arguments_is_refused(tmp_path: Path, other: Json, named: str) -> None:
    record = recorded(tmp_path)

    with pytest.raises(SpecError) as refused:
        measured_plan(record, **other)

    (finding,) = [one for one in refused.value.diagnostics if one.code == "P136"]
    assert finding.place.file == str(record)
    assert named in finding.message


def without_memory(record: Json) -> None:
    record["measured"]["ranks"][0]["memory"] = None


def of_a_drift(record: Json) -> None:
    record["measured"]["verdict"] = "differs"


def of_another_engine(record: Json) -> None:
    record["engine"]["version"] = "0.32.0"


def of_more_than_there_is(record: Json) -> None:
    record["measured"]["ranks"][0]["memory"]["free_at_start_bytes"] = TOTAL + 1


def of_parts_beyond_the_whole(record: Json) -> None:
    record["measured"]["ranks"][0]["memory"]["weights_bytes"] = HELD


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (of_more_than_there_is, "R013", "more memory free than its device has"),
        (of_parts_beyond_the_whole, "R013", "more than all that it held"),
        (without_memory, "R013", "`engine.lowering: extension`"),
        (of_a_drift, "R013", "did not capture what was planned"),
        (of_another_engine, "P136", "`engine`"),
    ],
)
def test_a_record_that_cannot_be_used_says_why(
    tmp_path: Path, change: Callable[[Json], None], code: str, said: str
) -> None:
    path = recorded(tmp_path)
    record = json.loads(path.read_text(encoding="utf-8"))
    change(record)
    path.write_text(json.dumps(record), encoding="utf-8")

    with pytest.raises(SpecError) as refused:
        measured_plan(path)

    found = [one for one in refused.value.diagnostics if one.code == code]
    assert [said in one.message for one in found] == [True]


def test_the_folder_of_a_launch_is_named_as_well(tmp_path: Path) -> None:
    record = recorded(tmp_path)

    by_folder, by_file = measured_plan(tmp_path).to_json(), measured_plan(record).to_json()

    assert by_folder == by_file
    assert by_file["memory"]["measured_by"]["record"] == str(record)
    assert by_file["memory"]["measured_by"]["date"] == "2027-01-15"


def test_a_plan_by_formula_names_no_record() -> None:
    assert "measured_by" not in compiled(spec()).to_json()["memory"]


def test_a_record_of_a_measured_plan_feeds_the_next(tmp_path: Path) -> None:
    """The second launch has a pinned cache, so its own record lacks the peak; its arguments are still the same."""
    first = recorded(tmp_path / "first")
    plan = measured_plan(first)
    document = record_of(plan, Measured(started=1_800_000_000.0))

    assert document["memory"]["measured_by"]["record"] == str(first)
    assert {"P136", "P137"}.isdisjoint(codes(measured_plan(first)))

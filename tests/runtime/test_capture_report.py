"""The workers' reports of what they captured, held against a plan."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.hand_off import manager_class
from servespec.compiler.graphs.managers import managers_of, own_shapes
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.render.serve_text import capture_line
from servespec.runtime.capture import AtExit, RowCapture, Verdict, VerificationSteps
from servespec.runtime.capture_report import graphs_at_exit, remove_reports, report_capture, verification_steps
from servespec.runtime.extension.failure import failure_name
from servespec.runtime.extension.replay import verified_name
from servespec.runtime.extension.report import left_name, report_name
from servespec.runtime.extension.step_times import step_times_name
from tests.plans import Json, compiled, model_folder, spec_of
from tests.strategies import EXTENSION, specs

pytestmark = pytest.mark.usefixtures("quiet_shell")


def plan_of(**sections: Any) -> Plan:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    given = {"speculative": draft, "scheduler": {"max_num_seqs": 64}, **sections}
    return compiled(spec_of("qwen3-8b", "h200", engine=EXTENSION, **given))


def report_of(plan: Plan, *, drafts: bool = True) -> Json:
    """What a worker writes that captured the plan, in a compiled model of three pieces; without ``drafts`` that of a
    pipeline stage that has no drafter."""
    frame, shapes = plan.resolution.frame, plan.graphs.shapes
    managers, piece_lists = [], set()
    for manager in managers_of(frame) if drafts else managers_of(frame)[:1]:
        own = own_shapes(manager, shapes)
        full = [s for s in own if s.mode is CudaGraphMode.FULL]
        piece_lists.add(tuple(sorted((s.tokens, s.active_loras) for s in own if s.mode is CudaGraphMode.PIECEWISE)))
        managers.append(
            {
                "class": manager_class(frame, manager),
                "query_len": manager.query_len,
                "mode": str(manager.mode),
                "full": [
                    [
                        s.tokens,
                        s.requests,
                        s.query_len or 0,
                        s.max_query_len or 0,
                        s.active_loras,
                        s.ubatches,
                        s.draft_steps or 0,
                    ]
                    for s in full
                ],
                "breakable": None,
            }
        )
    pieces = [{"pieces": 3, "sizes": [list(one) for one in sizes]} for sizes in sorted(piece_lists)]
    took = {"capture_seconds": 13.6, "graph_bytes": 2_254_857_830, "memory": MEMORY, "captures": captures_of(managers)}
    remedies = dict.fromkeys(plan.lowered.remedies, 1)
    return {"format": 1, "sha256": "", **took, "remedies": remedies, "managers": managers, "compiled_pieces": pieces}


MEMORY = {
    "device_bytes": 150_000_000_000,
    "free_at_start_bytes": 149_000_000_000,
    "weights_bytes": 16_000_000_000,
    "held_bytes": 18_000_000_000,
    "peak_bytes": None,
    "engine_estimate_bytes": None,
    "kv_cache_bytes": 17_000_000_000,
}


def captures_of(managers: list[Json]) -> list[Json]:
    """Every FULL graph took a byte of the pool for each of its tokens, two of the device, and a second."""
    return [
        {
            "class": one["class"],
            "query_len": one["query_len"],
            "mode": "FULL",
            "graphs": [
                {"graph": graph, "pool_bytes": graph[0], "device_bytes": 2 * graph[0], "seconds": 1.0}
                for graph in one["full"]
            ],
        }
        for one in managers
        if one["full"]
    ]


def left(folder: Path, report: Json, name: str = "captured-0-0.json") -> None:
    (folder / name).write_text(json.dumps(report), encoding="utf-8")


def found(plan: Plan, folder: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.message) for finding in report_capture(plan, folder).findings]


def counted(rows: Iterable[RowCapture]) -> list[tuple[tuple[int | None, ...], Verdict]]:
    return [(row.graphs, row.verdict) for row in rows]


def test_a_capture_as_planned_has_no_findings(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, report_of(plan))

    assert found(plan, tmp_path) == []
    capture = report_capture(plan, tmp_path)
    rows = plan.graphs.rows
    assert counted(capture.rows) == [((row.graphs,), Verdict.AS_PLANNED) for row in rows]
    assert capture_line(capture, plan) == (
        f"captured as planned: {len(rows)} runners, {len(plan.graphs.shapes)} graphs on 1 rank, 2.1 GiB, 14 s"
    )


def test_the_memory_of_every_rank_is_read(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, report_of(plan))

    (rank,) = report_capture(plan, tmp_path).ranks

    assert asdict(rank)["memory"] == MEMORY


@pytest.mark.parametrize(
    ("following", "full_rows"),
    [
        ({}, 3),
        ({"num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 64, 1]]}, 5),
        ({"load_aware": {"from_requests": 32}}, 4),
    ],
)
def test_every_row_has_the_costs_of_its_own_graphs(tmp_path: Path, following: Json, full_rows: int) -> None:
    """Graphs of several tiers come from one manager, as do those of both ways of load-aware verification."""
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    plan = plan_of(speculative={**draft, **following})
    left(tmp_path, report_of(plan))

    rows = list(zip(plan.graphs.rows, report_capture(plan, tmp_path).rows, strict=True))

    assert len([row for row, _ in rows if row.mode is CudaGraphMode.FULL]) == full_rows
    for row, capture in rows:
        tokens = [shape.tokens for shape in plan.graphs.shapes if row.holds(shape)]
        is_full = row.mode is CudaGraphMode.FULL
        (cost,) = capture.costs
        assert cost is not None
        assert cost.pool_bytes == (sum(tokens) if is_full else 0)
        assert (cost.device_bytes, cost.seconds) == (2 * cost.pool_bytes, len(tokens) if is_full else 0)


def test_each_tier_has_its_own_row(tmp_path: Path) -> None:
    tiers = [{"up_to": 16, "num_speculative_tokens": 3}, {"num_speculative_tokens": 1}]
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3, "dynamic": tiers}
    plan = plan_of(speculative=draft)
    left(tmp_path, report_of(plan))

    capture = report_capture(plan, tmp_path)

    assert [row.query_len for row in plan.graphs.rows if row.routine == "uniform_decode"] == [4, 2]
    assert counted(capture.rows) == [((row.graphs,), Verdict.AS_PLANNED) for row in plan.graphs.rows]


@settings(max_examples=100)
@given(spec=specs(engine=EXTENSION))
def test_whatever_was_captured_as_planned_is_so_in_every_row(
    tmp_path_factory: pytest.TempPathFactory, spec: Json
) -> None:
    try:
        plan = compiled(spec)
    except SpecError:
        reject()
    folder = tmp_path_factory.mktemp("captured")
    left(folder, report_of(plan))

    capture = report_capture(plan, folder)

    assert capture.findings == ()
    assert counted(capture.rows) == [((row.graphs,), Verdict.AS_PLANNED) for row in plan.graphs.rows]


def test_each_way_of_load_aware_verification_has_its_own_row(tmp_path: Path) -> None:
    """Both have the same longest query length, and come from one manager."""
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    plan = plan_of(speculative={**draft, "load_aware": {"from_requests": 32}})
    report = report_of(plan)
    (target, *_) = report["managers"]
    target["full"] = [graph for graph in target["full"] if graph[3] == 0 or graph[0] > 64]
    left(tmp_path, report)

    verdicts = {
        row.routine: one.verdict for row, one in zip(plan.graphs.rows, report_capture(plan, tmp_path).rows, strict=True)
    }

    assert verdicts["uniform_decode"] is Verdict.AS_PLANNED
    assert verdicts["adaptive_verification"] is Verdict.DIFFERS


def test_a_rank_without_the_drafter_holds_none_of_its_rows(tmp_path: Path) -> None:
    plan = plan_of()
    report = report_of(plan)
    report["managers"] = report["managers"][:1]
    left(tmp_path, report)

    rows = zip(plan.graphs.rows, report_capture(plan, tmp_path).rows, strict=True)

    drafter = [captured for row, captured in rows if row.runner == "drafter"]
    assert drafter == [RowCapture((None,), Verdict.UNSEEN)] * len(drafter)
    assert len(drafter) == 3


def test_only_the_last_pipeline_stage_must_have_the_drafter(tmp_path: Path) -> None:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    hardware = {"hardware": {"gpu": "h200", "count": 4}}
    parallel = {"parallel": {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}}
    spec = spec_of("qwen3-8b", "h200", engine=EXTENSION, speculative=draft, scheduler={"max_num_seqs": 64})
    plan = compiled(spec | hardware | parallel)
    whole, without = report_of(plan), report_of(plan)
    without["managers"] = without["managers"][:1]

    for rank in range(4):
        left(tmp_path, without if rank < 2 else whole, f"captured-0-{rank}.json")
    assert found(plan, tmp_path) == []
    left(tmp_path, without, "captured-0-3.json")
    assert [message for _, message in found(plan, tmp_path)] == [
        "`drafter step0_uniform`: the engine has no such graph manager",
        "`drafter later_steps`: the engine has no such graph manager",
    ]
    left(tmp_path, whole, "captured-0-3.json")
    left(tmp_path, whole, "captured-0-0.json")
    assert [message.partition(" captured")[0] for _, message in found(plan, tmp_path)] == [
        "a `SpeculatorCudaGraphManager` of query length 4",
        "a `SpeculatorCudaGraphManager` of query length 1",
    ]


def without_a_full_graph(report: Json) -> None:
    report["managers"][0]["full"].pop()


def with_a_full_graph_more(report: Json) -> None:
    report["managers"][2]["full"].append([999, 999, 1, 0, 0, 1, 0])


def of_another_lora_case(report: Json) -> None:
    report["managers"][1]["full"][0][4] = 1


def without_a_piecewise_size(report: Json) -> None:
    report["compiled_pieces"].append({"pieces": 1, "sizes": report["compiled_pieces"][-1]["sizes"][:-1]})


def without_any_pieces(report: Json) -> None:
    report["compiled_pieces"].clear()


def without_the_drafters_manager(report: Json) -> None:
    report["managers"].pop()


def with_an_unknown_manager(report: Json) -> None:
    report["managers"].append({"class": "Other", "query_len": 1, "mode": "FULL", "full": [[1] * 7], "breakable": None})


def with_a_graph_twice(report: Json) -> None:
    report["managers"][0]["full"].append(report["managers"][0]["full"][0])


def with_a_manager_twice(report: Json) -> None:
    report["managers"].append(report["managers"][-1])


def in_another_mode(report: Json) -> None:
    report["managers"][0]["mode"] = "FULL_DECODE_ONLY"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_a_graph_twice, "`target uniform_decode`: graphs that were captured more than once: 4 tokens"),
        (with_a_manager_twice, "4 graph managers are of 3 classes and query lengths"),
        (in_another_mode, "`target uniform_decode`: its mode is FULL_DECODE_ONLY; FULL_AND_PIECEWISE was planned"),
        (without_a_full_graph, "`target uniform_decode`: missing 1 of 33 graphs: 256 tokens"),
        (with_a_full_graph_more, "`drafter later_steps`: graphs that were not planned: 999 tokens"),
        (of_another_lora_case, "`drafter step0_uniform`: missing 1 of 33 graphs: 4 tokens"),
        (without_a_piecewise_size, "compiled pieces hold 50 PIECEWISE sizes to 496 tokens that were not planned"),
        (without_any_pieces, "no compiled piece holds the 51 PIECEWISE sizes to 512 tokens that were planned"),
        (without_the_drafters_manager, "`drafter later_steps`: the engine has no such graph manager"),
        (with_an_unknown_manager, "a `Other` of query length 1 captured graphs: 1; none were planned"),
    ],
)
def test_every_difference_is_an_error(change: Callable[[Json], None], said: str, tmp_path: Path) -> None:
    plan = plan_of()
    report = report_of(plan)
    change(report)
    left(tmp_path, report)

    codes_and_messages = found(plan, tmp_path)

    assert codes_and_messages[0] == ("L016", said)


@pytest.mark.parametrize(
    ("change", "routine", "fewer"),
    [(without_a_full_graph, "uniform_decode", 1), (with_a_full_graph_more, "later_steps", -1)],
)
def test_the_row_that_differs_is_named_with_its_number(
    change: Callable[[Json], None], routine: str, fewer: int, tmp_path: Path
) -> None:
    plan = plan_of()
    report = report_of(plan)
    change(report)
    left(tmp_path, report)

    rows = zip(plan.graphs.rows, report_capture(plan, tmp_path).rows, strict=True)

    assert [
        (row.routine, row.graphs - (captured.graphs[0] or 0))
        for row, captured in rows
        if captured.verdict != "as_planned"
    ] == [(routine, fewer)]


def test_breakable_graphs_are_compared_by_manager(tmp_path: Path) -> None:
    plan = plan_of()
    report = report_of(plan)
    sizes = [tokens for tokens, _ in report["compiled_pieces"][-1]["sizes"]]
    report["managers"][0]["breakable"] = sizes
    report["managers"][1]["breakable"] = sizes[1:]
    left(tmp_path, report)

    assert found(plan, tmp_path) == [
        ("L016", f"`drafter step0_uniform, piecewise`: missing 1 of {len(sizes)} graphs: 1 tokens")
    ]


def test_every_rank_is_asked(tmp_path: Path) -> None:
    plan = compiled(
        spec_of("qwen3-8b", "h200", engine=EXTENSION)
        | {"hardware": {"gpu": "h200", "count": 2}, "parallel": {"tensor_parallel_size": 2}}
    )
    left(tmp_path, report_of(plan))

    assert found(plan, tmp_path) == [("L017", "1 of 2 workers left no report of what they captured")]
    left(tmp_path, report_of(plan), "captured-0-1.json")
    assert found(plan, tmp_path) == []


def test_reports_of_an_earlier_launch_are_no_evidence(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, report_of(plan))

    remove_reports(tmp_path)

    assert found(plan, tmp_path) == [("L017", "1 of 1 workers left no report of what they captured")]


def test_whatever_workers_leave_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """The folder may be one that holds files of the user."""
    of_workers = [report_name, left_name, failure_name, verified_name, step_times_name]
    mine = ["captured-copy.json", "failed-requests.json", "left-overs-1.json", "steps-8b.json", "steps-0-0.json.bak"]
    for name in [*(one(1, 12) for one in of_workers), *mine]:
        left(tmp_path, {}, name)

    remove_reports(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(mine)


def test_workers_that_end_as_they_captured(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, report_of(plan))
    assert graphs_at_exit(plan, tmp_path) == (AtExit.UNSEEN, ())

    left(tmp_path, report_of(plan), "left-0-0.json")

    assert graphs_at_exit(plan, tmp_path) == (AtExit.SAME, ())


def with_a_piece_less(report: Json) -> None:
    report["compiled_pieces"][-1]["pieces"] -= 1


def captured_late(report: Json) -> None:
    report["compiled_pieces"][-1]["sizes"].append([777, 0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            without_a_full_graph,
            ["no longer holds graphs of `ModelCudaGraphManager` at query length 4: 1, of 256 tokens"],
        ),
        (
            with_a_full_graph_more,
            ["captured late graphs of `SpeculatorCudaGraphManager` at query length 1: 1, of 999 tokens"],
        ),
        (captured_late, ["captured late graphs of the compiled pieces: 1, of 777 tokens"]),
        (without_any_pieces, ["no longer holds graphs of the compiled pieces: 51, of 1, 2, 4, 8, ... tokens"]),
        (
            without_the_drafters_manager,
            ["no longer holds graphs of `SpeculatorCudaGraphManager` at query length 1: 21, of 1, 2, 3, 4, ... tokens"],
        ),
    ],
)
def test_a_graph_lost_or_captured_late_is_a_warning(
    change: Callable[[Json], None], said: list[str], tmp_path: Path
) -> None:
    plan = plan_of()
    changed = report_of(plan)
    change(changed)
    left(tmp_path, report_of(plan))
    left(tmp_path, changed, "left-0-0.json")

    at_exit, found = graphs_at_exit(plan, tmp_path)

    assert at_exit is AtExit.CHANGED
    assert [(one.code, one.severity) for one in found] == [("L021", "warning")] * len(said)
    assert [one.message for one in found] == [f"the worker of `left-0-0.json` {text}" for text in said]


def test_a_piece_that_lost_its_graphs_is_seen(tmp_path: Path) -> None:
    plan = plan_of()
    changed = report_of(plan)
    with_a_piece_less(changed)
    left(tmp_path, report_of(plan))
    left(tmp_path, changed, "left-0-0.json")

    assert graphs_at_exit(plan, tmp_path)[0] is AtExit.CHANGED


def test_reports_of_an_earlier_end_are_no_evidence(tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, report_of(plan), "left-0-0.json")
    remove_reports(tmp_path)
    left(tmp_path, report_of(plan))

    assert graphs_at_exit(plan, tmp_path) == (AtExit.UNSEEN, ())


def test_steps_of_verification_are_those_of_a_worker_that_ended(tmp_path: Path) -> None:
    plan = plan_of(hardware={"gpu": "h200", "count": 2}, parallel={"tensor_parallel_size": 2})
    left(tmp_path, {"verification": {"fixed_steps": 7, "adaptive_steps": 5}, **report_of(plan)}, "left-0-1.json")

    assert verification_steps(plan, tmp_path) == VerificationSteps(fixed=7, adaptive=5)


@pytest.mark.parametrize("before", [{}, {"verification": None}])
def test_verification_that_does_not_follow_the_load_has_no_steps(before: Json, tmp_path: Path) -> None:
    plan = plan_of()
    left(tmp_path, {**before, **report_of(plan)}, "left-0-0.json")

    assert verification_steps(plan, tmp_path) is None

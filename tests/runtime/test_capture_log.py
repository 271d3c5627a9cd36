"""What an engine's log says was captured, held against a plan."""

from pathlib import Path
from typing import Any

import pytest

from servespec.render.serve_text import capture_line
from servespec.runtime.capture import Capture, RankCapture, RowCapture, Verdict
from servespec.runtime.capture_log import captured_counts, empty_bars, log_capture, planned_counts
from tests.plans import compiled, spec_of

LOG = """(EngineCore pid=9) INFO Starting to load model\r
(EngineCore pid=9) Capturing CUDA graphs (PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]\r\
Capturing CUDA graphs (PIECEWISE): 100%|██████████| 51/51 [00:03<00:00, 15.20it/s]
Capturing CUDA graphs (FULL): 100%|██████████| 2/2 [00:00<00:00,  3.20it/s]
Capturing prefill CUDA graphs (PIECEWISE): 100%|██████████| 51/51 [00:00<00:00, 60.00it/s]
Capturing CUDA graphs (FULL):  50%|█████     | 24/49 [00:00<00:00, 30.00it/s]\r\
Capturing CUDA graphs (FULL): 100%|██████████| 49/49 [00:01<00:00, 30.00it/s]
Capturing multi-module MTP CUDA graphs (FULL): 100%|##########| 7/7 [00:01<00:00, 30.00it/s]
"""


def test_the_last_bar_of_a_name_counts() -> None:
    actual = captured_counts(LOG)

    assert actual == {
        ("", "PIECEWISE"): 51,
        ("", "FULL"): 49,
        ("prefill", "PIECEWISE"): 51,
        ("multi-module MTP", "FULL"): 7,
    }


@pytest.mark.parametrize(("method", "block_title"), [("eagle3", None), ("dspark", "dspark"), ("dflash", "dflash")])
def test_a_plan_counts_every_graph_once(method: str, block_title: str | None) -> None:
    plan = compiled(_spec(method))

    counts = planned_counts(plan)

    assert sum(counts.values()) == len(plan.graphs.shapes)
    titles = {title for title, _ in counts}
    assert titles == ({"", "prefill", "decode"} if block_title is None else {"", block_title})


def test_a_capture_as_planned_has_no_findings(tmp_path: Path) -> None:
    plan = compiled(_spec("eagle3"))
    log = _log_of(tmp_path, dict(planned_counts(plan)))

    capture = log_capture(plan, log)

    assert (capture.findings, capture.verdict) == ((), Verdict.AS_PLANNED)
    assert rows_of(capture) == [((row.graphs,), "as_planned") for row in plan.graphs.rows]
    rows, graphs = len(plan.graphs.rows), len(plan.graphs.shapes)
    said = f"captured as planned, by the counts in the log: {rows} runners, {graphs} graphs"
    assert capture_line(capture, plan) == said


def test_one_graph_less_is_an_error_that_names_the_manager(tmp_path: Path) -> None:
    plan = compiled(_spec("eagle3"))
    counts = dict(planned_counts(plan))
    counts["decode", "FULL"] -= 1

    capture = log_capture(plan, _log_of(tmp_path, counts))

    found = capture.findings
    assert ([finding.code for finding in found], capture.verdict) == (["L016"], Verdict.DIFFERS)
    assert [row.verdict for row in capture.rows].count(Verdict.DIFFERS) == 1
    assert found[0].message in capture_line(capture, plan)
    wanted = planned_counts(plan)["decode", "FULL"]
    assert found[0].message == f"the decode manager captured {wanted - 1} FULL graphs; {wanted} were planned"


def test_a_manager_that_was_not_planned_is_an_error(tmp_path: Path) -> None:
    plan = compiled(_spec("eagle3"))
    counts = {**planned_counts(plan), ("decoder replay", "PIECEWISE"): 3}

    found = log_capture(plan, _log_of(tmp_path, counts)).findings

    assert [finding.message for finding in found] == [
        "the decoder replay manager captured 3 PIECEWISE graphs; 0 were planned"
    ]


def test_sizes_at_which_nothing_is_captured_are_no_graphs(tmp_path: Path) -> None:
    """The engine runs an MTP drafter that nothing compiles at its PIECEWISE sizes, and shows a bar for them."""
    sections: dict[str, Any] = {"engine": {"version": "0.33.0", "lowering": "legacy"}}
    mtp = {"method": "mtp", "num_speculative_tokens": 1}
    plan = compiled(spec_of("glm-4.5-air", "h200", speculative=mtp, **sections))
    counts = {**planned_counts(plan), ("prefill", "PIECEWISE"): 51}

    capture = log_capture(plan, _log_of(tmp_path, counts))

    assert empty_bars(plan) == {("prefill", "PIECEWISE")}
    assert (capture.findings, capture.verdict) == ((), Verdict.AS_PLANNED)


def test_a_log_without_bars_is_a_warning(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("nothing about graphs\n", encoding="utf-8")

    capture = log_capture(compiled(_spec("eagle3")), log)

    assert ([finding.code for finding in capture.findings], capture.verdict) == (["L017"], Verdict.UNSEEN)
    assert {row.verdict for row in capture.rows} == {Verdict.UNSEEN}


def test_rows_that_share_a_bar_have_no_number_of_their_own(tmp_path: Path) -> None:
    tiers = [{"up_to": 16, "num_speculative_tokens": 3}, {"num_speculative_tokens": 1}]
    spec = _spec("eagle3")
    plan = compiled({**spec, "speculative": {**spec["speculative"], "dynamic": tiers}})

    capture = log_capture(plan, _log_of(tmp_path, dict(planned_counts(plan))))

    decode = [one for one, row in zip(capture.rows, plan.graphs.rows, strict=True) if row.routine == "uniform_decode"]
    assert decode == [RowCapture((None,), Verdict.AS_PLANNED)] * 2


def test_the_last_end_of_each_process_says_what_capture_took(tmp_path: Path) -> None:
    plan = compiled(_spec("eagle3"))
    log = _log_of(tmp_path, dict(planned_counts(plan)))
    said = "INFO 11-30 12:00:00 [model_runner.py:1164] Graph capturing finished in"
    with log.open("a", encoding="utf-8") as more:
        more.write(
            f"(Worker_TP0 pid=1) {said} 3 secs, took 0.10 GiB\n(Worker_TP1 pid=2) {said} 14 secs, took 2.00 GiB\n"
        )
        more.write(f"(Worker_TP0 pid=1) {said} 13 secs, took 2.25 GiB\n")

    capture = log_capture(plan, log)

    assert capture.ranks == tuple(
        RankCapture(data_parallel_rank=None, rank=None, capture_seconds=seconds, graph_bytes=int(gib * 2**30))
        for seconds, gib in [(13.0, 2.25), (14.0, 2.0)]
    )
    assert capture_line(capture, plan).endswith(" graphs, 2.2 GiB, 14 s")


def rows_of(capture: Capture) -> list[tuple[tuple[int | None, ...], str]]:
    return [(row.graphs, str(row.verdict)) for row in capture.rows]


def _spec(method: str) -> dict[str, Any]:
    return spec_of(
        "qwen3-8b",
        "h200",
        scheduler={"max_num_seqs": 64, "max_num_batched_tokens": 2048},
        speculative={"method": method, "model": "org/draft", "num_speculative_tokens": 3},
        engine={"version": "0.33.0", "lowering": "legacy"},
    )


def _log_of(folder: Path, counts: dict[tuple[str, str], int]) -> Path:
    log = folder / "engine.log"
    bars = [
        f"Capturing {f'{title} ' if title else ''}CUDA graphs ({mode}): 100%|██████████| {n}/{n} [00:01<00:00]\n"
        for (title, mode), n in counts.items()
    ]
    log.write_text("".join(bars), encoding="utf-8")
    return log

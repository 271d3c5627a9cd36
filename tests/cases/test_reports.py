"""Every public bug report that a plan can answer is answered as the report expects.

`alone` is what the engine makes of its own list, `ours` the plan under the extension.  A field of a report that no
check reads makes its test fail, so that nothing expected goes unread.
"""

from collections.abc import Callable
from typing import Any

import pytest

from servespec.diagnostics import Severity
from tests.cases.reports import FILE, Report, read_reports
from tests.plans import codes_of, full_requests, row_of

REPORTS = read_reports()
pytestmark = [
    pytest.mark.usefixtures("quiet_shell"),
    pytest.mark.skipif(not REPORTS, reason=f"{FILE.name} does not lie beside this checkout"),
]

_MODEL_UNKNOWN = "about bytes of a model whose sizes the report does not give"
_OTHER_ENGINE = "about importing another engine's settings"

NOT_RUN = {
    "bug-025": "a spec has no field for the concurrency that is expected",
    "bug-027": _MODEL_UNKNOWN,
    "bug-032": "Model Runner V1 rounds 8 up to 9; V2 loses an entry that rounds beyond the largest",
    "bug-033": "about Model Runner V1, which rounds the list before it compares compile_sizes with it",
    "bug-045": _OTHER_ENGINE,
    "bug-050": "0.33.0 runs adaptive verification there, by giving every query token a row of its own",
    "bug-063": "the dispatch limit of an expert kernel is not modelled",
    "bug-071": _MODEL_UNKNOWN,
    "bug-075": "graph objects of another engine, without the number of graphs",
    "bug-079": "a spec has no field for tokens that have to be held at a time",
    "bug-093": _MODEL_UNKNOWN,
    "bug-102": "about 0.23; on that GPU the FlashInfer of 0.33.0 has a decode kernel for draft batches",
    "bug-120": "about vLLM 0.26, which no facts are known of",
    "bug-127": _OTHER_ENGINE,
    "bug-129": _OTHER_ENGINE,
    "bug-136": "a flag of another engine",
    "bug-137": _OTHER_ENGINE,
}
"""Reports that are not run, with the reason."""

IN_MEMORY = (
    "bug-068", "bug-073", "bug-077", "bug-078", "bug-083", "bug-085", "bug-086", "bug-087", "bug-089", "bug-090",
    "bug-091", "seed-13",
)  # fmt: skip
"""Reports that `test_memory_reports` runs."""

RUN = tuple(report for report in REPORTS if report.id not in (*NOT_RUN, *IN_MEMORY))

RULES: dict[str, set[str]] = {
    "decode_not_covered": {"P101"},
    "cap_truncated": {"P103"},
    "prefill_cap_below_step_budget": {"P107"},
    "decode_list_empty_after_filter": {"P101", "P122"},
    "v1_dynamic_forces_piecewise": {"R104"},
    "tier_k0_threshold_flapping": {"P118"},
    "scheduled_tokens_below_8192_with_speculation": {"R102"},
    "dropped_above_max_num_seqs": {"S223"},
    "effective_concurrency_per_rank": {"P117"},
    "backend_downgrades_full_with_speculation": {"R104"},
    "k_equals_block_size": {"R110"},
    "empty_top_level_list_is_dropped_by_vllm_config_loader": {"S208"},
    "piecewise_sizes_multiple_of_q_on_v1": {"R105"},
    "step_budget_below_decode_width": {"P105"},
    "renamed_field": {"S108"},
    "removed_field": {"S108"},
    "mixed_legacy_fields": {"S108", "S201"},
    "same_field_twice": {"S206", "S212"},
    "expected_bool": {"S217"},
    "unknown_key": {"S215"},
    "k_not_multiple_of_n_predict": {"R109"},
    "draft_tp_must_be_1_or_tp": {"S221"},
}
"""The reports' names of rules, and the codes of ours that say it; one of them is enough."""


def test_every_report_is_run_or_has_a_reason() -> None:
    assert {report.id for report in RUN} | set(NOT_RUN) | set(IN_MEMORY) == {report.id for report in REPORTS}
    assert set(NOT_RUN).isdisjoint(IN_MEMORY)


def test_every_reason_belongs_to_a_report() -> None:
    assert set(NOT_RUN) <= {report.id for report in REPORTS}


@pytest.mark.parametrize("report", RUN, ids=repr)
def test_report(report: Report) -> None:
    for name, value in expected_of(report).items():
        CHECKS[name](report, value)


def expected_of(report: Report) -> dict[str, Any]:
    other = report.expected.get("same_as")
    if other is None:
        return report.expected
    return next(one.expected for one in REPORTS if one.id == other)


Check = Callable[[Report, Any], None]


# What the engine makes of its list


def legacy(report: Report, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        LEGACY_CHECKS[name](report, value)


def list_length(report: Report, expected: int) -> None:
    assert len(report.stock_list.sizes) == expected


def whole_list(report: Report, expected: list[int]) -> None:
    assert list(report.stock_list.sizes) == expected


def list_maximum(report: Report, expected: int) -> None:
    assert report.stock_list.maximum == expected


def truncation(report: Report, expected: list[str]) -> None:
    cut = report.stock_list.truncated_from is not None

    assert [f"truncating to {report.stock_list.maximum}"] * cut == expected
    assert ("P103" in codes_of(report.alone_json)) == cut


def captured_requests(report: Report, expected: list[int] | None) -> None:
    if expected is not None:
        assert captured(report) == expected


def captured(report: Report) -> list[int]:
    """The request counts of the target's decode graphs; a row without any is not there."""
    rows = [row for row in report.alone_json["runners"] if row["routine"] == "uniform_decode"]
    return [size for row in rows for size in row["sizes"]]


def captured_count(report: Report, expected: int) -> None:
    assert row_of(report.alone_json, "uniform_decode")["count"] == expected


def captured_maximum(report: Report, expected: int) -> None:
    assert row_of(report.alone_json, "uniform_decode")["max_requests"] == expected


def uncovered(report: Report, expected: list[int] | None) -> None:
    first, last = expected or (1, 0)
    every = set(range(1, report.max_num_seqs + 1))

    assert every - full_requests(report.alone_json) == set(range(first, last + 1))


def list_holds(token: int) -> Check:
    def check(report: Report, expected: bool) -> None:
        assert (token in report.stock_list.sizes) == expected

    return check


def piecewise_count(report: Report, expected: int) -> None:
    assert row_of(report.alone_json, "piecewise")["count"] == expected


def full_tokens(report: Report, expected: list[int]) -> None:
    row = row_of(report.alone_json, "uniform_decode")

    assert [n * row["query_len"] for n in row["sizes"]] == expected


def piecewise_tokens(report: Report, expected: list[int]) -> None:
    assert row_of(report.alone_json, "piecewise")["sizes"] == expected


def dispatched(report: Report, expected: dict[str, dict[str, Any]]) -> None:
    for requests, run in expected.items():
        covered = covered_at(report.alone_json, int(requests))
        seen = {
            "mode": covered["mode"],
            "tokens": covered["padded_to_tokens"],
            "padded_requests": covered["padded_to_requests"],
        }
        assert {name: seen[name] for name in run} == run


def covered_at(graphs: dict[str, Any], requests: int) -> dict[str, Any]:
    return next(
        covered
        for covered in graphs["coverage"]["decode"]
        if covered["runner"] == "target" and covered["from_requests"] <= requests <= covered["to_requests"]
    )


def a_sufficient_list(report: Report, expected: list[int]) -> None:
    """With the recommended list the engine itself has a FULL graph for every batch."""
    given = {name: value for name, value in report.input.items() if name != "legacy_cap"}
    better = report.with_input({**given, "legacy_list": expected})

    assert full_requests(better.alone_json) == set(range(1, report.max_num_seqs + 1))


def tokens_needed(report: Report, expected: int) -> None:
    frame = report.alone.resolution.frame

    assert frame.max_num_seqs * frame.query_len == expected


# What our fields make of it


def covered_by_ours(report: Report, expected: list[int] | int) -> None:
    """With the decode cap in requests in place of what the report had."""
    wanted = {expected} if isinstance(expected, int) else set(expected)
    given = {name: value for name, value in report.input.items() if name not in ("legacy_cap", "legacy_list")}
    better = report.with_input({**given, "decode_cap_requests": report.max_num_seqs})

    assert wanted <= full_requests(better.ours_json)


def query_len(report: Report, expected: int) -> None:
    assert report.alone.resolution.frame.query_len == expected


def widest_by_query_len(report: Report, expected: dict[str, int]) -> None:
    widest = report.ours.resolution.frame.widest_batch if report.ours.resolution.frame.tiers else tiers_asked(report)

    assert {str(q): n for q, n in widest.items()} == expected


def tiers_asked(report: Report) -> dict[int, int]:
    """Where the engine drops the tiers, as they were asked for."""
    tiers = report.ours.resolution.drafting.tiers(report.ours.resolution.frame.max_num_seqs)
    return {tier.query_len: tier.to_requests for tier in tiers}


def target_query_lens(report: Report, expected: list[int]) -> None:
    rows = report.ours_json["runners"]

    assert sorted(row["query_len"] for row in rows if row["routine"] == "uniform_decode") == expected


def one_token_drafts(report: Report, expected: list[int]) -> None:
    rows = report.ours_json["runners"]

    assert sorted({row["query_len"] for row in rows if row["routine"] == "later_steps"}) == expected


def nine_requests(report: Report, expected: dict[str, Any]) -> None:
    covered = covered_at(report.ours_json, 9)
    frame = report.ours.resolution.frame

    assert frame.k_of(9) == expected["k"]
    assert covered["query_len"] == expected["q"]
    assert 9 * covered["query_len"] == expected["tokens"]
    assert covered["mode"] == expected["must_be"]
    assert 9 * covered["query_len"] <= covered["padded_to_tokens"] <= expected["smallest_q5_graph_tokens"]


def next_level_is_another_tiers(report: Report, expected: str) -> None:
    assert "PIECEWISE" in expected
    assert covered_at(report.alone_json, 9)["mode"] == "PIECEWISE"
    assert "P115" in codes_of(report.alone_json)


def pairs(report: Report, expected: list[list[int]]) -> None:
    """Every pair of a batch and its K has a FULL graph without padding."""
    for requests, k in expected:
        covered = covered_at(report.ours_json, requests)
        assert (covered["mode"], covered["query_len"], covered["padded_to_requests"]) == ("FULL", k + 1, requests)


def pair_tokens(report: Report, expected: list[int]) -> None:
    padded = [covered_at(report.ours_json, n)["padded_to_tokens"] for n, _ in report.expected["pairs"]]

    assert padded == expected


def pair_count(report: Report, expected: int) -> None:
    assert len(report.input["decode_request_sizes"]) == expected


def prefill_holds(report: Report, expected: int) -> None:
    assert expected in row_of(report.ours_json, "piecewise")["sizes"]


def never_a_default(report: Report, expected: int) -> None:
    assert expected not in report.stock_list.sizes
    assert expected not in report.ours_json["union_tokens"]


def default_ceiling(report: Report, expected: int) -> None:
    assert report.alone.resolution.token_list.default_ceiling_tokens == expected


def eager_steps(report: Report, expected: list[int]) -> None:
    eager = [r for r in report.ours_json["coverage"]["prefill"] if r["mode"] == "EAGER"]

    assert [eager[0]["from_tokens"], eager[-1]["to_tokens"]] == expected


def resolved_mode(report: Report, expected: str) -> None:
    assert str(report.alone.resolution.frame.mode) == expected


def drafter_has_graphs_all_the_same(report: Report, expected: int) -> None:
    """The setting that should take them away is not read by Model Runner V2, and a finding says so."""
    drafter = [row for row in report.alone_json["runners"] if row["runner"] == "drafter"]

    assert expected == 0
    assert sum(row["graphs"] for row in drafter) > 0
    assert "R113" in codes_of(report.alone_json)


def target_graphs_above(report: Report, expected: int) -> None:
    assert row_of(report.alone_json, "uniform_decode")["graphs"] > expected


def kept(report: Report, expected: list[int]) -> None:
    assert row_of(report.ours_json, "uniform_decode")["sizes"] == expected


def dropped(report: Report, expected: list[int] | dict[str, str]) -> None:
    if isinstance(expected, dict):
        assert captured(report) == []
        return
    message = next(f.message for f in report.ours.diagnostics if f.code == "S223")

    assert all(f"`{size}`" in message for size in expected)


def requests_of_one_step(report: Report, expected: int) -> None:
    assert f"holds {expected} requests" in message_of(report, "P105")


def least_step(report: Report, expected: int) -> None:
    assert f"`max_num_batched_tokens: {expected}`" in help_of(report, "P105")


def requests_per_rank(report: Report, expected: int) -> None:
    assert f"`max_num_seqs: {expected}`" in help_of(report, "P117")


def every_size_is_a_multiple(report: Report, expected: int) -> None:
    row = row_of(report.alone_json, "uniform_decode")
    shapes = [s for s in report.alone.graphs.shapes if s.routine == "uniform_decode"]

    assert row["count"] > 0
    assert {shape.tokens % row["query_len"] for shape in shapes} == {expected}


def smallest_decode_tokens(report: Report, expected: int) -> None:
    row = row_of(report.alone_json, "uniform_decode")

    assert row["sizes"][0] * row["query_len"] == expected


def sizes_that_are_no_multiples(report: Report, expected: list[int]) -> None:
    q = report.alone.resolution.frame.query_len

    assert [size for size in report.stock_list.sizes if size % q][: len(expected)] == expected


def multiples_of_q(report: Report, expected: list[int] | int) -> None:
    sizes = [expected] if isinstance(expected, int) else expected
    q = report.alone.resolution.frame.query_len

    assert [size % q for size in sizes] == [0] * len(sizes)


# Findings


def message_of(report: Report, code: str) -> str:
    return next(finding.message for finding in report.findings if finding.code == code)


def help_of(report: Report, code: str) -> str:
    return next(finding.help for finding in report.findings if finding.code == code)


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def warns(report: Report, expected: str | list[str]) -> None:
    for name in [expected] if isinstance(expected, str) else expected:
        assert codes(report) & RULES[name], name


def follows_rule(report: Report, expected: str) -> None:
    if expected == "decode_sizes_multiple_of_q":
        every_size_is_a_multiple(report, 0)
    else:
        warns(report, expected)


def severity(report: Report, expected: str) -> None:
    errors = {finding.severity for finding in report.findings} & {Severity.ERROR}
    if expected in ("error", "error_or_rewrite"):
        assert errors
    else:
        assert not errors


def at_path(report: Report, expected: str) -> None:
    assert f"`{expected}`" in " ".join(f.message for f in report.findings if f.severity is Severity.ERROR)


def suggests(report: Report, expected: str) -> None:
    assert expected in " ".join(finding.help for finding in report.findings)


def suggests_k(report: Report, expected: int) -> None:
    assert f"`{expected}`" in help_of(report, "R110")


def query_len_at_suggestion(report: Report, expected: int) -> None:
    assert report.expected["suggest_k"] + 1 == expected


def rewritten(report: Report, expected: list[list[int]]) -> None:
    better = report.with_input({**report.input, "schedule": expected})

    target_query_lens(better, report.expected["target_q"])


def rewritten_query_lens(report: Report, expected: list[int]) -> None:
    if "rewritten" not in report.expected:
        target_query_lens(report, expected)


# The command line that is written


def argv_holds(report: Report, expected: list[str]) -> None:
    """A switch that is off, as its flag or in the JSON of the config that has it."""
    argv = report.alone.lowered.argv
    for word in expected:
        field = word.removeprefix("--no-").replace("-", "_")
        assert word in argv or f'"{field}":false' in "".join(argv)


def argv_lacks(report: Report, expected: list[str]) -> None:
    assert not set(expected) & set(report.alone.lowered.argv)


def written_inside_the_config(report: Report, expected: str) -> None:
    """A list goes into the JSON of `--compilation-config`, never as a flag of its own."""
    better = report.with_input({"legacy_list": [1, 2, 4]})

    assert expected == "inside compilation-config JSON"
    assert '{"cudagraph_capture_sizes":[1,2,4]}' in better.alone.lowered.argv


# Split sizes by hand


def ours_row(routine: str, field: str) -> Check:
    def check(report: Report, expected: Any) -> None:
        assert row_of(report.ours_json, routine)[field] == expected

    return check


def same_as_the_engine(report: Report, expected: bool) -> None:
    ours, alone = (row_of(graphs, "uniform_decode") for graphs in (report.ours_json, report.alone_json))

    assert (ours["sizes"] == alone["sizes"]) == expected


def exempt_from_budget(report: Report, expected: bool) -> None:
    assert (row_of(report.ours_json, "adaptive_verification")["max_tokens"] > 4096) == expected


def unread(report: Report, expected: Any) -> None:
    """Words for a reader, figures measured elsewhere, and what holds before a fix that 0.33.0 has."""


LEGACY_CHECKS: dict[str, Check] = {
    "list_len": list_length,
    "list": whole_list,
    "cap": list_maximum,
    "warnings": truncation,
    "decode_full_requests": captured_requests,
    "decode_full_count": captured_count,
    "decode_max_requests": captured_maximum,
    "uncovered_requests": uncovered,
}

CHECKS: dict[str, Check] = {
    "adaptive_grid": ours_row("adaptive_verification", "sizes"),
    "argv": argv_holds,
    "argv_not_contains": argv_lacks,
    "av_max_tokens": ours_row("adaptive_verification", "max_tokens"),
    "av_target_count": ours_row("adaptive_verification", "count"),
    "bad_default_sizes": sizes_that_are_no_multiples,
    "count": pair_count,
    "decode_full_count": captured_count,
    "decode_full_requests": captured_requests,
    "decode_max_requests": captured_maximum,
    "decode_requests_required": covered_by_ours,
    "decode_tokens_needed": tokens_needed,
    "default_ceiling_tokens": default_ceiling,
    "dispatch": dispatched,
    "drafter_full_count": ours_row("block", "count"),
    "drafter_graphs": drafter_has_graphs_all_the_same,
    "drafter_max_requests": ours_row("block", "max_requests"),
    "dropped": dropped,
    "eager_step_tokens": eager_steps,
    "emit": written_inside_the_config,
    "every_size_mod_q": every_size_is_a_multiple,
    "exempt_from_decode_budget": exempt_from_budget,
    "forbidden_default_token": never_a_default,
    "full_requests": captured_requests,
    "full_tokens": full_tokens,
    "grid": ours_row("adaptive_verification", "sizes"),
    "kept": kept,
    "legacy": legacy,
    "legacy_033": next_level_is_another_tiers,
    "legacy_contains_132": list_holds(132),
    "legacy_decode_full_count": captured_count,
    "legacy_decode_max_requests": captured_maximum,
    "legacy_piecewise_count": piecewise_count,
    "max_query_tokens": tokens_needed,
    "measured_capture": unread,
    "measured_tok_s": unread,
    "min_max_num_batched_tokens": least_step,
    "next_grid_size": unread,
    "nine_requests": nine_requests,
    "no_crash": unread,
    "note": unread,
    "null_omitted": unread,
    "pairs": pairs,
    "path": at_path,
    "per_rank_requests": requests_per_rank,
    "piecewise_count": piecewise_count,
    "piecewise_tokens": piecewise_tokens,
    "prefill_must_contain": prefill_holds,
    "q": query_len,
    "q_at_15": query_len_at_suggestion,
    "recommended_list": a_sufficient_list,
    "requests_per_step": requests_of_one_step,
    "required_requests": covered_by_ours,
    "required_tokens": tokens_needed,
    "resolved_mode": resolved_mode,
    "rewritten": rewritten,
    "rule": follows_rule,
    "safe_list": multiples_of_q,
    "scheduled_tokens": unread,
    "severity": severity,
    "smallest_required": smallest_decode_tokens,
    "smallest_safe": multiples_of_q,
    "split_decode_count": ours_row("uniform_decode", "count"),
    "split_decode_grid": ours_row("uniform_decode", "sizes"),
    "split_decode_max_requests": ours_row("uniform_decode", "max_requests"),
    "split_decode_same_as_legacy": same_as_the_engine,
    "split_prefill_count": ours_row("piecewise", "count"),
    "split_prefill_grid": ours_row("piecewise", "sizes"),
    "split_prefill_max_tokens": ours_row("piecewise", "max_tokens"),
    "suggest": suggests,
    "suggest_k": suggests_k,
    "target_decode_graphs_gt": target_graphs_above,
    "target_q": rewritten_query_lens,
    "tiers_q_widest": widest_by_query_len,
    "tokens": pair_tokens,
    "tokens_needed": tokens_needed,
    "uncovered": uncovered,
    "warn": warns,
    "warn_versions": unread,
    "widest_tokens": tokens_needed,
    "without_fix_uncovered": unread,
    "drafter_q": lambda report, expected: (
        one_token_drafts(report, expected)
        if isinstance(expected, list)
        else ours_row("block", "query_len")(report, expected)
    ),
}

"""Rates of accepted drafts, from metrics as the engine itself writes them and from its bench's results."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.diagnostics import Diagnostic, SpecError
from servespec.runtime.acceptance_source import measured_acceptance
from servespec.schema.parse import parse_spec
from servespec.schema.source import read_source
from tests.metrics_server import serving


def metrics(drafts: int, draft_tokens: int, accepted: list[int], engine: int = 0) -> str:
    """What `SpecDecodingProm` of one engine exposes, with what else stands around it."""
    labels = f'engine="{engine}",model_name="a-b"'
    name = "vllm:spec_decode_num"
    per_position = [
        f'{name}_accepted_tokens_per_pos_total{{{labels},position="{at}"}} {count}.0'
        for at, count in enumerate(accepted)
    ]
    return "\n".join(
        [
            "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.",
            "# TYPE vllm:spec_decode_num_drafts_total counter",
            f"{name}_drafts_total{{{labels}}} {drafts}.0",
            f"{name}_drafts_created{{{labels}}} 1.7e9",
            f"{name}_draft_tokens_total{{{labels}}} {float(draft_tokens)!r}",
            f"{name}_accepted_tokens_total{{{labels}}} {sum(accepted)}.0",
            *per_position,
            "vllm:num_requests_running 3.0",
            "",
        ]
    )


def refused(source: str, seconds: float = 0) -> Diagnostic:
    with pytest.raises(SpecError) as caught:
        measured_acceptance(source, seconds)
    (finding,) = caught.value.diagnostics
    assert finding.code == "R020"
    return finding


def test_counters_of_all_engines_become_shares_of_all_drafts() -> None:
    with serving(metrics(100, 300, [80, 50, 20]) + metrics(100, 300, [60, 30, 20], engine=1)) as url:
        found = measured_acceptance(url, 0)

    assert (found.rates, found.drafts, found.findings) == ((0.7, 0.4, 0.2), 200, ())
    assert found.acceptance_length == pytest.approx(2.3)


def test_over_seconds_only_what_was_drafted_meanwhile_counts() -> None:
    slept: list[float] = []
    with serving(metrics(100, 200, [90, 90]), metrics(300, 600, [190, 140])) as url:
        found = measured_acceptance(f"{url}/metrics", 30, slept.append)

    assert (found.rates, found.drafts, slept) == ((0.5, 0.25), 200, [30])


def test_a_server_that_was_started_again_has_no_difference() -> None:
    with serving(metrics(300, 600, [200, 100]), metrics(100, 200, [60, 40])) as url:
        assert refused(url, seconds=0.01).message == "the server was started again meanwhile"


@pytest.mark.parametrize(("left_out", "shown"), [("1", "of `0`, `2`, not"), ("012", "of no position, not")])
def test_positions_that_are_not_counted_are_not_skipped(left_out: str, shown: str) -> None:
    """The rates of the next positions would slip into the place of theirs."""
    lines = metrics(100, 300, [80, 50, 20]).splitlines()
    kept = [line for line in lines if not any(f'position="{at}"' in line for at in left_out)]
    with serving("\n".join(kept)) as url:
        assert shown in refused(url).message


def test_a_model_may_be_called_anything() -> None:
    with serving(metrics(100, 200, [80, 50]).replace("a-b", "a{b} c")) as url:
        assert measured_acceptance(url, 0).rates == (0.8, 0.5)


def test_drafts_shorter_than_k_are_told() -> None:
    with serving(metrics(100, 200, [80, 40, 10, 5])) as url:
        (finding,) = measured_acceptance(url, 0).findings

    assert finding.code == "R021"
    assert finding.message == "steps drafted 2.00 tokens of a request on average, and K is 4"


def test_what_says_nothing_is_refused(tmp_path: Path) -> None:
    with serving("vllm:num_requests_running 3.0\n") as url:
        assert refused(url).message == "the server says nothing of drafts"
    with serving(metrics(0, 0, [0, 0])) as url:
        assert refused(url).message == "nothing was drafted yet"
    with serving(metrics(9, 9, [9])) as url:
        assert refused(url, seconds=0.01).message == "nothing was drafted yet"
    with serving(503) as url:
        assert "status 503" in refused(url).message
    with serving(metrics(1, 1, [1])) as url:
        assert "status 404" in refused(f"{url}/v1").message
    assert refused("http://127.0.0.1:1").message == "`http://127.0.0.1:1/metrics` cannot be read: connection refused"
    assert "cannot be read" in refused("http://127.0.0.1:99999").message
    assert "no such file" in refused(str(tmp_path / "none.json")).message
    empty = tmp_path / "empty.json"
    empty.write_text("[]", encoding="utf-8")
    assert "no rates" in refused(str(empty)).message


def test_a_result_of_the_engines_bench_has_them(tmp_path: Path) -> None:
    result = {
        "spec_decode_num_drafts": 50, "spec_decode_draft_tokens": 150,
        "spec_decode_per_position_acceptance_rates": [0.66666, 0.5, 0.25], "output_throughput": 1.0,
    }  # fmt: skip
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result), encoding="utf-8")

    found = measured_acceptance(str(path), 0)

    assert (found.rates, found.drafts, found.findings) == ((0.6667, 0.5, 0.25), 50, ())


def saved(folder: Path, **changes: object) -> str:
    result = {"spec_decode_num_drafts": 50, "spec_decode_per_position_acceptance_rates": [0.5, 0.25], **changes}
    path = folder / "result.json"
    path.write_text(json.dumps(result), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("rates", [["a"], [None], [True], [float("nan")], [float("inf")], [2.0, 0.5], [0.5, -1], [[]]])
def test_what_is_no_share_is_refused(tmp_path: Path, rates: list[object]) -> None:
    said = refused(saved(tmp_path, spec_decode_per_position_acceptance_rates=rates)).message
    assert "of the time, which is no share" in said


def test_shares_that_rise_are_refused_as_a_spec_refuses_them(tmp_path: Path) -> None:
    said = refused(saved(tmp_path, spec_decode_per_position_acceptance_rates=[0.1, 0.9])).message
    assert said == "position 2 is accepted more often (`0.9`) than the one before it (`0.1`)"
    with serving(metrics(100, 200, [10, 90])) as url:
        assert refused(url).message == said


@pytest.mark.parametrize("drafts", [0, -3])
def test_rates_of_no_drafts_are_refused(tmp_path: Path, drafts: int) -> None:
    assert refused(saved(tmp_path, spec_decode_num_drafts=drafts)).message.endswith(f"has rates of {drafts} drafts")


@pytest.mark.parametrize("tokens", ["x", -1, None, 1.5])
def test_draft_tokens_are_a_count(tmp_path: Path, tokens: object) -> None:
    assert refused(saved(tmp_path, spec_decode_draft_tokens=tokens)).message.endswith(f"`{tokens}` draft tokens")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "many"])
def test_a_counter_that_is_no_number_is_refused(value: str) -> None:
    with serving(metrics(100, 200, [90, 90]).replace(" 100.0", f" {value}")) as url:
        assert refused(url).message == f"the server counts `{value}` in `drafts`, which is no number"


def test_more_accepted_than_drafted_is_refused() -> None:
    with serving(metrics(100, 200, [190, 90])) as url:
        assert refused(url).message == "position 1 is accepted `1.9` of the time, which is no share"


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, -1])
def test_only_a_time_that_can_be_waited_is_waited(seconds: float) -> None:
    with serving(metrics(100, 200, [90, 90])) as url:
        assert refused(url, seconds).help == "write 0 to 86400"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("http://[",), 1),
        (("http://127.0.0.1:1", "--seconds", "nan"), 2),
        (("http://127.0.0.1:1", "--seconds", "inf"), 2),
    ],
)
def test_the_command_ends_with_a_refusal_and_no_traceback(words: tuple[str, ...], code: int) -> None:
    made = CliRunner().invoke(app, ["acceptance", *words])

    assert (made.exit_code, type(made.exception)) == (code, SystemExit)


def test_the_line_that_is_printed_is_one_of_a_spec() -> None:
    with serving(metrics(100, 300, [80, 50, 20])) as url:
        printed = CliRunner().invoke(app, ["acceptance", url])
        as_json = CliRunner().invoke(app, ["acceptance", url, "--format", "json"])

    assert (printed.exit_code, printed.stdout) == (0, "acceptance_rates: [0.8, 0.5, 0.2]\n")
    assert printed.stderr == "2.50 tokens of a request in a step, over 100 drafts\n"
    assert json.loads(as_json.stdout)["acceptance_rates"] == [0.8, 0.5, 0.2]
    text = (
        "servespec: 1\nmodel: {id: m}\nhardware: {gpu: h200}\nspeculative:\n  method: eagle3\n"
        f"  num_speculative_tokens: 3\n  dynamic:\n    from_curve: curve.json\n    {printed.stdout}"
    )
    parsed = parse_spec(read_source(text.encode(), "spec.yaml"))
    assert parsed.diagnostics == ()


def test_a_server_without_drafts_ends_the_command_with_a_refusal() -> None:
    with serving("") as url:
        made = CliRunner().invoke(app, ["acceptance", url])

    assert made.exit_code == 1
    assert "error[R020]" in made.stderr

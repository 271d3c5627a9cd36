"""`servespec profile`: the launch that captures every K, what is timed in it, and the curve that a spec then names."""

import json
from io import BytesIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.graphs.shape import Routine
from servespec.compiler.memory.measurement import identity_of
from servespec.diagnostics import Diagnostic, SpecError
from servespec.render.profile_text import profile_text
from servespec.runtime.extension.step_times_batches import Wanted
from servespec.runtime.gather import Options
from servespec.runtime.profiling import curve_sizes, plan_to_profile, wanted_profile
from tests.plans import Json, compiled, model_folder, spec_of
from tests.step_curves import SIZES, roofline, step_document
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

DRAFT = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}


def spec(**sections: Any) -> Json:
    given = {"speculative": DRAFT, "scheduler": {"max_num_seqs": 256}, "engine": EXTENSION, **sections}
    return spec_of("qwen3-8b", "h200", **given)


def written(folder: Path, given: Json) -> str:
    path = folder / "spec.yaml"
    path.write_text(json.dumps(given), encoding="utf-8")
    return str(path)


def refused(folder: Path, given: Json, drafts: str = "auto") -> Diagnostic:
    with pytest.raises(SpecError) as caught:
        plan_to_profile(written(folder, given), drafts, Options())
    (finding,) = [one for one in caught.value.diagnostics if one.severity == "error"]
    return finding


WIDE = {"max_decode_cudagraph_capture_requests": 512, "max_decode_cudagraph_capture_tokens": "unlimited"}


def test_one_launch_captures_every_k_up_to_the_widest_batch(tmp_path: Path) -> None:
    plan, drafts = plan_to_profile(written(tmp_path, spec(compilation=WIDE)), "auto", Options())

    reach = {row.query_len: row.max_requests for row in plan.graphs.rows if row.routine is Routine.UNIFORM_DECODE}
    assert drafts == (0, 1, 3, 7)
    assert reach == {8: 256, 4: 257, 2: 258, 1: 259}
    assert wanted_profile(plan, drafts, requests="auto", tokens="auto", repeats=5) == Wanted(
        requests=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256),
        tokens=curve_sizes(8192),
        repeats=5,
        drafts=(0, 1, 3, 7),
        served_only=True,
    )


def test_standard_input_is_profiled_as_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be read once, and three plans are made of it."""
    given = spec(compilation=WIDE)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(json.dumps(given).encode())))

    plan, drafts = plan_to_profile("-", "auto", Options(settings=("scheduler.max_num_seqs=128",)))
    of_file, drafts_of_file = plan_to_profile(
        written(tmp_path, given), "auto", Options(settings=("scheduler.max_num_seqs=128",))
    )

    assert (plan.graphs.shapes, drafts) == (of_file.graphs.shapes, drafts_of_file)


def test_a_spec_whose_curve_is_not_there_yet_can_be_profiled_and_then_names_it(tmp_path: Path) -> None:
    named = {**DRAFT, "dynamic": {"from_curve": "curve.json", "acceptance_length": 3.0}}
    path = written(tmp_path, spec(speculative=named, compilation=WIDE))

    plan, drafts = plan_to_profile(path, "0,3,7", Options())

    document = step_document(identity_of(plan.to_json()), roofline(), drafts, sizes=(*SIZES[:9],))
    (tmp_path / "curve.json").write_text(json.dumps(document), encoding="utf-8")
    made = CliRunner().invoke(app, ["plan", path, "--format", "json"])
    assert made.exit_code == 0, made.stderr
    tiers = json.loads(made.stdout)["tiers"]
    assert [one["num_speculative_tokens"] for one in tiers["predicted"][0]["fixed"]] == [0, 3, 7]
    assert tiers["chosen"][-1]["to_requests"] == 256


def test_without_speculation_the_curve_is_of_one_token_a_request(tmp_path: Path) -> None:
    plan, drafts = plan_to_profile(written(tmp_path, spec(speculative=None)), "auto", Options())

    wanted = wanted_profile(plan, drafts, requests="auto", tokens="64", repeats=5)
    assert (drafts, wanted.drafts, wanted.tokens) == ((0,), (0,), (64,))
    assert plan.resolution.limits.max_num_seqs.value == 256
    assert wanted.requests is not None
    assert wanted.requests[-1] == 256


def reach_by_query_len(given: Json, folder: Path) -> dict[int, int]:
    plan, _ = plan_to_profile(written(folder, given), "auto", Options())
    return {row.query_len: row.max_requests or 0 for row in plan.graphs.rows if row.routine is Routine.UNIFORM_DECODE}


def test_a_bound_on_graph_memory_is_on_what_is_served_and_not_on_every_k(tmp_path: Path) -> None:
    """It would give up the graphs of batches whose tiers, once chosen, need not give up any."""
    bounded = spec(memory={"max_cudagraph_memory": "500MiB"})

    assert reach_by_query_len(bounded, tmp_path) == {8: 256, 4: 257, 2: 258, 1: 259}


def test_without_drafts_the_bound_holds_as_it_does_when_served(tmp_path: Path) -> None:
    bounded = spec(speculative=None, memory={"max_cudagraph_memory": "500MiB"})

    assert reach_by_query_len(bounded, tmp_path) == {1: compiled(bounded).graphs.rows[-1].max_requests}


@pytest.mark.parametrize(
    ("drafts", "message", "help_text"),
    [
        ("0,x", "`x` is no number of drafts", "0,1,3,7"),
        ("-1", "`-1` is no number of drafts", "0,1,3,7"),
        ("", "`` is no number of drafts", "0,1,3,7"),
        ("9", "the spec drafts at most 7, not 9", "--set speculative.num_speculative_tokens=9"),
    ],
)
def test_numbers_of_drafts_are_checked_before_anything_starts(
    tmp_path: Path, drafts: str, message: str, help_text: str
) -> None:
    finding = refused(tmp_path, spec(), drafts)
    assert (finding.code, finding.message, finding.place.file) == ("L033", message, "--num-speculative-tokens")
    assert help_text in finding.help


@pytest.mark.parametrize(
    ("sections", "message", "help_text"),
    [
        (
            {"speculative": {**DRAFT, "enable_adaptive_verification": True}},
            "chooses how many drafts it verifies", "enable_adaptive_verification=false",
        ),
        (
            {"parallel": {"data_parallel_size": 2}, "hardware": {"gpu": "h200", "count": 2}},
            "does not draft a K of its own for each batch", "servespec steps",
        ),
    ],
)  # fmt: skip
def test_an_engine_without_a_k_for_each_batch_is_refused(
    tmp_path: Path, sections: Json, message: str, help_text: str
) -> None:
    finding = refused(tmp_path, spec(**sections))
    assert finding.code == "L033"
    assert message in finding.message
    assert help_text in finding.help


def test_sizes_beyond_a_step_are_refused_as_those_of_steps_are(tmp_path: Path) -> None:
    plan, drafts = plan_to_profile(written(tmp_path, spec()), "auto", Options())
    for asked in ({"requests": "9999"}, {"tokens": "9999"}, {"repeats": 2}):
        with pytest.raises(SpecError) as caught:
            wanted_profile(plan, drafts, **{"requests": "auto", "tokens": "auto", "repeats": 5, **asked})
        assert [one.code for one in caught.value.diagnostics] == ["L033"]


@pytest.mark.parametrize(
    "written",
    [
        {"dynamic": [{"up_to": 16, "num_speculative_tokens": 7}, {"num_speculative_tokens": 1}]},
        {"num_speculative_tokens_per_batch_size": [[1, 16, 7], [17, 256, 1]]},
        {"load_aware": {"from_requests": 64}},
    ],
)
def test_what_follows_the_load_already_is_no_part_of_the_launch(tmp_path: Path, written: Json) -> None:
    plan, drafts = plan_to_profile(written_spec(tmp_path, written), "auto", Options())
    plain, _ = plan_to_profile(written_spec(tmp_path, {}), "auto", Options())

    assert drafts == (0, 1, 3, 7)
    assert plan.resolution.frame.tiers == plain.resolution.frame.tiers


def written_spec(folder: Path, drafting: Json) -> str:
    return written(folder, spec(speculative={**DRAFT, **drafting}))


def test_the_widest_batch_that_can_be_asked_for_is_the_specs_own(tmp_path: Path) -> None:
    """The launch has a tier above it for each further K, whose batches no K but one has graphs for."""
    plan, drafts = plan_to_profile(written(tmp_path, spec()), "auto", Options())
    assert plan.resolution.limits.max_num_seqs.value == 259

    wanted_profile(plan, drafts, requests="256", tokens="auto", repeats=5)
    with pytest.raises(SpecError) as caught:
        wanted_profile(plan, drafts, requests="257", tokens="auto", repeats=5)

    (finding,) = caught.value.diagnostics
    assert finding.message == "a step of this spec has at most 256 (`scheduler.max_num_seqs`), not 257"


@given(st.integers(1, 20_000))
def test_curve_sizes_reach_from_one_to_the_widest_and_leave_no_gap_of_more_than_two(most: int) -> None:
    sizes = curve_sizes(most)
    assert (sizes[0], sizes[-1]) == (1, most)
    assert list(sizes) == sorted(set(sizes))
    assert all(after <= 2 * before for before, after in pairwise(sizes))


def test_the_text_has_a_row_for_each_batch_and_marks_what_has_no_full_graph() -> None:
    document = step_document(identity_of(compiled(spec()).to_json()), lambda n, k: (n + k) / 1000, (0, 7), (1, 8))
    document["sizes"][-1]["modes"][0]["mode"] = "NONE"
    document["sizes"][1]["modes"][0]["mode"] = "PIECEWISE"
    document["sizes"].append({**document["sizes"][0], "kind": "mixed", "tokens": 64})

    assert profile_text(document).splitlines()[2:] == [
        "  requests  K=0      K=7",
        "  1         1.000    8.000",
        "  8         8.000 p  15.000 e",
        "",
        "  tokens  ms",
        "  64      1.000",
    ]

"""`speculative.load_aware`: the knee of a curve, and what a plan and its launch make of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.curves.step_curve import TimedPoint, step_curve
from servespec.compiler.resolve.load_aware import knee_of, upper_load
from servespec.diagnostics import Diagnostic, SpecError
from servespec.units import Requests
from tests.plans import Json, compiled, model_folder, row_of, spec_of
from tests.step_curves import identity_for, roofline, step_document, written
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

DRAFT = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}
WIDE = {"max_decode_cudagraph_capture_requests": 256, "max_decode_cudagraph_capture_tokens": "unlimited"}


def spec(load_aware: Any = None, **sections: Any) -> Json:
    drafting = DRAFT if load_aware is None else {**DRAFT, "load_aware": load_aware}
    given = {"scheduler": {"max_num_seqs": 256}, "compilation": WIDE, "engine": EXTENSION, **sections}
    return spec_of("qwen3-8b", "h200", speculative=drafting, **given)


def curve_file(folder: Path, drafts: tuple[int, ...] = (0, 7), identity: Any = None) -> str:
    document = step_document(identity or identity_for(spec()), roofline(linear_from_tokens=600), drafts)
    return written(folder, document)


def refused(given: Json) -> list[Diagnostic]:
    with pytest.raises(SpecError) as caught:
        compiled(given)
    return [one for one in caught.value.diagnostics if one.severity == "error"]


def knee(*points: tuple[int, float], noise: float = 0.0, max_num_seqs: int = 512) -> int | None:
    curve = step_curve(TimedPoint(size=size, seconds=seconds, noise=noise) for size, seconds in points)
    assert curve is not None
    return knee_of(curve, upper_load(curve, Requests(max_num_seqs)))


def test_the_knee_lies_in_the_upper_half_even_where_the_largest_drop_is_in_the_lower() -> None:
    """Times 10 from 2 to 4 requests, and 2.5 from 64 to 128, where the device is full."""
    points = ((1, 1.0), (2, 1.0), (4, 10.0), (8, 10.0), (16, 10.0), (32, 11.0), (64, 12.0), (128, 30.0), (256, 55.0))
    assert knee(*points) == 64


def test_of_equally_steep_sizes_the_first_is_the_knee() -> None:
    assert knee((1, 1.0), (2, 1.0), (4, 1.0), (8, 2.0), (16, 4.0), (32, 8.0)) == 8


def test_a_size_that_no_batch_has_is_not_looked_at() -> None:
    """Times 3 from 256 to 512, which a server of 128 requests never meets; there the fall is at 32."""
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    points = tuple(zip(sizes, (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5, 1.6, 1.7, 5.0), strict=True))
    assert knee(*points) == 256
    assert knee(*points, max_num_seqs=128) == 32


def test_a_fall_within_noise_is_none() -> None:
    flat = tuple((size, 1.0) for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
    rising = (*flat[:-1], (512, 1.1))
    assert knee(*flat) is None
    assert knee(*rising, noise=0.02) == 256
    assert knee(*rising, noise=0.07) is None


def test_auto_is_the_knee_of_the_curve_with_the_specs_own_k(tmp_path: Path) -> None:
    """Flat to 600 tokens, so with K = 7 to 75 requests: 64 is the size from which it rises."""
    plan = compiled(spec({"from_requests": "auto", "from_curve": curve_file(tmp_path)})).to_json()

    found = plan["resolved"]["speculative.load_aware.from_requests"]
    assert (found["value"], found["origin"]) == (64, "derived")
    assert "the knee of" in found["because"]
    assert row_of(plan, "uniform_decode")["max_requests"] == 63
    assert row_of(plan, "adaptive_verification")["sizes"][0] == 56
    assert plan["inputs"]["curve_sha256"]


def test_the_knee_is_told_and_the_number_that_the_note_writes_is_the_same_plan(tmp_path: Path) -> None:
    """64 requests are 512 tokens, within the flat 600; 128 are 1024, which take 1.7 times as long."""
    curve = curve_file(tmp_path)
    plan = compiled(spec({"from_requests": "auto", "from_curve": curve})).to_json()

    (note,) = [one for one in plan["diagnostics"] if one["code"] == "P154"]
    seconds = roofline(linear_from_tokens=600)
    assert note["message"] == (
        f"`{curve}` has its knee at 64 requests: with K = 7 a server makes {1 / seconds(64, 7):.0f} steps a second "
        f"there, and {1 / seconds(128, 7):.0f} at 128"
    )
    assert note["help"] == "write it by hand as `load_aware: {from_requests: 64}`"
    by_hand = compiled(spec({"from_requests": 64})).to_json()
    for key in ("runners", "coverage", "launch"):
        assert by_hand[key] == plan[key], key
    assert "P154" not in {one["code"] for one in by_hand["diagnostics"]}


def test_the_engine_is_told_to_verify_adaptively_and_its_workers_from_when_on() -> None:
    argv = compiled(spec({"from_requests": 64})).lowered.argv

    speculative = json.loads(argv[argv.index("--speculative-config") + 1])
    handed = json.loads(argv[argv.index("--additional-config") + 1])["servespec"]
    assert speculative["enable_adaptive_verification"] is True
    assert "load_aware" not in speculative
    assert handed["load_aware"] == [64, 56]


def test_without_it_nothing_is_handed_over() -> None:
    argv = compiled(spec()).lowered.argv
    assert "adaptive" not in " ".join(argv)


def test_both_sets_of_graphs_cover_every_batch_and_count_in_the_ledger() -> None:
    plan, fixed = compiled(spec({"from_requests": 64})).to_json(), compiled(spec()).to_json()

    decode = [one for one in plan["coverage"]["decode"] if one["runner"] == "target"]
    covered = [(one["routine"], one["from_requests"], one["to_requests"], one["mode"]) for one in decode]
    assert {mode for *_, mode in covered} == {"FULL"}
    uniform = [one for one in covered if one[0] == "uniform_decode"]
    adaptive = [one for one in covered if one[0] == "adaptive_verification"]
    assert (uniform[0][1], uniform[-1][2]) == (1, 63)
    assert (adaptive[0][1], adaptive[-1][2]) == (56, 256)  # from 56 to 63 as the step before it was
    graphs = row_of(plan, "uniform_decode")["graphs"] + row_of(plan, "adaptive_verification")["graphs"]
    objects = [one for one in plan["memory"]["lines"] if one["owner"] == "target: objects of FULL graphs"]
    assert objects[0]["because"].startswith(f"{graphs} graphs x")
    assert row_of(fixed, "uniform_decode")["max_requests"] == 256


@pytest.mark.parametrize(
    ("curve", "max_num_seqs", "message"),
    [
        (roofline(linear_from_tokens=10_000), 256, "no step of `curve.json` takes longer"),
        (roofline(linear_from_tokens=600), 8, "has 2 sizes in the upper half of those to `max_num_seqs: 8`"),
    ],
)
def test_a_curve_without_a_knee_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, curve: Any, max_num_seqs: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    scheduler = {"max_num_seqs": max_num_seqs}
    written(tmp_path, step_document(identity_for(spec(scheduler=scheduler)), curve, (0, 7)))

    (finding,) = refused(spec({"from_requests": "auto", "from_curve": "curve.json"}, scheduler=scheduler))

    assert (finding.code, message in finding.message) == ("R122", True), finding.message


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"drafts": (0, 3)}, "R119", "has no steps with K = 7"),
        ({"identity": {"device": "1 x h100"}}, "P143", "another"),
    ],
)
def test_a_curve_that_does_not_fit_is_refused(tmp_path: Path, changes: Json, code: str, message: str) -> None:
    if "identity" in changes:
        changes["identity"] = {**identity_for(spec()), **changes["identity"]}
    findings = refused(spec({"from_requests": "auto", "from_curve": curve_file(tmp_path, **changes)}))

    assert [one.code for one in findings] == [code]
    assert message in findings[0].message


@pytest.mark.parametrize(
    ("load_aware", "code", "help_text"),
    [
        ({"from_requests": 0}, "S230", "2 or more"),
        ({"from_requests": 64, "from_curve": "curve.json"}, "S230", "delete `from_curve`"),
        ({"from_requests": "many"}, "S106", "a whole number"),
        ({}, "S101", "from_requests: 64"),
    ],
)
def test_what_is_no_load_is_refused_with_its_line(load_aware: Json, code: str, help_text: str) -> None:
    findings = refused(spec(load_aware))

    assert [one.code for one in findings] == [code]
    assert findings[0].place.range is not None
    assert help_text in findings[0].help


@pytest.mark.parametrize("switch", [{"load_aware": {"from_requests": 64}}, {"enable_adaptive_verification": True}])
@pytest.mark.parametrize("drafting", [{"method": "ngram_gpu"}, {"model": "ngram"}, {"method": "extract_hidden_states"}])
def test_drafts_of_unknown_likelihood_are_not_chosen_among(drafting: Json, switch: Json) -> None:
    given = spec_of("qwen3-8b", "h200", speculative={**drafting, "num_speculative_tokens": 1, **switch})

    (finding,) = refused(given)

    assert (finding.code, finding.help) == ("S232", f"delete `{next(iter(switch))}`")


def step_0(plan: Json) -> set[tuple[str, int, str]]:
    return {
        (row["routine"], row["from_requests"], row["mode"])
        for row in plan["coverage"]["decode"]
        if row["runner"] == "drafter" and row["query_len"] == 8
    }


def test_step_0_of_the_drafter_is_a_mixed_step_after_chosen_drafts() -> None:
    plan = compiled(spec({"from_requests": 64})).to_json()

    (warning,) = [one for one in plan["diagnostics"] if one["code"] == "P102"]
    assert warning["message"].startswith("after chosen drafts, draft steps of 65 to 256 requests run eagerly")
    assert {("step0_piecewise", 56, "PIECEWISE"), ("step0_piecewise", 65, "EAGER")} <= step_0(plan)
    assert max(first for routine, first, _ in step_0(plan) if routine == "step0_uniform") < 64


def test_the_prefill_cap_of_the_warning_covers_it() -> None:
    (warning,) = [one for one in compiled(spec({"from_requests": 64})).diagnostics if one.rule.code == "P102"]
    assert warning.help is not None
    field, _, tokens = warning.help.removeprefix("write `").removesuffix("`").partition(": ")

    plan = compiled(spec({"from_requests": 64}, compilation={**WIDE, field: int(tokens)})).to_json()

    assert [one["code"] for one in plan["diagnostics"] if one["code"] == "P102"] == []
    assert "EAGER" not in {mode for _, _, mode in step_0(plan)}


def test_the_caps_of_both_warnings_cover_it_where_the_target_is_eager_too() -> None:
    """With its own graphs the target pads a step of 1766 tokens, which its drafter takes over."""
    scheduler = {"max_num_seqs": 512}
    findings = compiled(spec({"from_requests": 64}, compilation={}, scheduler=scheduler)).diagnostics
    helps = [str(one.help) for one in findings if one.code in ("P101", "P102")]
    caps = {field: int(tokens) for text in helps for field, tokens in re.findall(r"(max_\w+): (\d+)", text)}
    assert set(caps) == {"max_decode_cudagraph_capture_requests", "max_prefill_cudagraph_capture_tokens"}

    plan = compiled(spec({"from_requests": 64}, compilation=caps, scheduler=scheduler)).to_json()

    assert [one["code"] for one in plan["diagnostics"] if one["code"] in ("P101", "P102")] == []
    assert "EAGER" not in {mode for _, _, mode in step_0(plan)}


def test_modules_without_piecewise_graphs_are_eager_after_chosen_drafts() -> None:
    drafting = {"method": "mtp", "num_speculative_tokens": 3, "enable_adaptive_verification": True}
    given = spec_of("three-mtp-modules", "h200", speculative=drafting, scheduler={"max_num_seqs": 16})

    plan, mended = (compiled({**given, "compilation": {"breakable_cudagraph": on}}).to_json() for on in (False, True))

    (warning,) = [one for one in plan["diagnostics"] if one["code"] == "P102"]
    assert warning["help"] == "`breakable_cudagraph: true` has them"
    rows = [row for row in mended["coverage"]["decode"] if row["runner"] == "drafter"]
    assert {(row["routine"], row["mode"]) for row in rows} == {("block_piecewise", "PIECEWISE")}


def test_an_engine_that_runs_eagerly_is_told_so() -> None:
    drafting = {"method": "dspark", "num_speculative_tokens": 3, "enable_adaptive_verification": True}
    with pytest.raises(SpecError) as caught:
        compiled(
            spec_of("deepseek-v4-flash", "gb200", speculative=drafting)
            | {"model": {"id": model_folder("deepseek-v4-flash"), "enforce_eager": True}}
        )

    helps = {finding.help for finding in caught.value.diagnostics if finding.code == "R101"}
    assert any(text.startswith("delete `enforce_eager`, or it") for text in helps)


@pytest.mark.parametrize(
    ("sections", "because"),
    [
        ({"hardware": {"gpu": "rtx-pro-6000"}}, "`FLASH_ATTN` cannot replay batches trimmed on the GPU"),
        (
            {"compilation": {"cudagraph_mode": "PIECEWISE"}},
            "adaptive verification needs full graphs and the mode is `PIECEWISE`",
        ),
        (
            {"hardware": {"gpu": "h200", "count": 2}, "parallel": {"pipeline_parallel_size": 2}},
            "adaptive verification does not run with pipeline parallelism",
        ),
    ],
)
def test_what_the_engine_refuses_names_the_field_that_is_written(sections: Json, because: str) -> None:
    (finding,) = refused({**spec({"from_requests": 64}), **sections})

    assert (finding.code, finding.message) == ("R101", f"`speculative.load_aware`: {because}")
    assert finding.place.range is not None


def test_lists_that_leave_no_full_graphs_are_the_one_thing_told() -> None:
    empty: Json = {"prefill_cudagraph_capture_token_sizes": [], "decode_cudagraph_capture_request_sizes": []}

    assert {one.code for one in refused(spec({"from_requests": 64}, compilation=empty))} == {"R101"}


def test_auto_takes_the_extension_whatever_the_graphs_are() -> None:
    """Neither way has a graph of its own here, so that the engine's list says the same; its workers decide all the
    same."""
    drafting = {"method": "dspark", "model": model_folder("dspark-draft"), "num_speculative_tokens": 5}
    given = spec_of(
        "qwen3-8b",
        "h200",
        scheduler={"max_num_seqs": 55, "max_num_batched_tokens": 2453},
        speculative={**drafting, "load_aware": {"from_requests": 16}},
        compilation={"cudagraph_capture_sizes": [1382]},
    )

    assert compiled(given).lowered.lowering == "extension"

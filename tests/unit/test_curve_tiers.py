"""`speculative.dynamic: {from_curve: ...}`: the tiers, the refusals, and what a plan says of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import PLAN_SCHEMA
from servespec.diagnostics import Diagnostic, SpecError
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import read_spec
from tests.plans import Json, compiled, model_folder, spec_of
from tests.step_curves import SIZES, identity_for, roofline, step_document, written
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

RATES = [0.8, 0.6, 0.45, 0.35, 0.27, 0.2, 0.15]
DRAFT = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 7}


def spec(dynamic: Any = None, *, seqs: int = 512, **sections: Any) -> Json:
    drafting = DRAFT if dynamic is None else {**DRAFT, "dynamic": dynamic}
    given = {"speculative": drafting, "scheduler": {"max_num_seqs": seqs}, "engine": EXTENSION, **sections}
    return spec_of("qwen3-8b", "h200", **given)


def curve_of(folder: Path, drafts: tuple[int, ...] = (0, 1, 3, 7), **changes: Any) -> str:
    return written(folder, step_document(identity_for(spec()), roofline(), drafts, **changes))


def refused(given: Mapping[str, Any]) -> list[Diagnostic]:
    with pytest.raises(SpecError) as caught:
        compiled(given)
    return [one for one in caught.value.diagnostics if one.severity == "error"]


def test_a_curve_that_is_flat_and_then_linear_takes_less_drafts_as_load_rises(tmp_path: Path) -> None:
    plan = compiled(spec({"from_curve": curve_of(tmp_path), "acceptance_rates": RATES}))
    document = plan.to_json()

    jsonschema.validate(document, PLAN_SCHEMA)
    drafts = [tier["num_speculative_tokens"] for tier in document["tiers"]["chosen"]]
    assert drafts[0] == 7
    assert drafts == sorted(set(drafts), reverse=True)
    assert len(drafts) > 1
    assert document["tiers"]["chosen"][-1]["to_requests"] == 512
    flag = document["launch"]["argv"].index("--speculative-config")
    assert "num_speculative_tokens_per_batch_size" in document["launch"]["argv"][flag + 1]


def test_the_tiers_that_the_note_writes_by_hand_are_the_same_plan(tmp_path: Path) -> None:
    chosen = compiled(spec({"from_curve": curve_of(tmp_path), "acceptance_rates": RATES})).to_json()
    (note,) = [one for one in chosen["diagnostics"] if one["code"] == "P142"]
    dynamic = note["help"].removeprefix("write it by hand as `dynamic: ").removesuffix("`")
    text = "\n".join(
        [
            "servespec: 1",
            f"model: {{id: {model_folder('qwen3-8b')}}}",
            "hardware: {gpu: h200}",
            f"speculative: {{method: eagle3, model: {DRAFT['model']}, num_speculative_tokens: 7, dynamic: {dynamic}}}",
            "scheduler: {max_num_seqs: 512}",
            "engine: {version: 0.33.0, lowering: extension}",
        ]
    )

    by_hand = compiled(text.encode()).to_json()

    for key in ("runners", "coverage", "launch"):
        assert by_hand[key] == chosen[key], key


def test_every_prediction_is_within_the_tolerance_of_the_best_fixed_k(tmp_path: Path) -> None:
    tiers = compiled(spec({"from_curve": curve_of(tmp_path), "acceptance_rates": RATES})).to_json()["tiers"]

    assert {row["requests"] for row in tiers["predicted"]} >= set(SIZES)
    for row in tiers["predicted"]:
        fixed = {one["num_speculative_tokens"]: one["tokens_per_second"] for one in row["fixed"]}
        assert fixed[row["num_speculative_tokens"]] >= max(fixed.values()) / 1.021, row
        assert row["without_speculation"] > fixed[0]


@pytest.mark.parametrize(
    ("dynamic", "code", "message", "help_text"),
    [
        ({"from_curve": "none.json", "acceptance_length": 2.0}, "R019", "cannot be read: no such file", "profile"),
        ({"from_curve": "CURVE"}, "S228", "nothing says so", "servespec acceptance URL"),
        (
            {"from_curve": "CURVE", "acceptance_length": 2.0, "acceptance_rates": RATES},
            "S228", "rates and length both", "delete one",
        ),
        ({"from_curve": "CURVE", "acceptance_rates": [0.5, 0.6, 0.1, 0, 0, 0, 0]}, "S228", "more often", "metrics"),
        ({"from_curve": "CURVE", "acceptance_rates": [0.5, 0.4]}, "S228", "rates of 2 positions", "each of 7"),
        ({"from_curve": "CURVE", "acceptance_rates": None}, "S228", "nothing says so", "servespec acceptance URL"),
        ({"from_curve": "CURVE", "acceptance_rates": [1.2, *RATES[1:]]}, "S105", "is `1.2`", "at most 1.0"),
        ({"from_curve": "CURVE", "acceptance_length": 9}, "S228", "at most 8 tokens", "from 1 to 8"),
        ({"from_curve": "CURVE", "acceptance_rates": RATES, "candidates": [8]}, "S211", "above", "raise K to `8`"),
        ({"from_curve": "CURVE", "acceptance_rates": RATES, "candidates": [1, 5]}, "R119", "K = 5", "`servespec prof"),
    ],
)  # fmt: skip
def test_what_a_curve_cannot_choose_from_is_refused_with_its_line(
    tmp_path: Path, dynamic: Json, code: str, message: str, help_text: str
) -> None:
    curve = curve_of(tmp_path)
    given = {**dynamic, "from_curve": curve if dynamic["from_curve"] == "CURVE" else dynamic["from_curve"]}

    (finding,) = refused(spec(given))

    assert (finding.code, finding.place.range is not None) == (code, True)
    assert message in finding.message
    assert help_text in finding.help


def test_a_curve_that_ends_below_the_widest_batch_says_which_batch_it_allows(tmp_path: Path) -> None:
    given = {"from_curve": curve_of(tmp_path, sizes=(1, 64, 256)), "acceptance_rates": RATES}

    (finding,) = refused(spec(given))

    assert finding.code == "R119"
    assert finding.message.endswith("256 requests with K = 0, 1, 3, 7, and a batch has 1 to 512")
    assert "write `scheduler.max_num_seqs: 256`" in finding.help
    assert compiled(spec(given, seqs=256)).resolution.tier_choice is not None


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((1, 4, 16, 64, 256, 512), None),
        ((1, 8, 64, 512), "has nothing between 1 and 8 requests, 8 and 64 requests, 64 and 512 requests"),
        ((1, 512), "has nothing between 1 and 512 requests"),
    ],
)
def test_a_curve_with_sizes_far_apart_is_told(tmp_path: Path, sizes: tuple[int, ...], said: str | None) -> None:
    given = {"from_curve": curve_of(tmp_path, sizes=sizes), "acceptance_rates": RATES}

    found = [one.message for one in compiled(spec(given)).diagnostics if one.code == "P153"]

    assert found == ([] if said is None else [f"`{given['from_curve']}` {said}"])


def test_the_note_has_the_gain_over_no_speculation_where_that_was_timed(tmp_path: Path) -> None:
    def note(drafts: tuple[int, ...]) -> str:
        given = {"from_curve": curve_of(tmp_path, drafts), "acceptance_rates": RATES}
        plan = compiled(spec(given))
        (found,) = [one.message for one in plan.diagnostics if one.code == "P142"]
        rows = plan.to_json()["tiers"]["predicted"]
        gains = [
            {one["num_speculative_tokens"]: one["tokens_per_second"] for one in row["fixed"]}[
                row["num_speculative_tokens"]
            ]
            / row["without_speculation"]
            for row in rows
            if row["without_speculation"] is not None
        ]
        if gains:
            assert found.endswith(f", {min(gains):.2f}x to {max(gains):.2f}x of no speculation")
        return found

    assert "of no speculation" in note((0, 1, 3, 7))
    assert "of no speculation" not in note((1, 3, 7))


def test_a_curve_of_another_model_is_refused_and_one_of_another_version_is_told(tmp_path: Path) -> None:
    identity = identity_for(spec())
    other_model = step_document({**identity, "model": "0" * 64}, roofline(), (1, 7))
    other_version = step_document({**identity, "engine": "vllm 0.32.1"}, roofline(), (1, 7))
    given = {"from_curve": written(tmp_path, other_model), "acceptance_rates": RATES}

    (finding,) = refused(spec(given))
    assert (finding.code, finding.message) == (
        "P143", f"`{given['from_curve']}` was measured with another `model`",
    )  # fmt: skip

    given["from_curve"] = written(tmp_path, other_version)
    assert {"P142", "P144"} <= {one.code for one in compiled(spec(given)).diagnostics}


@pytest.mark.parametrize(
    ("section", "setting", "flag"),
    [
        ("scheduler", {"async_scheduling": False}, "--no-async-scheduling"),
        ("parallel", {"disable_custom_all_reduce": True}, "--disable-custom-all-reduce"),
        ("compilation", {"mode": 0}, "--compilation-config"),
    ],
)
def test_a_curve_of_an_engine_with_another_flag_is_refused(
    tmp_path: Path, section: str, setting: Json, flag: str
) -> None:
    """A flag without words is set by being there."""
    given = {"from_curve": curve_of(tmp_path), "acceptance_rates": RATES}
    asked = spec(given)

    (finding,) = refused({**asked, section: {**asked.get(section, {}), **setting}})

    assert (finding.code, f"another `{flag}`" in finding.message) == ("P143", True)


@pytest.mark.parametrize(
    ("path", "value"),
    [(("requests",), 0), (("modes", 0, "median_seconds"), 0), (("modes", 0, "repeats"), 0)],
)
def test_a_step_of_nothing_is_no_curve(tmp_path: Path, path: tuple[str | int, ...], value: int) -> None:
    document = step_document(identity_for(spec()), roofline(), (0, 7))
    at = document["sizes"][3]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value

    (finding,) = refused(spec({"from_curve": written(tmp_path, document), "acceptance_rates": RATES}))

    assert (finding.code, finding.message) == ("R019", "a step in it has nothing to do, took no time or was never run")


def test_a_curve_of_an_engine_that_it_does_not_name_is_of_another(tmp_path: Path) -> None:
    identity = identity_for(spec())
    nameless = {name: value for name, value in identity.items() if name != "engine"}
    given = {"from_curve": written(tmp_path, step_document(nameless, roofline(), (0, 7))), "acceptance_rates": RATES}
    assert "P144" in {one.code for one in compiled(spec(given)).diagnostics}

    broken = step_document({**identity, "--speculative-config": "no JSON"}, roofline(), (0, 7))
    (finding,) = refused(spec({**given, "from_curve": written(tmp_path, broken)}))
    assert (finding.code, "`--speculative-config`" in finding.message) == ("P143", True)


def test_files_of_two_runs_are_one_curve_and_those_of_two_engines_are_not(tmp_path: Path) -> None:
    identity = identity_for(spec())
    parts = [
        written(tmp_path, step_document(identity, roofline(), drafts), f"{drafts[0]}.json")
        for drafts in ((0, 1), (3, 7))
    ]
    whole = compiled(spec({"from_curve": curve_of(tmp_path), "acceptance_rates": RATES})).to_json()
    split = compiled(spec({"from_curve": parts, "acceptance_rates": RATES})).to_json()
    assert split["tiers"]["chosen"] == whole["tiers"]["chosen"]
    assert split["tiers"]["predicted"] == whole["tiers"]["predicted"]

    other = step_document({**identity, "device": "1 x h100"}, roofline(), (7,))
    (finding,) = refused(
        spec({"from_curve": [parts[0], written(tmp_path, other, "other.json")], "acceptance_rates": RATES})
    )
    assert finding.code == "R019"
    assert "another `device`" in finding.message


def test_a_curve_lies_in_the_folder_of_its_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve_of(tmp_path)
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec({"from_curve": "curve.json", "acceptance_rates": RATES})), encoding="utf-8")
    monkeypatch.chdir("/")

    plan = compile_spec(compile_request(read_spec(str(path), ()), Options()))

    assert plan.to_json()["tiers"]["measured_by"] == "curve.json"


def test_the_engines_own_pretended_acceptance_is_taken_where_the_spec_pretends(tmp_path: Path) -> None:
    pretending = {**DRAFT, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5}
    given = spec(speculative={**pretending, "dynamic": {"from_curve": curve_of(tmp_path)}})

    tiers = compiled(given).to_json()["tiers"]

    assert tiers["acceptance_rates"] == [1.0, 0.5, 0, 0, 0, 0, 0]
    assert "synthetic_acceptance_length" in tiers["acceptance"]


def test_a_curve_whose_decodes_had_other_graphs_is_told(tmp_path: Path) -> None:
    """The same caps are silent; a curve without the graphs that the plan has, and one with more, name their sizes."""
    document = step_document(identity_for(spec()), roofline(), (1, 7))
    eager = [size for size in document["sizes"] if (size["requests"], size["next_drafts"]) == (512, 7)]
    wide = {"max_decode_cudagraph_capture_requests": 512, "max_decode_cudagraph_capture_tokens": "unlimited"}

    def told(compilation: Json) -> list[str]:
        dynamic = {"from_curve": written(tmp_path, document), "acceptance_rates": RATES}
        plan = compiled(spec(dynamic, compilation=compilation))
        return [one.message for one in plan.diagnostics if one.code == "P145"]

    assert told(wide) == []
    (message,) = told({**wide, "max_decode_cudagraph_capture_requests": 256})
    assert "has 512 requests with K = 1, 512 requests with K = 7 with other decode graphs" in message
    for size in eager:
        size["modes"][0]["mode"] = "NONE"
    (message,) = told(wide)
    assert "has 512 requests with K = 7 with other decode graphs" in message


@pytest.mark.parametrize(
    ("section", "key", "home"),
    [
        ("speculative", "acceptance_length", "speculative.dynamic.acceptance_length"),
        ("speculative", "from_requests", "speculative.load_aware.from_requests"),
        ("scheduler", "gpu_memory_utilization", "memory.gpu_memory_utilization"),
    ],
)
def test_a_key_beside_its_mapping_is_told_where_it_belongs(section: str, key: str, home: str) -> None:
    given = spec()
    given[section] = {**given[section], key: 2}

    (finding,) = refused(given)

    assert (finding.code, finding.help) == ("S107", f"move it to `{home}`")

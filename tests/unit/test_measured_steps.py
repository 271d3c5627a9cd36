"""What measured step times say of a plan: graphs above the last size that gained anything."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from servespec.compiler.memory.measurement import identity_of
from servespec.compiler.plan import PLAN_SCHEMA, Plan
from servespec.diagnostics import Diagnostic, SpecError
from servespec.render.plan_markdown import plan_markdown
from servespec.render.plan_text import plan_text
from servespec.runtime.gather import Options
from servespec.schema.source import read_source
from tests.plans import REPOSITORY, Json, compiled, model_folder, spec_of
from tests.strategies import EXTENSION

pytestmark = pytest.mark.usefixtures("quiet_shell")

MEASURED = REPOSITORY / "docs/measurements/2026-11-30-h200-steps-8b-k3.json"
CONFIGS = REPOSITORY / "docs/measurements/2026-11-30-h200-memory-launches-4.json"


def spec(**sections: Any) -> Json:
    draft = {"method": "eagle3", "model": model_folder("eagle3-draft"), "num_speculative_tokens": 3}
    given = {
        "speculative": draft,
        "scheduler": {"max_num_seqs": 512, "max_num_batched_tokens": 8192},
        "compilation": {
            "max_prefill_cudagraph_capture_tokens": 8192,
            "max_decode_cudagraph_capture_requests": 512,
            "max_decode_cudagraph_capture_tokens": 4096,
        },
        "engine": EXTENSION,
        **sections,
    }
    return spec_of("qwen3-8b", "h200", **given)


def document(**changes: Any) -> Json:
    """The measured document, as if it were of the spec above."""
    found: Json = json.loads(MEASURED.read_text(encoding="utf-8"))
    return {**found, "identity": identity_of(compiled(spec()).to_json()), **changes}


def told(folder: Path, document: Json, **sections: Any) -> list[Diagnostic]:
    path = folder / "steps.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    plan = compiled(spec(**sections), Options(measured=(path,)))
    return [one for one in plan.diagnostics if one.code == "P138"]


def test_the_measured_file_holds_for_the_spec_that_it_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a dense 8B model on an H200, wide steps with prompts gained nothing, and all decodes did."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    for name, config in json.loads(CONFIGS.read_text(encoding="utf-8"))["models"].items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    source = read_source(found["spec_text"], "spec.yaml")

    plan: Plan = compiled(source.text.encode(), Options(measured=(MEASURED,)))

    (finding,) = [one for one in plan.diagnostics if one.code in ("P136", "P138")]
    wide = [shape for shape in plan.graphs.shapes if shape.routine == "piecewise" and shape.tokens > 3840]
    assert finding.message == (
        f"{len(wide)} PIECEWISE graphs of the target, of more than 3840 tokens, gain nothing by `{MEASURED}`: at 8192 "
        "tokens eager takes 1.000 of their time (0.993 to 1.007)"
    )
    assert "`compilation.max_prefill_cudagraph_capture_tokens: 3840`" in finding.help


def test_the_cap_that_is_named_ends_it(tmp_path: Path) -> None:
    (finding,) = told(tmp_path, document())
    assert "3840" in finding.help

    capped = {"max_prefill_cudagraph_capture_tokens": 3840, "max_decode_cudagraph_capture_requests": 512}
    assert told(tmp_path, document(), compilation=capped) == []


@pytest.mark.parametrize(
    ("kind", "above", "capped", "code"),
    [
        ("mixed", 3840, {"max_prefill_cudagraph_capture_tokens": 3840}, "P107"),
        (
            "decode",
            224,
            {"max_decode_cudagraph_capture_requests": 224, "max_prefill_cudagraph_capture_tokens": 256},
            "P101",
        ),
    ],
)
def test_what_a_cap_leaves_eager_is_not_to_be_captured_again(
    tmp_path: Path, kind: str, above: int, capped: Json, code: str
) -> None:
    """Without the times that said so, and where graphs below gained, the advice stands."""
    found = document()
    without_gain(found, kind, above)
    compilation = {**spec()["compilation"], **capped}
    (name, size), path = next(iter(capped.items())), tmp_path / "steps.json"
    path.write_text(json.dumps(found), encoding="utf-8")

    def codes(cap: int, *measured: Path) -> set[str]:
        plan = compiled(spec(compilation={**compilation, name: cap}), Options(measured=measured))
        return {one.code for one in plan.diagnostics}

    assert code in codes(size)
    assert code not in codes(size, path)
    assert code in codes(size // 2, path)


@pytest.mark.parametrize("value", [True, False])
def test_times_hold_whatever_the_remedies_are(tmp_path: Path, value: bool) -> None:
    switched = told(tmp_path, document(), remedies={"one_capture_stream": value})

    assert [one.code for one in switched] == ["P138"]


def without_gain(found: Json, kind: str, above: int) -> None:
    for size in found["sizes"]:
        of_kind = size["kind"] == kind and size["requests" if kind == "decode" else "tokens"] > above
        for mode in size["modes"] if of_kind else ():
            mode["verdict"] = None if mode["verdict"] is None else "does_not_pay"


@pytest.mark.parametrize(
    ("kind", "above", "help_text"),
    [
        ("decode", 224, "`compilation.max_decode_cudagraph_capture_requests: 224`"),
        ("decode", 0, "`compilation.decode_cudagraph_capture_request_sizes: []`"),
        ("mixed", 128, "`compilation.max_prefill_cudagraph_capture_tokens: 128`"),
        ("mixed", 0, "`compilation.prefill_cudagraph_capture_token_sizes: []`"),
    ],
)
def test_the_last_size_that_gained_is_the_cap(tmp_path: Path, kind: str, above: int, help_text: str) -> None:
    found = document()
    without_gain(found, kind, above)

    assert any(help_text in finding.help for finding in told(tmp_path, found))


def test_a_size_between_two_that_gain_is_none(tmp_path: Path) -> None:
    """One interval in twenty is wrong by chance."""
    found = document()
    without_gain(found, "mixed", 0)
    found["sizes"][-1]["modes"][0]["verdict"] = "pays"

    assert told(tmp_path, found) == []


def test_nothing_is_said_of_sizes_above_all_that_were_timed(tmp_path: Path) -> None:
    found = document()
    found["sizes"] = [size for size in found["sizes"] if size["kind"] == "decode" or size["tokens"] <= 3840]

    assert told(tmp_path, found) == []


def of_another_model(found: Json) -> None:
    found["identity"]["model"] = "0" * 64


def of_another_form(found: Json) -> None:
    del found["sizes"][0]["kind"]


@pytest.mark.parametrize(("change", "code"), [(of_another_model, "P136"), (of_another_form, "R017")])
def test_a_document_that_does_not_hold_is_refused(tmp_path: Path, change: Callable[[Json], None], code: str) -> None:
    found = document()
    change(found)

    with pytest.raises(SpecError) as refused:
        told(tmp_path, found)

    assert code in {one.code for one in refused.value.diagnostics}


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(compiled(spec()).to_json()), encoding="utf-8")

    with pytest.raises(SpecError, match="it is a file of the kind plan"):
        compiled(spec(), Options(measured=(path,)))


def test_two_of_a_kind_are_one_too_many(tmp_path: Path) -> None:
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for path in paths:
        path.write_text(json.dumps(document()), encoding="utf-8")

    with pytest.raises(SpecError, match="of the same kind"):
        compiled(spec(), Options(measured=paths))


# Where graphs pay


def gains(folder: Path, document: Json) -> list[Json]:
    path = folder / "steps.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    plan = compiled(spec(), Options(measured=(path,))).to_json()
    jsonschema.validate(plan, PLAN_SCHEMA)
    assert plan["graph_gains"]["measured_by"] == str(path)
    found: list[Json] = plan["graph_gains"]["sizes"]
    return found


def test_where_graphs_pay_is_told_by_neighbouring_sizes(tmp_path: Path) -> None:
    """A dense 8B model on an H200: few requests and short mixed steps wait for the host, wide ones for the device."""
    found = gains(tmp_path, document())

    regimes = [
        (one["mode"], one["query_len"], one["from_size"], one["to_size"], one["unit"], one["bound"]) for one in found
    ]
    assert regimes == [
        ("FULL", 4, 1, 352, "requests", "host"),
        ("FULL", 4, 512, 512, "requests", "device"),
        ("PIECEWISE", 4, 1, 288, "requests", "host"),
        ("PIECEWISE", 4, 352, 512, "requests", "device"),
        ("PIECEWISE", None, 1, 128, "tokens", "host"),
        ("PIECEWISE", None, 2048, 8192, "tokens", "device"),
    ]
    assert all(one["least_gain"] <= one["most_gain"] for one in found)
    assert all(one["least_gain"] >= 1.1 for one in found if one["bound"] == "host")


def test_what_a_step_waits_for_is_unclear_where_a_gain_may_be_noise(tmp_path: Path) -> None:
    """Twice as fast, and the interval reaches down to 0.9: that is not known."""
    noisy = document()
    for size in noisy["sizes"]:
        for mode in size["modes"][:-1]:
            mode["eager_over_graph"] = {"ratio": 2.0, "low_95": 0.9, "high_95": 4.0}

    assert {one["bound"] for one in gains(tmp_path, noisy)} == {"unclear"}


def test_without_step_times_a_plan_says_nothing_of_it() -> None:
    assert "graph_gains" not in compiled(spec()).to_json()


def test_every_form_of_a_plan_has_them(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(document()), encoding="utf-8")
    plan = compiled(spec(), Options(measured=(path,))).to_json()

    assert f"where graphs pay, by {path}" in plan_text(plan)
    assert "1 to 352 requests" in plan_text(plan)
    assert "### Where graphs pay" in plan_markdown(plan)
    assert "| with prompts | 2048 to 8192 tokens | PIECEWISE | device |" in plan_markdown(plan)

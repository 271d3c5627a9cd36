"""`extends`: a spec over its bases, each value with the file and line that wrote it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from servespec.cli import app
from servespec.diagnostics import SpecError
from servespec.runtime.spec_file import read_spec, spec_diagnostics
from servespec.schema.overlays import layered
from servespec.schema.source import SpecPath, SpecSource, read_source
from tests.plans import model_folder
from tests.strategies import paths_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

BASE = f"""\
servespec: 1
model: {{id: {model_folder("qwen3-8b")}}}
hardware: {{gpu: h200, count: 1}}
scheduler:
  max_num_seqs: 64
  max_num_batched_tokens: 4096
compilation:
  decode_cudagraph_capture_request_sizes: [1, 2, 4]
engine: {{version: 0.33.0}}
"""
OVERLAY = """\
# The same on another cluster.
extends: base.yaml
hardware: {gpu: gb200}
scheduler:
  max_num_seqs: 128
compilation: {decode_cudagraph_capture_request_sizes: [8]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    Path("spec.yaml").write_text(OVERLAY)
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def place(source: SpecSource, *path: str | int) -> tuple[str, int]:
    found = source.place_of(path)
    assert found.range is not None
    return found.file, found.range.start.line


def test_values_and_their_places(folder: Path) -> None:
    source = read_spec("spec.yaml")

    assert source.data["hardware"] == {"gpu": "gb200", "count": 1}
    assert source.data["scheduler"] == {"max_num_seqs": 128, "max_num_batched_tokens": 4096}
    assert source.data["compilation"] == {"decode_cudagraph_capture_request_sizes": [8]}
    assert "extends" not in source.data
    assert place(source, "hardware", "gpu") == ("spec.yaml", 3)
    assert place(source, "hardware", "count") == ("base.yaml", 3)
    assert place(source, "scheduler", "max_num_seqs") == ("spec.yaml", 5)
    assert place(source, "scheduler", "max_num_batched_tokens") == ("base.yaml", 6)
    assert place(source, "compilation", "decode_cudagraph_capture_request_sizes", 0) == ("spec.yaml", 6)
    assert place(source, "engine", "lowering") == ("base.yaml", 9)
    assert place(source, "model", "id") == ("base.yaml", 2)


def test_findings_show_the_line_of_the_file_that_wrote_it(folder: Path) -> None:
    Path("base.yaml").write_text(BASE.replace("max_num_batched_tokens: 4096", "max_num_batched_token: 4096"))

    done = run("validate", "spec.yaml")

    assert done.exit_code == 1
    assert " --> base.yaml:6:3\n  |\n6 |   max_num_batched_token: 4096\n" in done.stdout


def test_a_plan_of_an_overlay_is_that_of_the_whole(folder: Path) -> None:
    whole = BASE.replace("gpu: h200", "gpu: gb200").replace("max_num_seqs: 64", "max_num_seqs: 128")
    Path("whole.yaml").write_text(whole.replace("[1, 2, 4]", "[8]"))

    assert run("plan", "spec.yaml", "--against", "whole.yaml").exit_code == 0
    assert run("plan", "spec.yaml", "--against", "base.yaml").exit_code == 6


def test_several_bases_and_bases_of_bases(folder: Path) -> None:
    (folder / "clusters").mkdir()
    Path("clusters/gb.yaml").write_text("extends: ../base.yaml\nhardware: {gpu: gb200, count: 2}\n")
    Path("limits.yaml").write_text("scheduler: {max_num_seqs: 7}\nhardware: {count: 4}\n")
    Path("spec.yaml").write_text("extends: [clusters/gb.yaml, limits.yaml]\nscheduler: {max_num_seqs: 8}\n")

    source = read_spec("spec.yaml", ("serve.port=9000",))

    assert source.data["hardware"] == {"gpu": "gb200", "count": 4}
    assert source.data["scheduler"] == {"max_num_seqs": 8, "max_num_batched_tokens": 4096}
    assert place(source, "hardware", "gpu") == ("clusters/gb.yaml", 2)
    assert place(source, "scheduler", "max_num_batched_tokens") == ("clusters/../base.yaml", 6)
    assert source.place_of(("serve", "port")).file == "--set serve.port=9000"
    assert set(source.texts) == {"spec.yaml", "limits.yaml", "clusters/gb.yaml", "clusters/../base.yaml"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"spec.yaml": "extends: nothing.yaml\n"},
            ("S226", "cannot read `nothing.yaml`", "spec.yaml", 1),
        ),
        ({"spec.yaml": "a: 1\nextends: [base.yaml, {}]\n"}, ("S226", "`extends` is a list", "spec.yaml", 2)),
        ({"spec.yaml": "extends: 3\n"}, ("S226", "`extends` is `3`", "spec.yaml", 1)),
        ({"spec.yaml": "extends: spec.yaml\n"}, ("S227", "`spec.yaml` extends this file itself", "spec.yaml", 1)),
        (
            {"spec.yaml": "extends: base.yaml\n", "base.yaml": "extends: [spec.yaml]\n"},
            ("S227", "`spec.yaml` extends this file itself", "base.yaml", 1),
        ),
        ({"base.yaml": "a: [\n"}, ("S005", "", "base.yaml", 1)),
    ],
)
def test_what_cannot_be_extended(folder: Path, files: dict[str, str], said: tuple[str, str, str, int]) -> None:
    for name, text in files.items():
        Path(name).write_text(text)

    with pytest.raises(SpecError) as refused:
        read_spec("spec.yaml")

    (found,) = refused.value.diagnostics
    assert found.place.range is not None
    assert (found.code, found.place.file, found.place.range.start.line) == (said[0], said[2], said[3])
    assert said[1] in found.message


def test_every_base_that_cannot_be_read_is_told(folder: Path) -> None:
    Path("broken.yaml").write_text("a: [\n")
    Path("spec.yaml").write_text("extends: [base.yaml, nope.yaml, preset:foo, broken.yaml]\n")

    with pytest.raises(SpecError) as refused:
        read_spec("spec.yaml")

    found = [(one.code, one.place.file) for one in refused.value.diagnostics]
    assert found == [("S005", "broken.yaml"), ("S226", "spec.yaml"), ("R014", "spec.yaml")]


def test_a_text_that_is_read_alone_is_refused() -> None:
    """Nothing of its bases would be known."""
    source = read_source(BASE + "extends: base.yaml\n", "spec.yaml")

    assert [one.code for one in spec_diagnostics(source, allow_code=False)] == ["S226"]


def test_an_overlay_migrates_in_its_own_file(folder: Path) -> None:
    Path("spec.yaml").write_text("extends: base.yaml # all else\ncompilation: {max_cudagraph_capture_size: 64}\n")
    Path("base.yaml").write_text(
        BASE.replace("compilation:\n  decode_cudagraph_capture_request_sizes: [1, 2, 4]\n", "")
    )

    done = run("migrate", "spec.yaml")

    assert done.exit_code == 0
    assert done.stdout == (
        "extends: base.yaml # all else\n"
        "compilation: {max_decode_cudagraph_capture_requests: 64, max_prefill_cudagraph_capture_tokens: 64}\n"
    )
    Path("over.yaml").write_text("extends: spec.yaml\nserve: {port: 9000}\n")
    refused = run("migrate", "over.yaml")
    assert (refused.exit_code, "error[S225]" in refused.stderr, "--> spec.yaml:2:15" in refused.stderr) == (
        1,
        True,
        True,
    )


values = st.recursive(
    st.integers(0, 9) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
    max_leaves=6,
)
files = st.lists(st.dictionaries(st.sampled_from("abcd"), values, min_size=1), min_size=1, max_size=3)


@given(files)
def test_every_value_is_the_uppermost_and_has_its_place(texts: list[dict[str, Any]]) -> None:
    """Of lists and plain values the topmost file's; looked up one by one, without merging."""
    layers = [read_source(json.dumps(text, indent=1), f"{at}.yaml") for at, text in enumerate(texts)]

    source = layered(layers[0], tuple(reversed(layers[1:])))

    for path in paths_of(source.data):
        value = _at(source.data, path)
        if isinstance(value, dict | list):
            continue
        writer = next(layer for layer in layers if _decides(layer.data, path))
        assert value == _at(writer.data, path)
        assert source.place_of(path) == writer.place_of(path)


def _at(data: Any, path: SpecPath) -> Any:
    for step in path:
        data = data[step]
    return data


def _decides(data: Any, path: SpecPath) -> bool:
    """Whether a layer says what stands at ``path``: it writes the path, or something that is no mapping above it."""
    for step in path:
        if not isinstance(data, dict):
            return True
        if step not in data:
            return False
        data = data[step]
    return True


def test_a_preset_is_a_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: preset:qwen3-8b__h200__latency\nserve: {port: 9000}\n", encoding="utf-8")

    source = read_spec(str(path))

    assert (source.data["serve"]["port"], source.data["speculative"]["method"]) == (9000, "eagle3")
    assert source.place_of(("speculative", "method")).file == "preset:qwen3-8b__h200__latency"
    assert source.place_of(("serve", "port")).file == str(path)


def test_a_base_that_is_no_preset_is_told_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: preset:qwen3-8b__h200__latncy\n", encoding="utf-8")

    with pytest.raises(SpecError) as refused:
        read_spec(str(path))

    (finding,) = refused.value.diagnostics
    assert (finding.code, finding.place.file) == ("R014", str(path))
    assert "`preset:qwen3-8b__h200__latency`" in (finding.help or "")


def test_a_plan_says_which_file_wrote_each_value(folder: Path) -> None:
    (folder / "base.yaml").write_text("scheduler: {max_num_batched_tokens: 4096}\n")
    bases = "[preset:qwen3-30b-a3b-fp8__h200__throughput, base.yaml]"
    (folder / "spec.yaml").write_text(f"servespec: 1\nextends: {bases}\nscheduler: {{max_num_seqs: 100}}\n")
    done = run("plan", "spec.yaml", "--set", "model.max_model_len=4096", "--format", "json")
    resolved = json.loads(done.stdout)["resolved"]
    written = {path: (value["origin"], value["because"]) for path, value in resolved.items()}
    name = "preset:qwen3-30b-a3b-fp8__h200__throughput"
    line = read_spec(name).place_of(("speculative", "method")).range.start.line
    assert written["speculative.method"] == ("preset", f"set in `{name}`, line {line}")
    assert written["speculative.num_speculative_tokens"] == ("preset", f"set in `{name}`, line {line + 2}")
    assert written["scheduler.max_num_batched_tokens"] == ("spec", "set in `base.yaml`, line 1")
    assert written["scheduler.max_num_seqs"] == ("spec", "set in the spec, line 3")
    assert written["model.max_model_len"] == ("spec", "set by `--set model.max_model_len=4096`")
    assert written["engine.model_runner"][0] == "engine_default"


def test_a_plan_of_a_preset_says_so(folder: Path) -> None:
    done = run("plan", "preset:qwen3-30b-a3b-fp8__h200__throughput", "--format", "json")
    resolved = json.loads(done.stdout)["resolved"]
    assert {value["origin"] for value in resolved.values()} == {"preset", "derived", "engine_default"}

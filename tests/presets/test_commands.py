"""`presets`, `preset:NAME`, `init` and what a shell completes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app, starting
from servespec.presets.catalog import PresetGoal, machine_of, preset_names, preset_of, presets, without_cost
from servespec.presets.starting import GOAL_VALUES, starting_spec
from servespec.runtime import probe
from servespec.runtime.completion import mend_broken_word, spec_words
from servespec.runtime.probe import PresentGpu, this_machine
from servespec.runtime.spec_file import spec_diagnostics
from servespec.schema.modeline import MODELINE
from servespec.schema.source import read_source

pytestmark = pytest.mark.usefixtures("quiet_shell")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, answers: str | None = None) -> Any:
    return CliRunner().invoke(app, list(words), input=answers)


# presets


def test_list_is_an_array_of_all() -> None:
    found = json.loads(run("presets", "list", "--format", "json").stdout)

    assert [one["name"] for one in found] == list(preset_names())
    keys = {"name", "model", "gpu", "count", "goal", "basis", "measured_by", "summary", "evidence"}
    assert found[0].keys() == keys


def test_list_tells_our_measurements_from_those_of_others() -> None:
    rows = dict(line.split("  ") for line in run("presets", "list").stdout.splitlines() if not line.startswith(" "))

    assert rows["qwen3-30b-a3b-fp8__h200__throughput"] == "measured"
    assert rows["qwen3.8-27b__gb200__balanced"] == "measured by others"
    assert rows["qwen3-8b__h200__latency"] == "modelled"
    assert {name for name, basis in rows.items() if basis == "measured"} == {
        one.name for one in presets() if one.evidence.find("docs/measurements/2026-") >= 0
    }


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--gpu", "gb200"), {("gb200", 1), ("gb200", 4)}),
        (("--gpu", "gb200x4"), {("gb200", 4)}),
        (("--gpu", "rtx-pro-6000x2"), {("rtx-pro-6000", 2)}),
    ],
)
def test_list_filters_by_gpu(words: tuple[str, ...], wanted: set[tuple[str, int]]) -> None:
    found = json.loads(run("presets", "list", *words, "--format", "json").stdout)

    assert {(one["gpu"], one["count"]) for one in found} == wanted


def test_list_filters_by_goal_and_gpu() -> None:
    found = run("presets", "list", "--gpu", "gb200", "--goal", "latency").stdout
    assert run("presets", "list", "--gpu", "GB200", "--goal", "latency").stdout == found

    assert found.splitlines()[0] == "deepseek-v4-flash-dspark__gb200x4__latency  measured by others"
    assert len(found.splitlines()) == 2


def test_an_empty_list_says_what_to_do() -> None:
    done = run("presets", "list", "--gpu", "l4", "--format", "json")

    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert "servespec init" in done.stderr


@pytest.mark.parametrize("words", [("--gpu", "h2oo"), ("--goal", "fun"), ("--gpu", ""), ("--gpu", "x4")])
def test_a_filter_that_is_nothing_is_a_usage_error(words: tuple[str, ...]) -> None:
    done = run("presets", "list", *words)

    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("prefix", ["", "preset:"])
def test_show_prints_the_file(prefix: str) -> None:
    done = run("presets", "show", f"{prefix}qwen3-8b__h200__latency")

    assert done.stdout == preset_of("qwen3-8b__h200__latency").text


@pytest.mark.parametrize("words", [("presets", "show"), ("plan",), ("validate",), ("serve",)])
def test_an_unknown_preset_is_refused_with_the_nearest(words: tuple[str, ...]) -> None:
    done = run(*words, "preset:qwen3-8b__h200__latncy")

    assert done.exit_code == 1
    assert "error[R014]" in done.output
    assert "preset:qwen3-8b__h200__latency" in done.output


def test_a_part_of_a_name_tells_the_presets_that_have_it() -> None:
    done = run("presets", "show", "qwen3-8b__h200")

    said = " ".join(done.output.split())
    assert "did you mean `preset:qwen3-8b__h200__balanced` or `preset:qwen3-8b__h200__latency` or " in said


@pytest.mark.parametrize("command", ["plan", "validate", "serve", "migrate"])
def test_a_preset_without_its_prefix_is_told(command: str) -> None:
    done = run(command, "qwen3-8b__h200__latency")

    assert done.exit_code == 1
    assert "help: write `preset:qwen3-8b__h200__latency`" in done.output


@pytest.mark.parametrize("name", ["", "../catalog", "models", "catalog.py", "nothing-like-it"])
def test_only_presets_are_presets(name: str) -> None:
    assert "error[R014]" in run("plan", f"preset:{name}").output


def test_findings_of_a_preset_show_its_lines() -> None:
    done = run("plan", "preset:llama-3.3-70b__h200x2__balanced")

    assert "--> preset:llama-3.3-70b__h200x2__balanced:" in done.stderr
    assert "capture_tokens: 1536 #" in done.stderr


# init


def test_init_takes_the_preset_that_fits(folder: Path) -> None:
    done = run("init", "--model", "qwen/qwen3-8b", "--gpu", "h200", "--goal", "latency")
    written = (folder / "spec.yaml").read_text()
    preset = preset_of("qwen3-8b__h200__latency")

    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "wrote spec.yaml, from preset:qwen3-8b__h200__latency",
        "next: servespec plan spec.yaml",
        "for your editor: servespec schema spec > spec.schema.json",
    ]
    assert written.splitlines()[:2] == [MODELINE, "# From preset:qwen3-8b__h200__latency"]
    assert read_source(written.encode(), "x").data == read_source(preset.text.encode(), "x").data
    assert written.count("\n") == without_cost(preset.text).count("\n") + 2


def test_init_names_the_schema_once(folder: Path) -> None:
    (folder / "specs").mkdir()
    words = ("--model", "org/model", "--gpu", "h200", "--goal", "latency")
    first = run("init", "specs/one.yaml", *words)
    (folder / "specs/spec.schema.json").write_text("{}")
    second = run("init", "specs/two.yaml", *words)

    assert "for your editor: servespec schema spec > specs/spec.schema.json" in first.stderr
    assert second.stderr.splitlines()[1:] == ["next: servespec plan specs/two.yaml"]


@pytest.mark.parametrize("goal", GOAL_VALUES)
@pytest.mark.parametrize("gpu", ["h200", "rtx-pro-6000x2", "gb200x4", "cpu"])
@pytest.mark.parametrize("model", ["org/model", "./a folder: with 'marks' # and more", "on", "123", 'a"b\\c\nd'])
def test_what_init_writes_is_valid_strictly(model: str, gpu: str, goal: PresetGoal) -> None:
    made = starting_spec(model, *machine_of(gpu), goal)
    assert made is not None
    source = read_source(made.text.encode(), "spec.yaml")

    assert (made.preset, source.data["model"]["id"]) == (None, model)
    assert (source.data["hardware"]["gpu"], source.data["hardware"].get("count", 1)) == machine_of(gpu)
    assert [one.code for one in spec_diagnostics(source, allow_code=False)] == []
    assert made.text.startswith(f"{MODELINE}\n# For ")


def test_init_knows_the_short_names_of_presets() -> None:
    made = starting_spec("qwen3-8b", "b200", 1, PresetGoal.BALANCED)

    assert made is not None
    assert read_source(made.text.encode(), "spec.yaml").data["model"]["id"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("h200", ("h200", 1)),
        ("rtx-pro-6000x2", ("rtx-pro-6000", 2)),
        ("h200x10", ("h200", 10)),
        ("h200x0", ("h200x0", 1)),
        ("h200x123456", ("h200x123456", 1)),
        ("x2", ("", 2)),
        ("h200\nx2", ("h200\n", 2)),
    ],
)
def test_a_machine_is_a_device_and_a_count(text: str, machine: tuple[str, int]) -> None:
    assert machine_of(text) == machine


def test_what_init_writes_is_planned() -> None:
    run("init", "--model", "Qwen/Qwen3-8B", "--gpu", "h200x2", "--goal", "balanced")
    document = json.loads(run("plan", "spec.yaml", "--format", "json").stdout)

    assert {row["mode"] for row in document["coverage"]["decode"]} == {"FULL"}
    assert document["resolved"]["scheduler.max_num_seqs"]["value"] == 256


def test_init_writes_over_nothing_without_force(folder: Path) -> None:
    (folder / "spec.yaml").write_text("mine")
    words = ("init", "--model", "org/model", "--gpu", "h200", "--goal", "latency")
    refused = run(*words)

    assert (refused.exit_code, (folder / "spec.yaml").read_text()) == (2, "mine")
    assert "--force" in refused.stderr
    assert run(*words, "--force").exit_code == 0
    assert (folder / "spec.yaml").read_text().startswith(MODELINE)


def test_init_does_not_ask_where_nobody_answers(folder: Path) -> None:
    done = run("init", "--gpu", "h200", "--goal", "latency")

    assert (done.exit_code, list(folder.iterdir())) == (2, [])
    assert "--model" in done.stderr


def test_init_asks_for_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_is_terminal", lambda: True)
    monkeypatch.setattr(probe, "present_gpus", lambda: (PresentGpu("NVIDIA H200", 143771, (9, 0)),) * 2)
    done = run("init", answers="org/model\n\nlatency\n")
    data = read_source((folder / "spec.yaml").read_bytes(), "spec.yaml").data

    assert done.exit_code == 0, done.output
    assert "[h200x2]" in done.stderr
    assert (data["model"]["id"], data["hardware"]) == ("org/model", {"gpu": "h200", "count": 2})
    assert data["scheduler"]["max_num_seqs"] == GOAL_VALUES[PresetGoal.LATENCY].max_num_seqs


def test_init_takes_no_empty_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_is_terminal", lambda: True)
    done = run("init", "--gpu", "h200", "--goal", "latency", answers="  \norg/model\n")

    assert done.exit_code == 0, done.output
    assert done.stderr.count("Error: the answer is empty\n") == 1
    assert read_source((folder / "spec.yaml").read_bytes(), "spec.yaml").data["model"]["id"] == "org/model"


def test_init_asks_again_and_keeps_the_other_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_is_terminal", lambda: True)
    done = run("init", answers="org/model\nh20o\nh200x2\nfast\nprefill-only\nlatency\n")
    data = read_source((folder / "spec.yaml").read_bytes(), "spec.yaml").data

    assert done.exit_code == 0, done.output
    assert (data["model"]["id"], data["hardware"]) == ("org/model", {"gpu": "h200", "count": 2})
    assert re.findall(r"Error: ([^;\n]*)", done.stderr) == [
        "`h20o` is not in the device table",
        "it takes balanced, latency, throughput, variable-load, long-context, prefill-only, first-steps",
        "only presets are for `prefill-only`",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "h201", "--goal", "latency"), "device table"),
        (("--gpu", "h200", "--goal", "fun"), "it takes"),
        (("--gpu", "h200", "--goal", "prefill-only"), "only presets"),
    ],
)
def test_init_refuses_what_it_cannot_write(folder: Path, words: tuple[str, ...], said: str) -> None:
    done = run("init", "--model", "org/model", *words)

    assert (done.exit_code, list(folder.iterdir())) == (2, [])
    assert said in " ".join(done.stderr.split())


def test_init_says_where_it_cannot_write() -> None:
    done = run("init", "no/such/spec.yaml", "--model", "org/model", "--gpu", "h200", "--goal", "latency")

    assert done.exit_code == 2
    assert "no such file or directory" in done.stderr


def test_init_names_a_folder_from_the_specs_own(folder: Path) -> None:
    (folder / "models/mine").mkdir(parents=True)
    (folder / "specs").mkdir()
    run("init", "specs/a.yaml", "--model", "models/mine", "--gpu", "h200", "--goal", "latency")

    assert read_source((folder / "specs/a.yaml").read_bytes(), "a").data["model"]["id"] == "./../models/mine"


@pytest.mark.parametrize(
    ("gpus", "name"),
    [
        ((), ""),
        ((PresentGpu("NVIDIA H200", 143771, (9, 0)),), "h200"),
        ((PresentGpu("NVIDIA H200", 143771, (9, 0)),) * 8, "h200x8"),
        ((PresentGpu("NVIDIA Unheard", 1234, (9, 9)),), ""),
    ],
)
def test_this_machine(gpus: tuple[PresentGpu, ...], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "present_gpus", lambda: gpus)

    assert this_machine() == name


# Completion


def test_presets_and_spec_files_are_completed(folder: Path) -> None:
    (folder / "specs").mkdir()
    for name in ("a.yaml", "b.yml", "c.txt", ".hidden.yaml", "specs/inner.yaml"):
        (folder / name).touch()

    assert list(spec_words("preset:smol")) == ["preset:smollm2-135m__cpu__first-steps"]
    assert [word for word in spec_words("") if not word.startswith("preset:")] == ["a.yaml", "b.yml", "specs/"]
    assert list(spec_words("specs/")) == ["specs/inner.yaml"]
    assert list(spec_words("specs/in")) == ["specs/inner.yaml"]
    assert list(spec_words(".h")) == [".hidden.yaml"]
    assert list(spec_words("no/such/")) == []


@pytest.mark.parametrize(
    ("words", "at", "mended"),
    [
        ("servespec plan preset : smol", 4, ("servespec plan smol", "2")),
        ("servespec plan preset :", 3, ("servespec plan ", "2")),
        ("servespec plan preset : ", 4, ("servespec plan ", "2")),
        ("servespec plan spec : smol", 4, ("servespec plan spec : smol", "4")),
        ("servespec plan preset smol", 3, ("servespec plan preset smol", "3")),
        ("servespec", 1, ("servespec", "1")),
        ("", 0, ("", "0")),
    ],
)
def test_a_word_that_bash_broke_is_mended(words: str, at: int, mended: tuple[str, str]) -> None:
    environ = {"COMP_WORDS": words, "COMP_CWORD": str(at)}
    mend_broken_word(environ)

    assert (environ["COMP_WORDS"], environ["COMP_CWORD"]) == mended
    assert ("_SERVESPEC_AFTER_COLON" in environ) == (mended[0] != words)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("import --gpu h10", {"h100", "h100-nvl"}),
        ("plan --gpu h10", {"h100", "h100-nvl"}),
        ("init --gpu h10", {"h100", "h100-nvl"}),
        ("plan --against st", {"stock"}),
        ("explain scheduler.max_num_b", {"scheduler.max_num_batched_tokens"}),
        ("explain S20", {"S201", "S202", "S203", "S204", "S205", "S206", "S207", "S208", "S209"}),
        ("explain VLLM_LOGGING_L", {"VLLM_LOGGING_LEVEL"}),
    ],
)
def test_options_and_names_are_completed(typed: str, words: set[str], folder: Path) -> None:
    program = shutil.which("servespec", path=Path(sys.executable).parent)
    assert program is not None
    variables = {"_SERVESPEC_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"servespec {typed}"}
    done = subprocess.run([program], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)

    assert set(re.findall(r'"([^"]+)"', done.stdout)) == words, done


@pytest.mark.parametrize("command", ["plan", "validate", "serve", "bench"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_the_words(shell: str, command: str) -> None:
    typed = {"_TYPER_COMPLETE_ARGS": f"servespec {command} preset:smol"}
    variables = {
        "bash": {"COMP_WORDS": f"servespec {command} preset : smol", "COMP_CWORD": "4"},
        "zsh": typed,
        "fish": {**typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    program = shutil.which("servespec", path=Path(sys.executable).parent)
    assert program is not None
    done = subprocess.run(
        [program],
        env={**os.environ, "_SERVESPEC_COMPLETE": f"complete_{shell}", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "smollm2-135m__cpu__first-steps" in done.stdout, done.stderr
    # zsh wants its colons escaped; bash has typed the prefix already.
    assert ("preset" in done.stdout) == (shell != "bash")

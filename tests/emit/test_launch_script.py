"""The emitted script starts exactly what the plan says, whatever stands in its values."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from servespec.render.launch_script import launch_argv, launch_script
from servespec.runtime.gather import model_folders
from servespec.runtime.launch import LaunchCommand, engine_environment
from tests.emit.launches import fake_program, hostile_specs, launched, model_id, seen_by
from tests.plans import Json, spec_of

OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}
SHELLS = ["sh", *(["bash"] if shutil.which("bash") else [])]


def script_of(spec: Json) -> tuple[Json, str]:
    made = launched(spec)
    document = made.to_json()
    return document, launch_script(document, "spec.yaml", model_folders(made))


def surroundings(folder: Path) -> dict[str, str]:
    """An environment in which the programs of ``folder`` come first."""
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}


def run(script: str, folder: Path, shell: str = "sh", **variables: str) -> "subprocess.CompletedProcess[str]":
    path = folder / "run.sh"
    path.write_text(script, encoding="utf-8")
    environment = {**surroundings(folder), **variables}
    return subprocess.run([shell, str(path)], env=environment, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("shell", SHELLS)
@given(spec=hostile_specs())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_engine_gets_the_argv_and_environment_of_the_plan(shell: str, spec: Json, tmp_path: Path) -> None:
    """As `servespec serve` makes them, but for what it adds for itself."""
    document, script = script_of(spec)
    seen = fake_program(tmp_path, "vllm")
    of_the_shell = {"VLLM_ATTENTION_BACKEND": "X", "VLLM_API_KEY": "k", "PYTHONINSPECT": "1", "KEPT": "a\nVLLM_B=c"}

    done = run(script, tmp_path, shell, **of_the_shell)

    assert (done.returncode, done.stderr) == (0, "")
    argv, environment = seen_by(seen)
    assert argv == document["launch"]["argv"]
    assert without_the_shells(environment) == served_environment(document, tmp_path, of_the_shell)


def served_environment(document: Json, folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    command = LaunchCommand(argv=("vllm",), env=document["launch"]["env"], host="", port=1, log_path=folder / "log")
    served = engine_environment(command, {**surroundings(folder), **variables})
    del served["PYTHONUNBUFFERED"]
    return served


def without_the_shells(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in OF_THE_SHELL}


@given(spec=hostile_specs())
@settings(max_examples=60)
def test_the_words_are_those_of_the_plan(spec: Json) -> None:
    document = launched(spec).to_json()
    text = launch_argv(document)

    assert json.loads(text) == document["launch"]["argv"]
    assert text.count("\n") == 1


def test_the_script_becomes_the_engine(tmp_path: Path) -> None:
    """A signal to the process that was started reaches the engine."""
    _, script = script_of(spec_of("qwen3-8b", "h200"))
    (tmp_path / "vllm").write_text("#!/bin/sh\necho $$\n")
    (tmp_path / "vllm").chmod(0o755)
    (tmp_path / "run.sh").write_text(script)

    words = ["sh", str(tmp_path / "run.sh")]
    started = subprocess.Popen(words, env=surroundings(tmp_path), stdout=subprocess.PIPE, text=True)

    assert started.communicate(timeout=60)[0] == f"{started.pid}\n"


def test_a_model_folder_that_is_not_there_is_said_before_the_engine_starts(tmp_path: Path) -> None:
    _, script = script_of(spec_of("qwen3-8b", "h200"))
    seen = fake_program(tmp_path, "vllm")

    done = run(script.replace(model_id(), "models/gone"), tmp_path)

    assert (done.returncode, seen.exists()) == (1, False)
    assert done.stderr == "models/gone: there is no such folder; run this in the folder of the spec\n"


def test_what_it_says_of_itself() -> None:
    made = launched(spec_of("qwen3-8b", "h200", engine={"version": "0.33.0", "lowering": "extension"}))
    script = launch_script(made.to_json(), "/data/a\nrm -rf b.yaml", ())
    comment = [line for line in script.splitlines() if line.startswith("#")]

    assert "# The launch of a?rm -rf b.yaml as servespec" in script
    assert any("`servespec serve` does" in line for line in comment)
    assert any("Its workers load the extension of servespec" in line for line in comment)
    assert "there is no such folder" not in script


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck (the dev extra has it)")
@given(specs=st.lists(hostile_specs(), min_size=8, max_size=8))
@settings(
    max_examples=15,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_shellcheck_finds_nothing(specs: list[Json], tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.sh" for number in range(len(specs))]
    for path, spec in zip(paths, specs, strict=True):
        path.write_text(script_of(spec)[1], encoding="utf-8")

    done = subprocess.run(["shellcheck", "--norc", *paths], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")

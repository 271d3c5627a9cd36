"""Every golden case: the plan and its text, or the findings that refuse the spec.

`pytest --update-golden` rewrites the files; the diff is then to be read.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import SpecError
from servespec.render.diagnostics import text as findings_text
from servespec.render.plan_text import plan_text
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import read_spec
from servespec.schema.source import excerpt_text
from tests.golden.cases import Case, every_case, golden_json

pytestmark = pytest.mark.usefixtures("quiet_shell")

SPEC = "spec.yaml"
CASES = every_case()
THROUGH_THE_COMMAND_LINE = (
    "cpu",
    "eagle3-h200-five-fields",
    "errors-does-not-fit",
    "errors-names-and-types",
    "errors-shell-variable",
    "errors-engine-version",
    "set-on-the-command-line",
)


def names(cases: tuple[Case, ...]) -> list[str]:
    return [case.name for case in cases]


def options_of(case: Case) -> Options:
    """The words of the case as the command line reads them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--allow-code", action="store_true")
    parser.add_argument("--allow-unverified-engine", action="store_true")
    parser.add_argument("--model-config", type=Path)
    parser.add_argument("--draft-config", type=Path)
    parser.add_argument("--measured", type=Path, action="append", default=[])
    read = parser.parse_args(case.options)
    return Options(
        settings=tuple(read.set),
        allow_code=read.allow_code,
        allow_unverified_engine=read.allow_unverified_engine,
        model_config=read.model_config,
        draft_config=read.draft_config,
        measured=tuple(read.measured),
        with_stock=True,
    )


def outcome_of(case: Case) -> Plan | SpecError:
    """From the case's own folder, so that every place in it is `spec.yaml`."""
    options = options_of(case)
    try:
        return compile_spec(compile_request(read_spec(SPEC, options.settings), options))
    except SpecError as error:
        return error


def files_of(outcome: Plan | SpecError) -> dict[str, str]:
    """What the folder should hold beside the spec."""
    if isinstance(outcome, SpecError):
        texts = {SPEC: excerpt_text(Path(SPEC).read_bytes())}
        findings = [finding.to_json() for finding in outcome.diagnostics]
        return {"errors.txt": findings_text(findings, texts, color=False)}
    document = outcome.to_json()
    return {"plan.json": golden_json(document), "plan.txt": plan_text(document)}


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_case(case: Case, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(case.folder)
    for name, value in case.shell.items():
        monkeypatch.setenv(name, value)

    files = files_of(outcome_of(case))
    if request.config.getoption("--update-golden"):
        rewrite(case.folder, files)

    golden = {path.name: path.read_text(encoding="utf-8") for path in case.folder.iterdir() if path.name != SPEC}
    assert files == golden


def rewrite(folder: Path, files: dict[str, str]) -> None:
    for path in folder.iterdir():
        if path.name != SPEC:
            path.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def test_a_folder_holds_a_plan_or_errors() -> None:
    kinds = {frozenset(path.name for path in case.folder.iterdir()) for case in CASES}

    assert kinds == {frozenset({SPEC, "plan.json", "plan.txt"}), frozenset({SPEC, "errors.txt"})}


@pytest.mark.parametrize("name", THROUGH_THE_COMMAND_LINE)
def test_the_command_prints_the_golden_files(name: str) -> None:
    case = next(case for case in CASES if case.name == name)

    text = run(case, "text")
    golden = {path.name: path.read_text(encoding="utf-8") for path in case.folder.iterdir()}

    if case.refused:
        assert (text.stdout, text.stderr) == ("", golden["errors.txt"])
        assert text.returncode in (1, 3, 4)
    else:
        assert (text.stdout, text.returncode) == (golden["plan.txt"], 0)
        assert golden_json(json.loads(run(case, "json").stdout)) == golden["plan.json"]


def run(case: Case, form: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "servespec", "plan", SPEC, "--against", "stock", "--format", form, *case.options]
    environment = {**os.environ, **case.shell}
    return subprocess.run(words, cwd=case.folder, env=environment, capture_output=True, text=True, timeout=60)

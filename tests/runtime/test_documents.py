"""Files by their kind, found from what they hold, and what is wrong with each."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.compiler.comparison import compared
from servespec.compiler.json_text import json_text
from servespec.runtime.document_kinds import Kind, schemas
from servespec.runtime.documents import document_findings, read_document
from servespec.runtime.record import Measured, record_of
from tests.golden.cases import every_case
from tests.plans import REPOSITORY, Json, compiled, spec_of

pytestmark = pytest.mark.usefixtures("quiet_shell")

MEASUREMENTS = REPOSITORY / "docs" / "measurements"
BENCH = MEASUREMENTS / "2026-11-30-h200-bench-8b-k3.json"


def written() -> dict[Kind, Json]:
    """One document of each kind that can be made here."""
    plan = compiled(spec_of("qwen3-8b", "h200"))
    document = plan.to_json()
    return {
        Kind.PLAN: document,
        Kind.RECORD: record_of(plan, Measured(started=0.0)),
        Kind.COMPARISON: compared(document, document, ("a", "b")),
        Kind.BENCH: json.loads(BENCH.read_text()),
    }


def findings(text: str, name: str = "file.yaml") -> tuple[Kind, list[str]]:
    document = read_document(text.encode(), name)
    return document.kind, [one.code for one in document_findings(document, allow_code=False)]


@pytest.mark.parametrize("kind", written())
def test_what_servespec_writes_is_known_and_valid(kind: Kind) -> None:
    assert findings(json_text(written()[kind])) == (kind, [])


@pytest.mark.parametrize("kind", written())
def test_one_that_lost_a_key_is_still_that_and_not_valid(kind: Kind) -> None:
    document = written()[kind]
    for lost in schemas()[kind]["required"]:
        rest = {key: value for key, value in document.items() if key != lost}
        found, codes = findings(json.dumps(rest))
        # A record without its measurement is the plan that it holds, but for the columns beside the planned ones.
        assert found is (Kind.PLAN if (kind, lost) == (Kind.RECORD, "measured") else kind)
        assert "R017" in codes


@pytest.mark.parametrize(
    "case", [case for case in every_case() if case.name != "errors-syntax"], ids=lambda case: case.name
)
def test_a_spec_is_never_taken_for_anything_else(case: Any) -> None:
    raw = (case.folder / "spec.yaml").read_bytes()
    document = read_document(raw, "spec.yaml")

    assert document.kind is Kind.SPEC
    if not case.refused:
        assert read_document(json.dumps(document.data).encode(), "spec.json").kind is Kind.SPEC


@pytest.mark.parametrize(
    ("text", "kind", "codes"),
    [
        ("max-num-seqs: 8\nmodel: org/m\n", Kind.CONFIG, []),
        ("max-num-seqs: 8\n", Kind.CONFIG, []),
        ("max-num-seqs: x\nno-such: 3\n", Kind.SPEC, ["S101", "S101", "S101", "S102", "S102"]),
        ("max-num-seqs: x\nmax-model-len: 8\nno-such: 3\n", Kind.CONFIG, ["S305", "S302"]),
        ("model: {model_id: org/m, base_args: [--no-such]}\n", Kind.RECIPE, ["S302"]),
        ("model: {id: org/m}\nhardware: {gpu: h200}\n", Kind.SPEC, ["S101"]),
        ("{}", Kind.SPEC, ["S101", "S101", "S101"]),
    ],
)
def test_files_written_by_hand(text: str, kind: Kind, codes: list[str]) -> None:
    found, said = findings(text)

    assert (found, sorted(said)) == (kind, sorted(codes))


def test_many_files_of_all_kinds_at_once(tmp_path: Path) -> None:
    names = []
    for kind, document in written().items():
        path = tmp_path / f"{kind.name}.json"
        path.write_text(json_text(document))
        names.append(str(path))
    config = tmp_path / "config.yaml"
    config.write_text("max-num-seqs: 8\n")
    spec = REPOSITORY / "tests" / "golden" / "cases" / "no-drafts-h200" / "spec.yaml"

    done = CliRunner().invoke(app, ["validate", *names, str(config), str(spec), str(spec)])

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "1 plan, 1 record, 1 comparison, 1 bench, 1 engine config, 2 specs: all are valid\n"


@pytest.mark.parametrize("command", ["plan", "migrate", "serve"])
def test_a_file_of_another_kind_is_named(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what takes it, in place of what its keys would be in a spec."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("max-num-seqs: 8\nmodel: org/m\n")
    for kind, document in written().items():
        Path(f"{kind.name}.json").write_text(json_text(document))

    files = {"PLAN.json": "plan", "RECORD.json": "record", "BENCH.json": "bench", "config.yaml": "engine config"}
    told = [CliRunner().invoke(app, [command, name]) for name in files]

    assert [(one.exit_code, one.stdout, one.stderr.count("error[")) for one in told] == [(1, "", 1)] * 4
    assert [one.stderr.splitlines()[0].partition("kind ")[2] for one in told] == list(files.values())
    assert all("error[R023]: the file is no spec" in one.stderr for one in told)
    assert "`servespec plan SPEC --against FILE` compares a spec with it" in " ".join(told[0].stderr.split())
    assert "`servespec import --gpu NAME FILE` makes a spec of it" in told[3].stderr


def test_a_fault_in_a_plan_says_where(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    document = written()[Kind.PLAN]
    document["runners"][0]["graphs"] = "many"
    path.write_text(json.dumps(document))

    done = CliRunner().invoke(app, ["validate", str(path), "--format", "json"])

    assert done.exit_code == 1
    found = json.loads(done.stdout)["diagnostics"]
    assert [(one["code"], one["file"]) for one in found] == [("R017", str(path))]
    assert found[0]["message"] == "the file is no plan: $.runners[0].graphs: 'many' is not of type 'integer'"


def test_a_folder_is_not_searched(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", str(tmp_path)])

    assert done.exit_code == 1
    assert "error[R008]" in done.stdout
    assert f"{tmp_path}/*.yaml" in done.stdout.replace("\n          ", "")

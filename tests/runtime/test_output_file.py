"""What a run writes to `-o`: nothing in the place of an earlier result where nothing was measured."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from servespec.cli import app
from servespec.runtime import step_times
from servespec.runtime.measured_launch import MeasuredLaunch
from servespec.runtime.step_times_document import has_times
from servespec.runtime.verification_document import has_replayed
from tests.golden.cases import FOLDER
from tests.plans import Json
from tests.step_curves import roofline, step_document

pytestmark = pytest.mark.usefixtures("quiet_shell")

SPEC = str(FOLDER / "eagle3-h200-five-fields" / "spec.yaml")
NOTHING = step_document({}, roofline(), (7,), ())
SOMETHING = step_document({}, roofline(), (7,), (1, 2))


def measuring(document: Json) -> Any:
    outcome = SimpleNamespace(diagnostics=(), exit_code=5)
    return lambda *_: MeasuredLaunch(outcome, document, has_times(document))  # type: ignore[arg-type]


@pytest.mark.parametrize("earlier", [None, "an earlier curve"])
@pytest.mark.parametrize("command", ["profile", "steps"])
def test_a_run_that_measured_nothing_replaces_nothing(
    command: str, earlier: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "curve.json"
    if earlier is not None:
        output.write_text(earlier, encoding="utf-8")
    monkeypatch.setattr(step_times, "time_steps", measuring(NOTHING))

    done = CliRunner().invoke(app, [command, SPEC, "-o", str(output)])

    assert done.exit_code == 5
    kept = "was not written" if earlier is None else "was left as it was"
    assert f"nothing was measured: `{output}` {kept}" in done.stderr
    assert (output.read_text(encoding="utf-8") if output.exists() else None) == earlier


@pytest.mark.parametrize("command", ["profile", "steps"])
def test_one_size_is_a_result(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "curve.json"
    output.write_text("an earlier curve", encoding="utf-8")
    monkeypatch.setattr(step_times, "time_steps", measuring(SOMETHING))

    CliRunner().invoke(app, [command, SPEC, "-o", str(output)])

    assert "an earlier curve" not in output.read_text(encoding="utf-8")


def test_a_replay_counts_from_its_first_graph() -> None:
    rows = [{"graphs": 3, "not_replayed": 3}]
    assert not has_replayed({"rows": []})
    assert not has_replayed({"rows": rows})
    assert has_replayed({"rows": [*rows, {"graphs": 3, "not_replayed": 2}]})

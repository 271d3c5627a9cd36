"""A folder a migration: `spec.yaml`, what `migrate` makes of it, and what it says of the graphs.

`pytest --update-golden` rewrites the files; the diff is then to be read.
"""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from servespec.cli import app

pytestmark = pytest.mark.usefixtures("quiet_shell")

FOLDER = Path(__file__).resolve().parent / "migrations"
CASES = sorted(path.name for path in FOLDER.iterdir())
MIGRATED, CHANGES = "migrated.yaml", "changes.txt"


@pytest.mark.parametrize("name", CASES)
def test_migration(name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(FOLDER / name)

    done = CliRunner().invoke(app, ["migrate", "spec.yaml"])
    said = done.stderr[done.stderr.index("spec.yaml:\n") :]
    if request.config.getoption("--update-golden"):
        Path(MIGRATED).write_text(done.stdout, encoding="utf-8")
        Path(CHANGES).write_text(said, encoding="utf-8")

    assert done.exit_code == 0
    assert done.stdout == Path(MIGRATED).read_text(encoding="utf-8")
    assert said == Path(CHANGES).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_what_was_migrated_is_a_spec_with_nothing_left_to_migrate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER / name)

    again = CliRunner().invoke(app, ["migrate", MIGRATED])

    assert (again.exit_code, again.stdout) == (0, Path(MIGRATED).read_text(encoding="utf-8"))
    assert again.stderr == f"{MIGRATED}: nothing to migrate\n"
    assert CliRunner().invoke(app, ["migrate", "--check", "spec.yaml"]).exit_code == 1
    assert CliRunner().invoke(app, ["migrate", "--check", MIGRATED]).exit_code == 0


@pytest.mark.parametrize("name", CASES)
def test_in_place_it_writes_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = FOLDER / name / "moving.yaml"
    shutil.copy(FOLDER / name / "spec.yaml", spec)
    spec.chmod(0o640)
    monkeypatch.chdir(FOLDER / name)
    try:
        done = CliRunner().invoke(app, ["migrate", "--write", "moving.yaml"])
        left = spec.read_text(encoding="utf-8"), spec.stat().st_mode & 0o777
    finally:
        spec.unlink()

    assert (done.exit_code, done.stdout) == (0, "")
    assert left == ((FOLDER / name / MIGRATED).read_text(encoding="utf-8"), 0o640)

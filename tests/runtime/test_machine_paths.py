"""What is made to be shared names no folder that only this machine has."""

from pathlib import Path

import pytest

from servespec.runtime.machine_paths import shown_command, without_machine_paths


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current folder, two below a home."""
    here = tmp_path / "me" / "work"
    here.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(here)
    return here


def test_a_command_names_files_from_the_current_folder_or_by_their_name(folders: Path) -> None:
    words = ["servespec", "bench", f"{folders}/specs/a b.yaml", "--arms", "stock,/data/c.yaml", "-o", "../out.json"]
    settings = ["--set", "model.id=/models/qwen", "--set=serve.host=::", "--record", f"{folders.parent}/logs", "/"]

    assert shown_command([*words, *settings]) == (
        "servespec bench 'specs/a b.yaml' --arms stock,c.yaml -o ../out.json"
        " --set model.id=qwen --set=serve.host=:: --record logs /"
    )


def test_a_document_names_no_folder_of_the_machine(folders: Path, tmp_path: Path) -> None:
    home, records = folders.parent, tmp_path / "records" / "7"
    document = {
        "folder": str(records),
        "diagnostics": [{"file": f"{records}/engine.log", "message": f"see `{home}/x`, {folders}/y and ({folders})"}],
        "count": 3,
        "kept": [f"{home}y/x", f"/other{home}/x", "/v1/models", f"http://host{home}/x", None],
    }

    shown = without_machine_paths(document, records)

    assert shown == {
        "folder": "7",
        "diagnostics": [{"file": "7/engine.log", "message": "see `~/x`, y and (.)"}],
        "count": 3,
        "kept": document["kept"],
    }


def test_a_folder_of_records_below_the_current_one_is_named_from_there(folders: Path) -> None:
    assert without_machine_paths([str(folders / "logs" / "a" / "log"), "logs/a"], Path("logs/a")) == [
        "logs/a/log",
        "logs/a",
    ]


def test_a_home_that_is_the_root_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")

    assert without_machine_paths("/data/x") == "/data/x"

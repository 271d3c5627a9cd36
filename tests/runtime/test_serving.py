"""What a launch is made of: the engine's environment."""

import os
from pathlib import Path
from typing import Any

import pytest

from servespec.runtime.serving import serving_of
from tests.plans import compiled, spec_of


@pytest.fixture(autouse=True)
def at_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servespec.runtime.serving._problems", lambda *_: ())
    monkeypatch.delenv("PYTHONPATH", raising=False)


def environment_of(folder: Path, **engine: Any) -> dict[str, str]:
    spec = spec_of("qwen3-8b", "h200", engine={"version": "0.33.0", **engine})
    return dict(serving_of(compiled(spec), folder).command.env)


@pytest.mark.parametrize("lowering", ["none", "legacy", "extension"])
def test_every_lowering_names_its_record_folder_and_the_plug_in(lowering: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path, lowering=lowering)

    assert environment["SERVESPEC_RECORD_FOLDER"] == str(tmp_path)
    (entry_points,) = Path(environment["PYTHONPATH"]).glob("*.dist-info/entry_points.txt")
    assert "vllm.stat_logger_plugins" in entry_points.read_text(encoding="utf-8")
    assert "SERVESPEC_KEEP_STATISTICS" not in environment


def test_a_path_of_the_shell_is_kept_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")

    first, last = environment_of(tmp_path)["PYTHONPATH"].split(os.pathsep)

    assert (Path(first).name, last) == ("engine_plugin", "/mine")


def test_statistics_that_are_off_load_no_plug_in(tmp_path: Path) -> None:
    environment = environment_of(tmp_path, args={"cudagraph_metrics": False})

    assert "PYTHONPATH" not in environment


def test_statistics_that_the_spec_asks_for_stay_in_the_engines_log(tmp_path: Path) -> None:
    assert environment_of(tmp_path, args={"cudagraph_metrics": True})["SERVESPEC_KEEP_STATISTICS"] == "1"

"""What is taken out of a wheel, without fetching one."""

import zipfile
from pathlib import Path

import pytest
from fetch_engines import fetch, main, unpack_text

MEMBERS = {
    "vllm/__init__.py": True,
    "vllm/model_executor/configs/E=8.json": True,
    "vllm/_C.abi3.so": False,
    "vllm/static/app.js": False,
    "vllm-9.9.9.dist-info/METADATA": True,
    "vllm-9.9.9.dist-info/entry_points.txt": True,
    "vllm-9.9.9.dist-info/RECORD": False,
    "vllm/data/METADATA": False,
}


def test_only_text_is_unpacked(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in MEMBERS:
            archive.writestr(name, "x")

    count = unpack_text(wheel, tmp_path / "out")

    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {name for name, is_text in MEMBERS.items() if is_text}
    assert count == len(found)


def test_a_version_that_is_there_is_not_fetched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vllm-9.9.9").mkdir()

    assert fetch("9.9.9", tmp_path) == tmp_path / "vllm-9.9.9"
    assert capsys.readouterr().out == "vllm 9.9.9: already in vllm-9.9.9\n"


def test_help_names_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])

    assert ended.value.code == 0
    assert "Put the text of vLLM wheels under" in capsys.readouterr().out

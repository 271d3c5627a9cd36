"""Files that are there whole or not at all."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servespec.runtime.private_file import rewrite, write_private, write_whole


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(("write", "mode"), [(write_private, 0o600), (write_whole, 0o644)])
def test_a_file_takes_the_place_of_another_with_its_own_permissions(
    write: Callable[[Path, str], None], mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "file.json"
    path.write_text("before")
    path.chmod(0o640)

    write(path, "é\n")

    assert (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777) == ("é\n", mode)
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    path.write_text("before")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))

    with pytest.raises(OSError, match="full"):
        write_whole(path, "after")

    assert path.read_text() == "before"


def test_a_file_that_is_rewritten_keeps_its_permissions_and_its_link(tmp_path: Path) -> None:
    path, link = tmp_path / "spec.yaml", tmp_path / "link.yaml"
    path.write_bytes(b"before")
    path.chmod(0o664)
    link.symlink_to(path)

    rewrite(link, b"after\r\n")

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"after\r\n", 0o664)
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, path]

"""Files that are there whole or not at all."""

import os
import resource
import signal
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


@pytest.mark.parametrize("write", [write_private, write_whole])
def test_what_cannot_be_written_leaves_no_part_of_it(write: Callable[[Path, str], None], tmp_path: Path) -> None:
    """As of a record whose place is taken; a full disk is alike."""
    (tmp_path / "record.json").mkdir()

    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "record.json", "{}")

    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_signal_amid_the_writing_leaves_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "spec.yaml").write_text("earlier")
    monkeypatch.setattr("os.fchmod", interrupted)

    with pytest.raises(KeyboardInterrupt):
        rewrite(tmp_path / "spec.yaml", b"later")

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("spec.yaml", "earlier")]


def test_a_full_disk_leaves_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("earlier")
    # The system's own limit on a file's size stands for a disk that is full.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_private(tmp_path / "record.json", "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("record.json", "earlier")]

"""Put the text of vLLM wheels under ``.engines/``, where contract tests and tools read it.

    python tools/fetch_engines.py [VERSION ...]

``$SERVESPEC_ENGINES`` names another folder.  Only Python and JSON files and the distribution's metadata are
unpacked; the wheel itself (about 330 MB) goes away afterwards.  A version that is there already is skipped.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ENGINES = Path(os.environ.get("SERVESPEC_ENGINES", Path(__file__).resolve().parent.parent / ".engines"))
VERSIONS = ("0.32.0", "0.33.0")

# The wheel is read, never run, so any machine may ask for the one of Linux.
_GLIBC_TAGS = ("1", "2014", "_2_28", "_2_31", "_2_34", "_2_35")
_PLATFORMS = tuple(f"manylinux{glibc}_x86_64" for glibc in _GLIBC_TAGS)
_TEXT_SUFFIXES = frozenset({".py", ".json"})
_METADATA_NAMES = frozenset({"METADATA", "entry_points.txt"})


def fetch(version: str, engines: Path = ENGINES) -> Path:
    """The folder with the text of one version, downloaded where it is absent."""
    target = engines / f"vllm-{version}"
    if target.is_dir():
        print(f"vllm {version}: already in {target.name}")
        return target
    engines.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=engines) as scratch:
        print(f"vllm {version}: downloading (about 330 MB)", flush=True)
        wheel = _downloaded(version, Path(scratch))
        unpacked = Path(scratch) / "text"
        count = unpack_text(wheel, unpacked)
        unpacked.rename(target)
    print(f"vllm {version}: {count} files in {target.name}")
    return target


def unpack_text(wheel: Path, target: Path) -> int:
    """Unpack the files that are read; how many they were."""
    with zipfile.ZipFile(wheel) as archive:
        names = list(_text_names(archive.namelist()))
        for name in names:
            archive.extract(name, target)
    return len(names)


def _text_names(names: list[str]) -> Iterator[str]:
    for name in names:
        path = PurePosixPath(name)
        is_metadata = path.parent.suffix == ".dist-info" and path.name in _METADATA_NAMES
        if path.suffix in _TEXT_SUFFIXES or is_metadata:
            yield name


def _downloaded(version: str, folder: Path) -> Path:
    """The wheel of the CUDA build; ``pip`` says what went wrong where something does."""
    platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--python-version", "3.12", "--implementation", "cp", "--abi", "abi3", "--abi", "cp312"]
    subprocess.run([*command, *platforms, "--dest", str(folder), f"vllm=={version}"], check=True)
    return next(folder.glob("vllm-*.whl"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), metavar="VERSION")
    for version in parser.parse_args(arguments).versions:
        try:
            fetch(version)
        except subprocess.CalledProcessError as failure:
            print(f"vllm {version}: pip ended with {failure.returncode}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

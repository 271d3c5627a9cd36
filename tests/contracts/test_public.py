"""What may be imported by name, and what a start may load."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import servespec
from tests.plans import REPOSITORY

PACKAGE = REPOSITORY / "servespec"


def test_the_package_has_one_public_name() -> None:
    assert servespec.__all__ == ["__version__"]
    assert servespec.__version__


def listing_modules() -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
                 if isinstance(target, ast.Name)]  # fmt: skip
        if "__all__" in names:
            found.append(".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("name", listing_modules())
def test_public_lists_are_sorted_and_true(name: str) -> None:
    module = importlib.import_module(name)

    assert list(module.__all__) == sorted(module.__all__)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_says_what_it_owns(path: Path) -> None:
    source = path.read_text(encoding="utf-8")

    assert not source.strip() or ast.get_docstring(ast.parse(source))


def loaded_by(*words: str) -> set[str]:
    """The top-level packages that a command loads."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "servespec", *words],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


HEAVY = {"vllm", "torch", "jsonschema"}


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by("--help")

    assert "typer" in loaded
    assert loaded & (HEAVY | {"ruamel", "pydantic"}) == set()


def test_validate_loads_no_engine_and_no_json_schema() -> None:
    loaded = loaded_by("validate", "tests/golden/cases/no-drafts-h200/spec.yaml")

    assert {"pydantic", "ruamel"} <= loaded
    assert loaded & HEAVY == set()


def test_plan_loads_no_engine() -> None:
    loaded = loaded_by("plan", "tests/golden/cases/no-drafts-h200/spec.yaml")

    assert loaded & HEAVY == set()

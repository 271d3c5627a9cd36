"""Imports go one way, the compiler is pure, and only the runtime knows the engine."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plans import REPOSITORY

PACKAGE = REPOSITORY / "servespec"
FOUNDATION = {"units", "provenance", "diagnostics"}

# The parts of the package that each part may import, besides itself and the version in the package's root.
MAY_IMPORT: dict[str, set[str]] = {
    "units": set(),
    "provenance": {"units"},
    "diagnostics": {"units"},
    "schema": FOUNDATION,
    "compiler": FOUNDATION | {"schema"},
    "presets": FOUNDATION | {"schema"},
    "runtime": FOUNDATION | {"schema", "compiler", "presets"},
    # Rendering says what the runtime saw; the runtime never renders.
    "render": FOUNDATION | {"schema", "compiler", "runtime"},
    "cli": FOUNDATION | {"schema", "compiler", "runtime", "presets", "render"},
    "__init__": set(),
    "__main__": {"cli"},
}
ENGINE = {"vllm", "torch"}
IMPURE = {
    "os", "pathlib", "time", "subprocess", "socket", "random", "datetime", "shutil", "tempfile", "glob", "io", "sys",
    "urllib", "http", "threading", "multiprocessing", "ctypes", "secrets", "uuid", "locale", "platform",
}  # fmt: skip
IMPURE_CALLS = {"open", "input", "print", "exec", "eval"}
READ_YAML = {"schema/source.py", "schema/dump.py"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, at any depth; `from servespec import x` as `servespec.x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "servespec" else (module,)


def read(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_part_is_known() -> None:
    assert {part_of(path) for path in modules()} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_follow_the_arrows(path: Path) -> None:
    part = part_of(path)
    allowed = MAY_IMPORT[part] | {part, "__version__"}

    own = {name.split(".")[1] for name in imports(read(path)) if name.startswith("servespec.")}

    assert own <= allowed


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_only_the_runtime_imports_the_engine_and_only_when_needed(path: Path) -> None:
    tree = read(path)
    anywhere = {name.split(".")[0] for name in imports(tree)} & ENGINE
    at_module_level = {name.split(".")[0] for name in top_level_imports(tree)} & ENGINE

    assert not anywhere or part_of(path) == "runtime"
    # What runs inside the engine's own processes may.
    assert not at_module_level or name_of(path).startswith("runtime/vllm/")


def top_level_imports(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(ast.Module([node], []))


@pytest.mark.parametrize("path", [p for p in modules() if part_of(p) == "compiler"], ids=name_of)
def test_the_compiler_is_pure(path: Path) -> None:
    tree = read(path)
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}

    assert {name.split(".")[0] for name in imports(tree)} & IMPURE == set()
    assert calls & IMPURE_CALLS == set()


@pytest.mark.parametrize("path", [p for p in modules() if part_of(p) == "schema"], ids=name_of)
def test_the_schema_reads_no_files_and_starts_nothing(path: Path) -> None:
    assert {name.split(".")[0] for name in imports(read(path))} & (IMPURE - {"io"}) == set()


def test_two_modules_alone_know_yaml() -> None:
    users = {name_of(path) for path in modules() if any(name.startswith("ruamel") for name in imports(read(path)))}

    assert users == READ_YAML


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {module_name(path): set(own_modules(read(path))) for path in modules()}
    done: set[str] = set()

    def visit(name: str, on_the_way: tuple[str, ...]) -> None:
        assert name not in on_the_way, " -> ".join((*on_the_way, name))
        if name in done:
            return
        for below in graph.get(name, ()):
            visit(below, (*on_the_way, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def own_modules(tree: ast.Module) -> Iterator[str]:
    """The modules of the package that are imported when a module is loaded."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("servespec."):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else str(node.module)


def is_module(name: str) -> bool:
    path = REPOSITORY.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_nothing_catches_everything(path: Path) -> None:
    caught = {
        ast.unparse(node.type) if node.type else "everything"
        for node in ast.walk(read(path))
        if isinstance(node, ast.ExceptHandler)
    }

    assert caught & {"everything", "Exception", "BaseException"} == set()

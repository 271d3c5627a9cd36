"""The modules of an unpacked wheel, parsed on demand, and where each name in them comes from."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """One parsed file. ``path`` is relative to the wheel's root, as provenance quotes it."""

    path: str
    tree: ast.Module
    names: dict[str, ast.stmt] = field(default_factory=dict)

    def statements(self) -> Iterator[ast.stmt]:
        """Module-level statements, those under an ``if`` included."""
        yield from _flattened(self.tree.body)


def _flattened(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _flattened(statement.body)
            yield from _flattened(statement.orelse)


class Engine:
    """An unpacked wheel: ``root`` holds the package folder ``vllm``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}

    def module(self, path: str) -> Module:
        found = self.module_or_none(path)
        assert found is not None, f"{path} is not in {self.root}"
        return found

    def module_or_none(self, path: str) -> Module | None:
        if path not in self._modules:
            file = self.root / path
            self._modules[path] = _parsed(path, file) if file.is_file() else None
        return self._modules[path]

    def module_named(self, dotted: str) -> Module | None:
        base = dotted.replace(".", "/")
        return self.module_or_none(f"{base}.py") or self.module_or_none(f"{base}/__init__.py")

    def paths(self, pattern: str) -> list[str]:
        """Files of the wheel that match a glob, relative to its root, sorted."""
        return sorted(p.relative_to(self.root).as_posix() for p in self.root.glob(pattern))

    def definition(self, name: str, module: Module) -> tuple[ast.stmt, Module] | None:
        """The class or assignment that ``name`` means in ``module``, imports followed."""
        statement = module.names.get(name)
        if isinstance(statement, ast.ImportFrom):
            return self._imported(name, statement, module)
        return (statement, module) if statement is not None else self._starred(name, module)

    def _starred(self, name: str, module: Module) -> tuple[ast.stmt, Module] | None:
        """What ``from x import *`` brings in, where no statement of the module names it."""
        for statement in module.statements():
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                target = self.module_named(_absolute(statement, module))
                if target is not None and (found := self.definition(name, target)):
                    return found
        return None

    def _imported(self, name: str, statement: ast.ImportFrom, module: Module) -> tuple[ast.stmt, Module] | None:
        target = self.module_named(_absolute(statement, module))
        if target is None or target is module:
            return None
        original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
        return self.definition(original, target)


def _absolute(statement: ast.ImportFrom, module: Module) -> str:
    if not statement.level:
        return statement.module or ""
    package = module.path.split("/")[: -statement.level]
    return ".".join([*package, statement.module or ""]).rstrip(".")


def _parsed(path: str, file: Path) -> Module:
    module = Module(path, ast.parse(file.read_text(encoding="utf-8")))
    for statement in module.statements():
        for name in _defined(statement):
            module.names.setdefault(name, statement)
    return module


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
    elif isinstance(statement, ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id


def dotted_name(node: ast.expr) -> str:
    """``a.b.c`` of a name or attribute, the last part of anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    return dotted_name(node).rsplit(".", 1)[-1]


def decorator_names(node: ast.ClassDef) -> set[str]:
    calls = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return {last_name(call) for call in calls}


def is_config_class(node: ast.stmt | None) -> bool:
    """A class whose fields a user can give: vLLM's ``@config`` or a plain dataclass."""
    return isinstance(node, ast.ClassDef) and bool(decorator_names(node) & {"config", "dataclass"})


def base_names(node: ast.ClassDef) -> set[str]:
    bases = (b.value if isinstance(b, ast.Subscript) else b for b in node.bases)
    return {last_name(base) for base in bases}

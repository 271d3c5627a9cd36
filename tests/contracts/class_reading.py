"""Which architectures of an unpacked engine have a base class, read from its text and never imported."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

MODELS = "vllm.model_executor.models"
_DEEPEST = 12


@dataclass(slots=True)
class ClassReader:
    """Follows base classes through the modules under ``root``; each file is parsed once."""

    root: Path
    _trees: dict[Path, ast.Module | None] = field(default_factory=dict)

    def architectures_with(self, base: str) -> set[str]:
        return {name for name, (module, cls) in self._registered().items() if base in self.bases(module, cls)}

    def bases(self, module: str, name: str, depth: int = 0) -> set[str]:
        """Names of all base classes of a class, however far up and through re-exports."""
        tree = self._tree(self._path(module))
        if tree is None or depth > _DEEPEST:
            return set()
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
        if not classes:
            origin = self._origin(tree, module, name)
            return set() if origin is None else self.bases(*origin, depth + 1)
        parents = {_name(base) for node in classes for base in node.bases}
        further = [self.bases(module, parent, depth + 1) for parent in parents if parent != name]
        return parents.union(*further)

    def _registered(self) -> dict[str, tuple[str, str]]:
        """Architecture to module and class; where a name is in several tables, the first one's."""
        tree = self._tree(self.root / "vllm/model_executor/models/registry.py")
        assert tree is not None
        found: dict[str, tuple[str, str]] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _is_table(node):
                found = _entries(node.value) | found
        return found

    def _path(self, module: str) -> Path:
        path = self.root.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def _tree(self, path: Path) -> ast.Module | None:
        if path not in self._trees:
            self._trees[path] = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else None
        return self._trees[path]

    def _origin(self, tree: ast.Module, module: str, name: str) -> tuple[str, str] | None:
        """Where a module has a name from."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return self._absolute(module, node), alias.name
        return None

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".") if self._path(module).name == "__init__.py" else module.split(".")[:-1]
        kept = parts[: len(parts) - node.level + 1]
        return ".".join([*kept, node.module] if node.module else kept)


def _is_table(node: ast.Assign) -> bool:
    name = _name(node.targets[0])
    return name.endswith("_MODELS") and name not in ("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS")


def _entries(table: ast.Dict) -> dict[str, tuple[str, str]]:
    found = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
            module, cls = ast.literal_eval(value)
            found[str(key.value)] = (module if module.startswith("vllm.") else f"{MODELS}.{module}", cls)
    return found


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""

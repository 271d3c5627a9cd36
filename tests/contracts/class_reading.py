"""Which architectures of an unpacked engine have a base class, read from its text and never imported."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

MODELS = "vllm.model_executor.models"


@dataclass(frozen=True, slots=True)
class Names:
    """What one module defines and imports: class to base names, and imported name to its origin."""

    classes: dict[str, set[str]]
    imports: dict[str, tuple[str, str]]


NOTHING = Names({}, {})


@dataclass(slots=True)
class ClassReader:
    """Follows base classes through the modules under ``root``; each file and each class is read once."""

    root: Path
    _names: dict[str, Names] = field(default_factory=dict)
    _bases: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def architectures_with(self, base: str) -> set[str]:
        return {name for name, (module, cls) in self._registered().items() if base in self.bases(module, cls)}

    def bases(self, module: str, name: str) -> frozenset[str]:
        """Names of all base classes of a class, however far up and through re-exports."""
        key = (module, name)
        if key not in self._bases:
            self._bases[key] = frozenset()  # a circle of imports ends here
            self._bases[key] = self._found_bases(module, name)
        return self._bases[key]

    def _found_bases(self, module: str, name: str) -> frozenset[str]:
        names = self._of(module)
        if name in names.classes:
            parents = names.classes[name]
            return frozenset(parents).union(*(self.bases(module, parent) for parent in parents))
        origin = names.imports.get(name)
        return frozenset() if origin is None else self.bases(*origin)

    def _registered(self) -> dict[str, tuple[str, str]]:
        """Architecture to module and class; where a name is in several tables, the first one's."""
        text = (self.root / "vllm/model_executor/models/registry.py").read_text(encoding="utf-8")
        found: dict[str, tuple[str, str]] = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _is_table(node):
                found = _entries(node.value) | found
        return found

    def _of(self, module: str) -> Names:
        if module not in self._names:
            path = self._path(module)
            self._names[module] = self._read(module, path) if path.is_file() else NOTHING
        return self._names[module]

    def _path(self, module: str) -> Path:
        path = self.root.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def _read(self, module: str, path: Path) -> Names:
        classes: dict[str, set[str]] = {}
        imports: dict[str, tuple[str, str]] = {}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, set()).update(map(_name, node.bases))
            elif isinstance(node, ast.ImportFrom):
                origin = self._absolute(module, node)
                imports.update({alias.asname or alias.name: (origin, alias.name) for alias in node.names})
        return Names(classes, imports)

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

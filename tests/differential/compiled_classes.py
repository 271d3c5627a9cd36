"""Which of the engine's model classes build anything that torch.compile cuts, read from its text and never imported.

What a class builds is what its body, and the functions and classes that it names, name outside annotations; a class
whose attribute alone is read, such as a mapping of weights, is not built.  Of a package with a folder for each
platform, only NVIDIA's is read.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_DECORATOR = "support_torch_compile"
_MODELS = ("vllm.model_executor.models", "vllm.models")
_REGISTRY = "vllm.model_executor.models.registry"
_DRAFTERS = "_SPECULATIVE_DECODING_MODELS"
_OTHER_PLATFORMS = frozenset({"amd", "cpu", "xpu"})

Symbol = tuple[str, str]
Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """What one module defines at its top level, and every origin of a name that it imports anywhere."""

    definitions: dict[str, Definition]
    origins: dict[str, list[Symbol]]


@dataclass(slots=True)
class CompiledReader:
    """Follows names through the modules under ``root``; each file is read once."""

    root: Path
    _modules: dict[str, Module] = field(default_factory=dict)

    def drafters(self) -> dict[str, Symbol]:
        """The engine's drafters: architecture to module and class."""
        tree = ast.parse(self._path(_REGISTRY).read_text(encoding="utf-8"))
        assigned = (node for node in tree.body if isinstance(node, ast.Assign))
        table = next(node.value for node in assigned if ast.unparse(node.targets[0]) == _DRAFTERS)
        return {
            name: (module if module.startswith("vllm.") else f"{_MODELS[0]}.{module}", cls)
            for name, (module, cls) in ast.literal_eval(table).items()
        }

    def is_compiled(self, module: str, name: str) -> bool:
        due, seen = list(self._found(module, name)), set[Symbol]()
        assert due, f"{module} has no {name}"
        while due:
            symbol = due.pop()
            if symbol in seen:
                continue
            seen.add(symbol)
            definition = self._read(symbol[0]).definitions[symbol[1]]
            if any(_DECORATOR in ast.unparse(one) for one in definition.decorator_list):
                return True
            due += [one for named in _built(definition) for one in self._found(symbol[0], named) if _is_of_models(one)]
        return False

    def _found(self, module: str, name: str, on_the_way: frozenset[Symbol] = frozenset()) -> Iterator[Symbol]:
        """Where a name is defined, through re-exports; more than once where the platform decides."""
        if (module, name) in on_the_way or not self._path(module).is_file():
            return
        read = self._read(module)
        if name in read.definitions:
            yield module, name
            return
        origins = read.origins.get(name, [])
        own = [origin for origin in origins if ".nvidia." in origin[0]] or origins
        for origin in own:
            yield from self._found(*origin, on_the_way | {(module, name)})

    def _read(self, name: str) -> Module:
        if name not in self._modules:
            tree = ast.parse(self._path(name).read_text(encoding="utf-8"))
            definitions = {one.name: one for one in tree.body if isinstance(one, Definition)}
            self._modules[name] = Module(definitions, self._origins(name, tree))
        return self._modules[name]

    def _origins(self, module: str, tree: ast.Module) -> dict[str, list[Symbol]]:
        origins: dict[str, list[Symbol]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                origin = self._absolute(module, node)
                if _OTHER_PLATFORMS.isdisjoint(origin.split(".")):
                    for alias in node.names:
                        origins.setdefault(alias.asname or alias.name, []).append((origin, alias.name))
        return origins

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        up = node.level - (self._path(module).name == "__init__.py")
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])

    def _path(self, module: str) -> Path:
        path = self.root.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _is_of_models(symbol: Symbol) -> bool:
    return symbol[0].startswith(_MODELS)


def _built(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Attribute(value=ast.Name()):
            return
        case ast.arg():
            return
        case ast.FunctionDef(args=arguments, body=body):
            for part in (arguments, *body):
                yield from _built(part)
        case ast.AnnAssign(value=value):
            if value is not None:
                yield from _built(value)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _built(child)

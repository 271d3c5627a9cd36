"""Which of the engine's model classes build anything that torch.compile cuts, read from its text and never imported.

What a class builds is what its body, and the functions and classes that it names, name outside annotations; a class
whose attribute alone is read, such as a mapping of weights, is not built, and neither is what a class inherits and
overrides.  Of a package with a folder for each platform, only NVIDIA's is read.  The encoder of a multimodal model is
compiled where `compile_mm_encoder` says so, which it does not by default.
"""

import ast
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

_DECORATOR = "support_torch_compile"
_MODELS = ("vllm.model_executor.models", "vllm.models")
_REGISTRY = "vllm.model_executor.models.registry"
_GENERATIVE = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
_DRAFTERS = "_SPECULATIVE_DECODING_MODELS"
_IGNORED = "ignore_torch_compile"
_ENCODERS_OWN = "should_torch_compile_mm_encoder"
_INNER_MODEL = "init_vllm_registered_model"
_OTHER_PLATFORMS = frozenset({"amd", "cpu", "xpu"})

Symbol = tuple[str, str]
Definition = ast.ClassDef | ast.FunctionDef
Due = tuple[Symbol, frozenset[str]]
"""What is to be read, without those of its members that a class below overrides."""

_NOTHING: frozenset[str] = frozenset()


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
    _tables: dict[str, dict[str, Symbol]] = field(default_factory=dict)

    def drafters(self) -> dict[str, Symbol]:
        """The engine's drafters: architecture to module and class."""
        return self._registered(_DRAFTERS)

    def generative_models(self) -> dict[str, Symbol]:
        """The engine's models that generate, as `drafters` has them."""
        return {name: symbol for table in _GENERATIVE for name, symbol in self._registered(table).items()}

    def is_compiled(self, module: str, name: str) -> bool:
        """Whether the class builds anything compiled; one whose config names what it builds is taken to."""
        due, seen = [(symbol, _NOTHING) for symbol in self._found(module, name)], set[Due]()
        assert due, f"{module} has no {name}"
        if any(_is_factory(self._read(symbol[0]).definitions[symbol[1]]) for symbol, _ in due):
            return True
        while due:
            one = due.pop()
            if one in seen:
                continue
            seen.add(one)
            symbol, hidden = one
            definition = self._read(symbol[0]).definitions[symbol[1]]
            if any(_compiles(decorator) for decorator in definition.decorator_list):
                return True
            inner = _inner_models(definition)
            if None in inner:
                return True
            due += [(built, _NOTHING) for architecture in inner for built in self._found(*self._model(architecture))]
            due += self._named_by(symbol[0], definition, hidden)
        return False

    def _named_by(self, module: str, definition: Definition, hidden: frozenset[str]) -> Iterator[Due]:
        bases = definition.bases if isinstance(definition, ast.ClassDef) else []
        if any(_IGNORED in ast.unparse(one) for one in definition.decorator_list):
            definition, bases = _without_bases(definition), []
        inherited = {name for base in bases for name in _built(base)}
        below = hidden | _overridden(definition)
        for name in {*inherited, *_built(_without(definition, hidden))}:
            for symbol in self._found(module, name):
                if _is_of_models(symbol):
                    yield symbol, below if name in inherited else _NOTHING

    def _model(self, architecture: str | None) -> Symbol:
        assert architecture is not None
        return self.generative_models()[architecture]

    def _registered(self, table: str) -> dict[str, Symbol]:
        if table not in self._tables:
            tree = ast.parse(self._path(_REGISTRY).read_text(encoding="utf-8"))
            assigned = (node for node in tree.body if isinstance(node, ast.Assign))
            written = next(node.value for node in assigned if ast.unparse(node.targets[0]) == table)
            # An entry may have, after module and class, what is asked for elsewhere.
            self._tables[table] = {
                name: (module if module.startswith("vllm.") else f"{_MODELS[0]}.{module}", cls)
                for name, (module, cls, *_) in ast.literal_eval(written).items()
            }
        return self._tables[table]

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


def _compiles(decorator: ast.expr) -> bool:
    written = ast.unparse(decorator)
    return _DECORATOR in written and _ENCODERS_OWN not in written


def _inner_models(definition: Definition) -> set[str | None]:
    """The architectures that are built by the engine's registry; None among them where a config names one."""
    calls = (node for node in ast.walk(definition) if isinstance(node, ast.Call))
    found: set[str | None] = set()
    for call in calls:
        if ast.unparse(call.func) == _INNER_MODEL:
            named = next((one.value for one in call.keywords if one.arg == "architectures"), None)
            found |= {*ast.literal_eval(named)} if isinstance(named, ast.List) else {None}
    return found


def _is_factory(definition: Definition) -> bool:
    """Whether instances are of whatever class the config asks for."""
    return isinstance(definition, ast.ClassDef) and any("__new__" in _members(node) for node in definition.body)


def _overridden(definition: Definition) -> frozenset[str]:
    """The members that a class has of its own and does not build on those that it inherits."""
    return frozenset(
        name
        for node in definition.body
        for name in _members(node)
        if not (isinstance(node, ast.FunctionDef) and f"super().{name}(" in ast.unparse(node))
    )


def _members(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (one.id for one in targets if isinstance(one, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            yield name


def _without(definition: Definition, hidden: frozenset[str]) -> Definition:
    if not isinstance(definition, ast.ClassDef):
        return definition
    kept = copy(definition)
    kept.body = [node for node in definition.body if hidden.isdisjoint(_members(node))]
    return kept


def _without_bases(definition: Definition) -> Definition:
    """What a class that is not to be compiled inherits is not compiled for it either."""
    kept = copy(definition)
    if isinstance(kept, ast.ClassDef):
        kept.bases = []
    return kept


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

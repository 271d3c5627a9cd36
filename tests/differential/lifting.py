"""Definitions taken out of an engine's text and run without importing the engine.

An :class:`EngineText` stands for one unpacked distribution.  Each of its modules is a namespace that finds
a name when running code first asks for it: a stand-in if there is one, else the module's own definition,
else what the module imports (the engine's own modules again by text, the standard library for real).
Nothing of the definition is rewritten, so what runs is the engine's own code, one piece at a time.

``taken`` records each definition that ran and the file and line it came from.
"""

import __future__

import ast
import builtins
import dis
import functools
import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

# Annotations stay text: they name types of packages that are not here.
_ANNOTATIONS_STAY_TEXT = __future__.annotations.compiler_flag


class NoStandInError(Exception):
    """Lifted code asked for something outside the standard library that has no stand-in."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Where a lifted definition stands."""

    symbol: str
    file: str
    first_line: int
    last_line: int


@dataclass(slots=True)
class EngineText:
    """One unpacked engine: ``root`` holds its packages.

    ``stand_ins`` maps ``module:name`` (or the name of a whole module) to what lifted code gets instead.
    """

    root: Path
    stand_ins: Mapping[str, Any]
    taken: dict[str, Taken] = field(default_factory=dict)
    _modules: dict[str, "_ModuleText"] = field(default_factory=dict)

    def module(self, name: str) -> "_ModuleText":
        if name not in self._modules:
            self._modules[name] = _ModuleText(self, name, _file_of(self.root, name))
        return self._modules[name]

    def get(self, symbol: str) -> Any:
        """What ``module:name`` is, lifted if the module defines it."""
        module, _, name = symbol.partition(":")
        return self.module(module)[name]

    def part_of_class(self, symbol: str, members: Sequence[str], optional: Sequence[str] = ()) -> Any:
        """``module:Class`` with these members alone, its engine bases cut the same way, no decorators.

        A member that neither the class nor a base has is an AssertionError, unless it is ``optional``.
        """
        module, _, name = symbol.partition(":")
        part = self.module(module).part_of_class(name, frozenset((*members, *optional)))
        missing = [m for m in members if not hasattr(part, m)]
        assert not missing, f"{symbol} has no {missing}"
        return part

    def assignments_in(self, symbol: str, method: str, targets: Sequence[str]) -> Any:
        """A function of ``self``: the statements of a method that assign the attributes ``targets``.

        Those of the overridden methods come first, as ``super().__init__()`` would run them.
        """
        module, _, name = symbol.partition(":")
        pieces = self.module(module).assignments_in(name, method, frozenset(targets))
        assert pieces, f"{symbol}.{method} assigns none of {sorted(targets)}"

        def run(instance: Any) -> None:
            for piece in pieces:
                piece(instance)

        return run

    def imported(self, module: str, name: str | None) -> Any:
        """The value of ``from module import name``, or of ``import module`` when ``name`` is None."""
        key = module if name is None else f"{module}:{name}"
        if key in self.stand_ins:
            return self.stand_ins[key]
        if name is not None and f"{module}.{name}" in self.stand_ins:
            return self.stand_ins[f"{module}.{name}"]
        if _is_standard(module):
            found = importlib.import_module(module)
            return found if name is None else getattr(found, name)
        if name is None or not module.startswith("vllm"):
            raise NoStandInError(key)
        return self.module(module)[name]


class _Attributes:
    """A module as an ``import`` statement inside a function sees it: names become attributes."""

    def __init__(self, engine: EngineText, module: str) -> None:
        self._engine, self._module = engine, module

    def __getattr__(self, name: str) -> Any:
        return self._engine.imported(self._module, name)


class _ModuleText(dict[str, Any]):
    """The globals of lifted code of one module; a missing name is looked up when it is first used."""

    def __init__(self, engine: EngineText, name: str, path: Path) -> None:
        # Dataclasses look their module up by name, so it has to be one that is loaded.
        super().__init__(__name__=__name__, __builtins__={**vars(builtins), "__import__": self._import})
        self._engine, self._name, self._path = engine, name, path
        self._package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        self._tree = ast.parse(path.read_text(encoding="utf-8"))
        self._statements = dict(_named_statements(self._tree))

    def __missing__(self, name: str) -> Any:
        key = f"{self._name}:{name}"
        if key in self._engine.stand_ins:
            self[name] = self._engine.stand_ins[key]
        else:
            self._bind(name, self._statements[name])  # a KeyError becomes NameError in lifted code
        return self[name]

    def _bind(self, name: str, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self[name] = self._engine.imported(*self._origin(statement, name))
        else:
            self._run(statement, name, self)

    def part_of_class(self, name: str, members: frozenset[str]) -> Any:
        original = self._class(name)
        bases = [owner.part_of_class(base, members) for owner, base in self._engine_bases(original)]
        body: list[ast.stmt] = [m for m in original.body if _names(m) & members]
        for member in body:
            self._record(f"{name}.{min(_names(member))}", member)
        placeholders = {f"base_{i}": base for i, base in enumerate(bases)}
        part = ast.ClassDef(
            name=name,
            bases=[ast.Name(p, ast.Load()) for p in placeholders],
            keywords=[],
            body=body or [ast.Pass()],
            decorator_list=[],
        )
        return self._evaluate(ast.fix_missing_locations(ast.copy_location(part, original)), name, placeholders)

    def assignments_in(self, name: str, method: str, targets: frozenset[str]) -> list[Any]:
        original = self._class(name)
        inherited = (o.assignments_in(b, method, targets) for o, b in self._engine_bases(original))
        pieces = [piece for of_base in inherited for piece in of_base]
        for function in original.body:
            if isinstance(function, ast.FunctionDef) and function.name == method:
                pieces += self._piece(name, function, targets)
        return pieces

    def _piece(self, name: str, function: ast.FunctionDef, targets: frozenset[str]) -> list[Any]:
        body = [s for s in function.body if _assigned_attributes(s) & targets]
        if not body:
            return []
        self._record(f"{name}.{function.name}", function)
        arguments = ast.arguments(posonlyargs=[], args=[ast.arg("self")], kwonlyargs=[], kw_defaults=[], defaults=[])
        piece = ast.FunctionDef(name=function.name, args=arguments, body=body, decorator_list=[])
        return [self._evaluate(ast.fix_missing_locations(ast.copy_location(piece, function)), piece.name)]

    def _engine_bases(self, original: ast.ClassDef) -> list[tuple["_ModuleText", str]]:
        """The module and name of each base that the engine defines; others (ABC, Protocol) are left out."""
        bases = []
        for base in original.bases:
            statement = self._statements.get(base.id) if isinstance(base, ast.Name) else None
            if isinstance(statement, ast.ClassDef):
                bases.append((self, statement.name))
            elif isinstance(statement, ast.ImportFrom) and isinstance(base, ast.Name):
                module, name = self._origin(statement, base.id)
                if module.startswith("vllm"):
                    bases.append((self._engine.module(module), str(name)))
        return bases

    def _class(self, name: str) -> ast.ClassDef:
        found = self._statements[name]
        assert isinstance(found, ast.ClassDef), f"{name} is no class"
        return found

    def _evaluate(self, statement: ast.stmt, name: str, given: Mapping[str, Any] | None = None) -> Any:
        bound: dict[str, Any] = dict(given or {})
        self._execute(statement, bound)
        return bound[name]

    def _origin(self, statement: ast.Import | ast.ImportFrom, name: str) -> tuple[str, str | None]:
        """The absolute module and the name in it that an import statement binds ``name`` to."""
        alias = next(a for a in statement.names if _bound_by(a) == name)
        if isinstance(statement, ast.ImportFrom):
            return self._absolute(statement.module or "", statement.level), alias.name
        return (alias.name if alias.asname else name), None

    def _absolute(self, module: str, level: int) -> str:
        if level == 0:
            return module
        package = self._package.split(".")
        return ".".join([*package[: len(package) - level + 1], module])

    def _import(
        self,
        name: str,
        globals: Any = None,  # noqa: A002 - the signature of __import__
        locals: Any = None,  # noqa: A002
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        """``__import__`` as the functions of this module see it."""
        module = self._absolute(name, level)
        if _is_standard(module):
            return builtins.__import__(module, globals, locals, fromlist)
        assert fromlist, f"`import {name}` inside a function is not supported"
        return _Attributes(self._engine, module)

    def _run(self, statement: ast.stmt, name: str, into: dict[str, Any]) -> None:
        self._execute(statement, into)
        self._record(name, statement)

    def _execute(self, statement: ast.stmt, into: dict[str, Any]) -> None:
        tree = ast.Module(body=[statement], type_ignores=[])
        code = compile(tree, str(self._path), "exec", flags=_ANNOTATIONS_STAY_TEXT, dont_inherit=True)
        for name in _names_in_class_bodies(code):
            if name in self._statements:
                self[name]  # a class body finds globals without asking __missing__
        exec(code, self, into)  # noqa: S102 - running the engine's own text is the purpose

    def _record(self, name: str, node: ast.stmt) -> None:
        symbol = f"{self._name}:{name}"
        last = node.end_lineno or node.lineno
        self._engine.taken[symbol] = Taken(symbol, str(self._path), node.lineno, last)


@functools.cache
def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _file_of(root: Path, module: str) -> Path:
    base = root.joinpath(*module.split("."))
    package = base / "__init__.py"
    return package if package.is_file() else base.with_suffix(".py")


def _named_statements(tree: ast.Module) -> list[tuple[str, ast.stmt]]:
    """Each name that a module binds at its top level and the statement that binds it."""
    return [(name, statement) for statement in tree.body for name in sorted(_names(statement))]


def _names(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {t.id for t in targets if isinstance(t, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {_bound_by(alias) for alias in names}
        case _:
            return set()


def _bound_by(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _names_in_class_bodies(code: CodeType) -> set[str]:
    bodies = [c for c in code.co_consts if isinstance(c, CodeType) and not c.co_flags & inspect.CO_NEWLOCALS]
    return {i.argval for body in bodies for i in dis.get_instructions(body) if i.opname == "LOAD_NAME"}


def _assigned_attributes(statement: ast.stmt) -> set[str]:
    """Attributes of ``self`` that a statement assigns, at any depth."""
    return {
        target.attr
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
        if target.value.id == "self"
    }

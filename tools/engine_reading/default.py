"""Defaults as JSON: a literal as it is, anything computed as ``{"expr": source}``."""

import ast
import operator
from typing import Any

from engine_reading.source import Engine, Module, last_name

_EMPTY_FACTORIES: dict[str, Any] = {
    "list": [],
    "dict": {},
    "set": [],
    "tuple": [],
    "OrderedDict": {},
}
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


def default_of(node: ast.expr | None, module: Module, engine: Engine) -> Any:
    """The JSON of a default written at ``node`` in ``module``."""
    if node is None:
        return None
    known, value = literal_of(node, module, engine)
    return value if known else {"expr": ast.unparse(node)}


def literal_of(node: ast.expr, module: Module, engine: Engine) -> tuple[bool, Any]:
    """(True, value) where the text alone tells the value, (False, None) where it does not."""
    if isinstance(node, ast.Constant):
        return True, node.value
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, module, engine)
    if isinstance(node, ast.Name):
        return _constant(node.id, module, engine)
    if isinstance(node, ast.Attribute):
        return _attribute(node, module, engine)
    return _plain(node)


def factory_default(node: ast.expr, module: Module, engine: Engine) -> Any:
    """The JSON of what a ``default_factory`` makes."""
    if isinstance(node, ast.Lambda):
        return default_of(node.body, module, engine)
    name = last_name(node)
    if name in _EMPTY_FACTORIES:
        return _EMPTY_FACTORIES[name]
    found = engine.definition(name, module)
    made_by_class = found is not None and isinstance(found[0], ast.ClassDef)
    return {"config": name} if made_by_class else {"expr": f"{ast.unparse(node)}()"}


def _plain(node: ast.expr) -> tuple[bool, Any]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return False, None
    return True, sorted(value) if isinstance(value, set) else value


def _arithmetic(node: ast.BinOp, module: Module, engine: Engine) -> tuple[bool, Any]:
    left, right = (literal_of(side, module, engine) for side in (node.left, node.right))
    operation = _ARITHMETIC.get(type(node.op))
    if operation is None or not (left[0] and right[0]):
        return False, None
    return True, operation(left[1], right[1])


def _constant(name: str, module: Module, engine: Engine) -> tuple[bool, Any]:
    found = engine.definition(name, module)
    if found is None or not isinstance(found[0], ast.Assign | ast.AnnAssign) or found[0].value is None:
        return False, None
    return literal_of(found[0].value, found[1], engine)


def _attribute(node: ast.Attribute, module: Module, engine: Engine) -> tuple[bool, Any]:
    """``SomeEnum.MEMBER`` is the member's name, which is what a user writes; a class attribute its value."""
    found = engine.definition(last_name(node.value), module)
    if found is None or not isinstance(found[0], ast.ClassDef):
        return False, None
    for statement in found[0].body:
        if isinstance(statement, ast.Assign) and node.attr in _targets(statement):
            return True, node.attr
        if isinstance(statement, ast.AnnAssign) and node.attr in _targets(statement) and statement.value:
            return literal_of(statement.value, found[1], engine)
    return False, None


def _targets(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}

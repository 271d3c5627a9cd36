"""The environment variables that ``vllm/envs.py`` reads."""

import ast
from dataclasses import dataclass
from typing import Any

from engine_reading.default import default_of, literal_of
from engine_reading.field_type import TypeJson, type_of
from engine_reading.source import Engine, Module, dotted_name, last_name

_PATH = "vllm/envs.py"
_CASTS: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str}
_TEXT: TypeJson = {"union": ["str", "null"]}
_TYPES: dict[type, TypeJson] = {bool: "bool", int: "int", float: "float"}


@dataclass(frozen=True)
class Variable:
    name: str
    type: TypeJson
    default: Any
    line: int


def variables(engine: Engine) -> dict[str, Variable]:
    """Every key of the module's ``environment_variables``, with type and default as far as the text tells."""
    module = engine.module(_PATH)
    declared = {s.target.id: s for s in module.statements()
                if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}  # fmt: skip
    table = declared["environment_variables"].value
    assert isinstance(table, ast.Dict)
    pairs = zip(table.keys, table.values, strict=True)
    return {
        key.value: _variable(key, value, declared.get(key.value), module, engine)
        for key, value in pairs
        if isinstance(key, ast.Constant)
    }


def _variable(
    key: ast.Constant, reader: ast.expr, declared: ast.AnnAssign | None, module: Module, engine: Engine
) -> Variable:
    annotated = default_of(declared.value, module, engine) if declared else {"expr": ast.unparse(reader)}
    known, read = _default_read(reader, module, engine)
    default = read if known else annotated
    return Variable(
        name=key.value,
        type=type_of(declared.annotation, module, engine) if declared else _TYPES.get(type(default), _TEXT),
        default=default,
        line=key.lineno,
    )


def _default_read(reader: ast.expr, module: Module, engine: Engine) -> tuple[bool, Any]:
    """What the reader gives for an unset variable, for the common spellings; it wins over the annotation."""
    if isinstance(reader, ast.Lambda):
        return _evaluated(reader.body, module, engine)
    if isinstance(reader, ast.Call) and last_name(reader.func).startswith("env_with_choices"):
        return literal_of(reader.args[1], module, engine)
    return False, None


def _evaluated(node: ast.expr, module: Module, engine: Engine) -> tuple[bool, Any]:
    """``bool(int(os.getenv(NAME, "0")))``, ``os.getenv(NAME, "0").lower() == "1"`` and the like."""
    if isinstance(node, ast.Compare):
        return _compared(node, module, engine)
    if isinstance(node, ast.Call):
        return _called(node, module, engine)
    return literal_of(node, module, engine)


def _compared(node: ast.Compare, module: Module, engine: Engine) -> tuple[bool, Any]:
    left, right = (_evaluated(side, module, engine) for side in (node.left, node.comparators[0]))
    if len(node.ops) > 1 or not (left[0] and right[0]):
        return False, None
    if isinstance(node.ops[0], ast.Eq):
        return True, left[1] == right[1]
    return (True, left[1] in right[1]) if isinstance(node.ops[0], ast.In) else (False, None)


def _called(node: ast.Call, module: Module, engine: Engine) -> tuple[bool, Any]:
    name = dotted_name(node.func)
    if name in {"os.getenv", "os.environ.get"}:
        return literal_of(node.args[1], module, engine) if len(node.args) > 1 else (True, None)
    if name in _CASTS and len(node.args) == 1:
        known, value = _evaluated(node.args[0], module, engine)
        return (True, _CASTS[name](value)) if known and value is not None else (False, None)
    if isinstance(node.func, ast.Attribute) and node.func.attr in {"lower", "strip"} and not node.args:
        known, value = _evaluated(node.func.value, module, engine)
        return (True, getattr(value, node.func.attr)()) if known and value is not None else (False, None)
    return False, None

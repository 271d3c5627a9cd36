"""Annotations as small JSON type expressions.

A scalar is its name (``"int"``, ``"float"``, ``"bool"``, ``"str"``, ``"null"``, ``"any"``); anything else is
an object of one key: ``list``, ``set``, ``tuple``, ``dict``, ``union``, ``literal``, ``config``, ``enum`` or
``any`` with the annotation as written.
"""

import ast
from typing import Any

from engine_reading.source import Engine, Module, base_names, is_config_class, last_name

TypeJson = str | dict[str, Any]

_SCALARS = {"int": "int", "float": "float", "bool": "bool", "str": "str", "Path": "str", "None": "null"}
_BARE_CONTAINERS: dict[str, TypeJson] = {
    "dict": {"dict": ["any", "any"]},
    "list": {"list": "any"},
    "set": {"set": "any"},
    "tuple": {"list": "any"},
}
_LISTS = {"list", "List", "Sequence", "Iterable"}
_SETS = {"set", "Set", "frozenset"}
_DICTS = {"dict", "Dict", "Mapping", "OrderedDict", "defaultdict"}
_TRANSPARENT = {"Annotated", "SkipValidation", "ClassVar", "Final", "InitVar"}
_ENUM_BASES = {"Enum", "IntEnum", "StrEnum"}


def type_of(node: ast.expr, module: Module, engine: Engine) -> TypeJson:
    """The type expression of an annotation that stands in ``module``."""
    if isinstance(node, ast.Constant):
        return _of_constant(node, module, engine)
    if isinstance(node, ast.BinOp):
        return union([type_of(node.left, module, engine), type_of(node.right, module, engine)])
    if isinstance(node, ast.Subscript):
        return _of_subscript(node, module, engine)
    return _of_name(node, module, engine)


def union(members: list[TypeJson]) -> TypeJson:
    """Flattened, duplicates removed, ``null`` last."""
    flat: list[TypeJson] = []
    for member in members:
        inner = member["union"] if isinstance(member, dict) and "union" in member else [member]
        flat += [one for one in inner if one not in flat]
    flat.sort(key=lambda one: one == "null")
    return flat[0] if len(flat) == 1 else {"union": flat}


def _of_constant(node: ast.Constant, module: Module, engine: Engine) -> TypeJson:
    if node.value is None:
        return "null"
    if isinstance(node.value, str):
        return type_of(ast.parse(node.value, mode="eval").body, module, engine)
    return {"any": ast.unparse(node)}


def _of_subscript(node: ast.Subscript, module: Module, engine: Engine) -> TypeJson:
    name = last_name(node.value)
    arguments = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        return {"literal": _choices(arguments, module, engine)}
    if name in _TRANSPARENT:
        return type_of(arguments[0], module, engine)
    if name == "Optional":
        return union([type_of(arguments[0], module, engine), "null"])
    return _of_container(name, arguments, node, module, engine)


def _of_container(
    name: str, arguments: list[ast.expr], node: ast.Subscript, module: Module, engine: Engine
) -> TypeJson:
    inner = [type_of(one, module, engine) for one in arguments if not _is_ellipsis(one)]
    if name == "Union":
        return union(inner)
    if name in _LISTS or (name in {"tuple", "Tuple"} and len(inner) < len(arguments)):
        return {"list": inner[0]}
    if name in _SETS:
        return {"set": inner[0]}
    if name in {"tuple", "Tuple"}:
        return {"tuple": inner}
    return {"dict": inner} if name in _DICTS else {"any": ast.unparse(node)}


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _of_name(node: ast.expr, module: Module, engine: Engine) -> TypeJson:
    name = last_name(node)
    if name in _SCALARS:
        return _SCALARS[name]
    if name in _BARE_CONTAINERS:
        return _BARE_CONTAINERS[name]
    if name in {"Any", "object"}:
        return "any"
    found = engine.definition(name, module)
    return _of_definition(name, *found, engine) if found else {"any": ast.unparse(node)}


def _of_definition(name: str, statement: ast.stmt, module: Module, engine: Engine) -> TypeJson:
    if isinstance(statement, ast.ClassDef):
        return _of_class(statement)
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        return type_of(statement.value, module, engine)
    return {"any": name}


def _of_class(statement: ast.ClassDef) -> TypeJson:
    if is_config_class(statement):
        return {"config": statement.name}
    bases = base_names(statement)
    if bases & _ENUM_BASES:
        return {"enum": statement.name, **_members(statement, "str" in bases)}
    return {"dict": ["any", "any"]} if "dict" in bases else {"any": statement.name}


def _members(statement: ast.ClassDef, is_text: bool) -> dict[str, Any]:
    """Names of an enum, and the values that a user may give instead: numbers, and texts of a ``str`` enum."""
    pairs = [
        (target.id, one.value)
        for one in statement.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    ]
    constants = [value.value for _, value in pairs if isinstance(value, ast.Constant)]
    values = [one for one in constants if isinstance(one, str if is_text else int)]
    return {"names": [name for name, _ in pairs], **({"values": values} if values else {})}


def _choices(arguments: list[ast.expr], module: Module, engine: Engine) -> list[Any]:
    """Values of a ``Literal``; names in it are other literals."""
    choices: list[Any] = []
    for one in arguments:
        if isinstance(one, ast.Constant):
            choices.append(one.value)
        else:
            choices += _inner_choices(type_of(one, module, engine))
    return list(dict.fromkeys(choices))


def _inner_choices(inner: TypeJson) -> list[Any]:
    assert isinstance(inner, dict), f"a Literal holds {inner}"
    choices: list[Any] = inner["literal"]
    return choices


def members_of(one: TypeJson) -> list[TypeJson]:
    """The alternatives of a type: those of a union, or the type alone."""
    return list(one["union"]) if isinstance(one, dict) and "union" in one else [one]


def is_kind(one: TypeJson, kind: str) -> bool:
    return one == kind or (isinstance(one, dict) and kind in one)


def has_kind(one: TypeJson, kind: str) -> bool:
    return any(is_kind(member, kind) for member in members_of(one))

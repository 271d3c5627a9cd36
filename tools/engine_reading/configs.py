"""The fields of the engine's config classes."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine_reading.default import default_of, factory_default
from engine_reading.field_type import TypeJson, type_of, union
from engine_reading.source import Engine, Module, is_config_class, last_name

_BOUNDS = ("ge", "gt", "le", "lt")
_FIELD_CALLS = {"Field", "field", "PydanticField"}


@dataclass(frozen=True)
class ConfigField:
    """``is_internal``: the constructor does not take it, so no user can give it."""

    name: str
    type: TypeJson
    default: Any
    is_required: bool
    is_internal: bool
    bounds: dict[str, Any]
    line: int
    doc: str


@dataclass(frozen=True)
class ConfigClass:
    name: str
    path: str
    line: int
    fields: dict[str, ConfigField]


def config_classes(engine: Engine, pattern: str = "vllm/config/[!u]*.py") -> dict[str, ConfigClass]:
    """Every config class of the files that match ``pattern`` (``utils.py`` holds none), by name."""
    found = {}
    for path in engine.paths(pattern):
        module = engine.module(path)
        for statement in module.tree.body:
            if isinstance(statement, ast.ClassDef) and is_config_class(statement):
                found[statement.name] = config_class(statement, module, engine)
    return found


def config_class(statement: ast.ClassDef, module: Module, engine: Engine) -> ConfigClass:
    fields: dict[str, ConfigField] = {}
    for base in statement.bases:
        fields |= _inherited(base, module, engine)
    for one in _own_fields(statement, module, engine):
        fields[one.name] = one
    return ConfigClass(statement.name, module.path, statement.lineno, fields)


def _inherited(base: ast.expr, module: Module, engine: Engine) -> dict[str, ConfigField]:
    found = engine.definition(last_name(base), module)
    if found is None or not isinstance(found[0], ast.ClassDef) or not is_config_class(found[0]):
        return {}
    return config_class(found[0], found[1], engine).fields


def _own_fields(statement: ast.ClassDef, module: Module, engine: Engine) -> Iterator[ConfigField]:
    following = [*statement.body[1:], None]
    constants = _class_constants(statement)
    for one, after in zip(statement.body, following, strict=True):
        if isinstance(one, ast.AnnAssign) and _is_field(one):
            yield _field(one, _doc(after), constants, module, engine)


def _is_field(one: ast.AnnAssign) -> bool:
    annotation = one.annotation.value if isinstance(one.annotation, ast.Subscript) else one.annotation
    if last_name(annotation) in {"ClassVar", "InitVar"} or not isinstance(one.target, ast.Name):
        return False
    return not one.target.id.startswith("_")


def _class_constants(statement: ast.ClassDef) -> dict[str, ast.expr]:
    """``NAME: ClassVar[int] = 2048``, which defaults of the class may refer to by bare name."""
    return {
        one.target.id: one.value
        for one in statement.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None
        if one.target.id.isupper()
    }


def _doc(after: ast.stmt | None) -> str:
    is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    return str(after.value.value) if is_text else ""  # type: ignore[union-attr]


def _field(one: ast.AnnAssign, doc: str, constants: dict[str, ast.expr], module: Module, engine: Engine) -> ConfigField:
    assert isinstance(one.target, ast.Name)
    keywords = {k: _looked_up(v, constants) for k, v in _keywords(one.value).items()}
    default = _default(one.value, keywords, module, engine)
    kind = type_of(one.annotation, module, engine)
    return ConfigField(
        name=one.target.id,
        type=union([kind, "null"]) if _is_given_none(one.value, default) else kind,
        default=default,
        is_required=one.value is None,
        is_internal=_is_false(keywords.get("init")),
        bounds={k: default_of(keywords[k], module, engine) for k in _BOUNDS if k in keywords},
        line=one.lineno,
        doc=doc,
    )


def _looked_up(node: ast.expr, constants: dict[str, ast.expr]) -> ast.expr:
    return constants.get(node.id, node) if isinstance(node, ast.Name) else node


def _is_given_none(value: ast.expr | None, default: Any) -> bool:
    """vLLM writes ``x: int = None`` for 'filled in later', so null is a value a user may give."""
    return value is not None and default is None


def _keywords(value: ast.expr | None) -> dict[str, ast.expr]:
    """Arguments of ``Field(...)``; a positional one is the default."""
    if not (isinstance(value, ast.Call) and last_name(value.func) in _FIELD_CALLS):
        return {}
    named = {k.arg: k.value for k in value.keywords if k.arg}
    return {"default": value.args[0], **named} if value.args else named


def _default(value: ast.expr | None, keywords: dict[str, ast.expr], module: Module, engine: Engine) -> Any:
    if "default_factory" in keywords:
        return factory_default(keywords["default_factory"], module, engine)
    if "default" in keywords:
        return default_of(keywords["default"], module, engine)
    return None if keywords else default_of(value, module, engine)


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False

"""The published JSON Schema of the spec, generated from the models and the engine's field table.

Open sections get the engine's fields of the newest supported version, so that an editor completes and checks them.
"""

from typing import Any

from servespec.compiler.engine_homes import section_fields
from servespec.compiler.facts.engine_fields import EngineField, EngineTable, table, versions
from servespec.compiler.facts.field_value import FieldType, Kind
from servespec.schema.field_docs import field_docs
from servespec.schema.parse import sections
from servespec.schema.spec import OpenSection, ServingSpec

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def spec_schema(version: str | None = None) -> dict[str, Any]:
    """Draft 2020-12; ``version`` is the engine's, the newest supported one where None."""
    engine = table(version or versions()[-1])
    document = ServingSpec.model_json_schema()
    for (owner, field), text in field_docs().items():
        definition = document if owner == ServingSpec.__name__ else document["$defs"].get(owner)
        if definition is not None and field in definition["properties"]:
            definition["properties"][field]["description"] = text
    for name, model in sections():
        definition = document["$defs"][model.__name__]
        if issubclass(model, OpenSection):
            definition["properties"].update(_engine_properties(model, engine))
            definition["additionalProperties"] = False
        definition["title"] = name
    _allow_null_sections(document)
    document["anyOf"] = [{"required": ["extends"]}, _required(document)]
    return {
        "$schema": SCHEMA_DIALECT,
        "title": "servespec spec, version 1",
        **{key: value for key, value in document.items() if key != "title"},
    }


def _required(document: dict[str, Any]) -> dict[str, Any]:
    """What a spec has to say, taken out of ``document``: a file that extends another may leave it to that."""
    definitions = {name: document["$defs"][model.__name__] for name, model in sections()}
    inner = {name: {"required": one.pop("required")} for name, one in definitions.items() if "required" in one}
    return {"required": document.pop("required"), "properties": inner}


def _engine_properties(model: type[OpenSection], engine: EngineTable) -> dict[str, Any]:
    return {field.name: _property(field, engine) for field in section_fields(model, engine)}


def _property(field: EngineField, engine: EngineTable) -> dict[str, Any]:
    default = field.default if isinstance(field.default, str | int | float | bool | None | list) else None
    described = {
        "title": field.name,
        "description": f"vLLM {engine.version}: {field.config}.{field.name} ({field.file})",
        **json_type(field.type),
    }
    if default is not None:
        described["default"] = default
    examples = [default] if default not in (None, []) else _choices(field.type)[:1]
    return {**described, "examples": examples} if examples else described


def _choices(field_type: FieldType) -> list[Any]:
    """Values that a type names; none of numbers and texts."""
    if field_type.kind is Kind.UNION:
        return [choice for member in field_type.of for choice in _choices(member)]
    if field_type.kind in (Kind.LITERAL, Kind.ENUM):
        return [*field_type.choices, *field_type.values]
    return [True] if field_type.kind is Kind.BOOL else []


_SIMPLE: dict[Kind, dict[str, Any]] = {
    Kind.INT: {"type": "integer"},
    Kind.FLOAT: {"type": "number"},
    Kind.BOOL: {"type": "boolean"},
    Kind.STR: {"type": "string"},
    Kind.NULL: {"type": "null"},
    Kind.DICT: {"type": "object"},
    Kind.CONFIG: {"type": "object"},
}


def json_type(field_type: FieldType) -> dict[str, Any]:
    """The schema of one of the engine's types; what no text can give is left open."""
    if field_type.kind is Kind.UNION:
        members = [json_type(member) for member in field_type.of if member.kind is not Kind.OBJECT]
        return {"anyOf": members} if all(members) and members else {}
    if field_type.kind in (Kind.LIST, Kind.SET):
        return {"type": "array", "items": json_type(field_type.of[0])} if field_type.of else {"type": "array"}
    if field_type.kind is Kind.TUPLE:
        return {"type": "array"}
    if field_type.kind is Kind.LITERAL:
        return {"enum": list(field_type.choices)}
    if field_type.kind is Kind.ENUM:
        return {"type": "string"} if not field_type.values else {"enum": [*field_type.choices, *field_type.values]}
    return dict(_SIMPLE.get(field_type.kind, {}))


def _allow_null_sections(document: dict[str, Any]) -> None:
    """An empty section is the same as an absent one."""
    for name, _ in sections():
        property_ = document["properties"][name]
        if "$ref" in property_ and name not in ("model", "hardware"):
            document["properties"][name] = {"anyOf": [{"$ref": property_["$ref"]}, {"type": "null"}]}

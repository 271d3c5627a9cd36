"""docs/reference/spec.md: every field of the spec, and the engine's fields that each open section takes."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from doc_pages.markdown import code, page, sentences, table
from servespec.compiler.engine_homes import section_fields
from servespec.compiler.facts.engine_fields import Computed, EngineField, EngineTable, versions
from servespec.compiler.facts.engine_fields import table as engine_table
from servespec.compiler.facts.field_value import FieldType, Kind
from servespec.compiler.spec_schema import spec_schema
from servespec.render.explanation import SpecField
from servespec.schema.field_docs import description
from servespec.schema.parse import sections
from servespec.schema.spec import NESTED_SECTIONS, OpenSection, Section, ServingSpec

_UNITS: Mapping[str, str] = {
    "max_model_len": "tokens",
    "max_num_seqs": "requests",
    "up_to": "requests",
    "num_speculative_tokens": "tokens per request",
    "decode_cudagraph_capture_request_sizes": "requests",
    "prefill_cudagraph_capture_token_sizes": "tokens",
    "cudagraph_capture_sizes": "tokens",
    "max_cudagraph_capture_size": "tokens",
    "block_size": "tokens",
    "kv_cache_memory_bytes": "bytes",
    "max_cudagraph_memory": "bytes",
    "gpu_memory_utilization": "share",
    "count": "GPUs",
    "acceptance_rates": "share of drafts",
    "acceptance_length": "tokens per request",
    "candidates": "tokens per request",
    "tolerance": "share",
    "tensor_parallel_size": "GPUs",
    "pipeline_parallel_size": "stages",
    "data_parallel_size": "replicas",
    "max_loras": "adapters",
    "port": "",
    "optimization_level": "",
    "servespec": "",
    "env": "",
}
_SUFFIX_UNITS = {"_tokens": "tokens", "_requests": "requests", "_bytes": "bytes", "_seconds": "seconds"}
_DEFAULT = re.compile(r"\s*Default: (?P<default>.+?)\.(?=\s+[A-Z`]|\s*$)")
_MOST_CHOICES = 8


def spec_page() -> str:
    engine = engine_table(versions()[-1])
    return page(
        "The spec, version 1",
        _introduction(engine),
        _top_level(),
        *(_section(name, model, engine) for name, model in sections()),
    )


def unit_of(name: str) -> str | None:
    """The unit of a field, '' where a number has none, None where nothing says."""
    if name in _UNITS:
        return _UNITS[name]
    return next((unit for suffix, unit in _SUFFIX_UNITS.items() if name.endswith(suffix)), None)


def all_fields() -> Iterator[SpecField]:
    """Every hand-written field but the sections themselves: top-level ones, then by section, then nested ones."""
    models = dict(sections())
    owners: dict[str, type[Section]] = {"": ServingSpec, **models, **dict(NESTED_SECTIONS)}
    for path, model in owners.items():
        for name, info in model.model_fields.items():
            if path or name not in models:
                yield SpecField(f"{path}.{name}".lstrip("."), model, info)


def _introduction(engine: EngineTable) -> str:
    return sentences(
        "A spec is one YAML file. Unknown keys are errors at every depth. "
        "A field that is absent is filled in by resolution, and `servespec plan --details` says by whom and why. "
        f"Open sections also take the fields of the engine's own config classes, here those of vLLM {engine.version}. "
        "`servespec explain PATH` prints the same for one field."
    )


def _top_level() -> str:
    rows = [_row(field) for field in all_fields() if "." not in field.path]
    return "## Top level\n\n" + table(_HEADERS, rows)


_HEADERS = ("field", "type", "unit", "default", "meaning")


def _section(name: str, model: type[Section], engine: EngineTable) -> str:
    rows = [_row(field) for field in all_fields() if field.path.startswith(f"{name}.")]
    parts = [f"## `{name}`", sentences(model.__doc__ or "")]
    if rows:
        parts.append(table(_HEADERS, rows))
    if issubclass(model, OpenSection):
        parts.append(_engine_part(name, model, engine))
    return "\n\n".join(parts)


def _row(field: SpecField) -> tuple[str, ...]:
    default, meaning = default_and_meaning(field)
    if field.info.examples:
        meaning += " Such as " + ", ".join(code(_written(one)) for one in field.info.examples) + "."
    if schema_of(field).get("deprecated"):
        meaning = "Deprecated. " + meaning
    return (code(field.path), _words(schema_of(field)), unit_of(field.name) or "", default, meaning)


def default_and_meaning(field: SpecField) -> tuple[str, str]:
    """The default, from the description where it says one, and the description without it."""
    text = description(field.owner, field.name)
    found = _DEFAULT.search(text)
    if found:
        return found["default"], (text[: found.start()] + text[found.end() :]).strip()
    if field.info.is_required():
        return "required", text
    default = field.info.get_default(call_default_factory=True)
    return ("" if default is None else code(_written(default))), text


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Types, from the published JSON Schema


_SCHEMA = spec_schema()


def schema_of(field: SpecField) -> Mapping[str, Any]:
    """What the published schema says about a field."""
    properties = _SCHEMA["properties"] if field.owner is ServingSpec else _properties(field.owner)
    return dict(properties[field.name])


def _properties(model: type[Section]) -> Mapping[str, Any]:
    return dict(_SCHEMA["$defs"][model.__name__]["properties"])


def _words(schema: Mapping[str, Any]) -> str:
    forms = schema.get("anyOf", schema.get("oneOf"))
    if forms is not None:
        words = [_words(one) for one in forms if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if "enum" in schema:
        return ", ".join(code(one) for one in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if "$ref" in schema:
        return "mapping"
    return _simple_words(schema)


def _simple_words(schema: Mapping[str, Any]) -> str:
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_words(schema.get('items', {}))}"
    if kind == "string":
        return _text_words(schema.get("pattern"))
    words = {"object": "mapping", "boolean": "true, false"}.get(kind, kind)
    least, most = schema.get("minimum"), schema.get("maximum")
    return words + (f" from {least}" if least is not None else "") + (f" to {most}" if most is not None else "")


_WRITTEN_FORMS = ("8k", "40GiB", "92%")
"""How a number may be written as text: a count, a size in bytes, a share."""


def _text_words(pattern: str | None) -> str:
    if pattern is None:
        return "text"
    return "text such as " + code(next(form for form in _WRITTEN_FORMS if re.search(pattern, form)))


# The engine's own fields


def _engine_part(name: str, model: type[OpenSection], engine: EngineTable) -> str:
    fields = sorted(section_fields(model, engine), key=lambda field: field.name)
    if not fields:
        return ""
    rows = [(code(f.name), engine_type(f.type), _engine_default(f), _CHANGES[f.plan_relevant]) for f in fields]
    classes = ", ".join(code(one) for one in model.engine_configs)
    title = f"### Fields of vLLM {engine.version} in `{name}`\n\nFrom {classes}."
    return f"{title}\n\n{table(('field', 'type', 'default', 'changes the plan'), rows)}"


_CHANGES = {True: "yes", False: "no", None: "perhaps"}


def engine_type(kind: FieldType) -> str:
    """The engine's type in words; a long choice is shown by its first members."""
    if kind.kind is Kind.UNION:
        return " or ".join(engine_type(one) for one in kind.of)
    if len(kind.choices) > _MOST_CHOICES:
        shown = ", ".join(code(one) for one in kind.choices[:_MOST_CHOICES])
        return f"{shown} and {len(kind.choices) - _MOST_CHOICES} more"
    if kind.choices:
        return ", ".join(code(one) for one in kind.choices)
    return str(kind)


def _engine_default(field: EngineField) -> str:
    if field.required:
        return "required"
    if isinstance(field.default, Computed):
        return "computed: " + code(field.default.expression)
    return code(json.dumps(field.default, ensure_ascii=False))

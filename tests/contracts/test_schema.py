"""The published JSON Schemas, against the files that are published beside them and against our own checks."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from servespec.compiler.comparison_schema import COMPARISON_SCHEMA
from servespec.compiler.plan import PLAN_SCHEMA
from servespec.compiler.record_schema import RECORD_SCHEMA
from servespec.compiler.spec_schema import spec_schema
from servespec.diagnostics import has_errors
from servespec.runtime.spec_file import spec_diagnostics
from servespec.schema.parse import sections as sections_of_a_spec
from servespec.schema.source import read_source
from servespec.schema.spec import NESTED_SECTIONS, Section, ServingSpec
from tests.golden.cases import every_case
from tests.plans import REPOSITORY, Json
from tests.strategies import specs

PUBLISHED = sorted((*REPOSITORY.glob("examples/*.yaml"), *REPOSITORY.glob("servespec/presets/*.yaml")))
ACCEPTED = [case for case in every_case() if not case.refused]


@lru_cache(maxsize=1)
def spec_validator() -> Any:
    return jsonschema.Draft202012Validator(spec_schema())


def faults(document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in spec_validator().iter_errors(document)]


def test_the_schemas_are_schemas() -> None:
    for schema in (PLAN_SCHEMA, RECORD_SCHEMA, COMPARISON_SCHEMA, spec_schema(), spec_schema("0.32.0")):
        jsonschema.Draft202012Validator.check_schema(schema)


def own_fields() -> dict[str, Json]:
    """What the schema says of each field of the spec's own that holds a value, by section and name."""
    sections: list[type[Section]] = [ServingSpec, *(model for _, model in (*sections_of_a_spec(), *NESTED_SECTIONS))]
    schema = spec_schema()
    definitions = {**schema["$defs"], ServingSpec.__name__: schema}
    fields = {
        f"{section.__name__}.{name}": definitions[section.__name__]["properties"][name]
        for section in sections
        for name in section.model_fields
    }
    return {name: one for name, one in fields.items() if "$ref" not in json.dumps(one)}


def test_an_editor_can_show_what_a_field_takes() -> None:
    """A title and a meaning; and an example, save where all values are listed or true and false are all there is."""
    fields = own_fields()
    assert len(fields) > 60
    for name, one in fields.items():
        forms = one.get("anyOf", [one])
        is_listed = all({"enum", "const"} & form.keys() or form.get("type") in ("boolean", "null") for form in forms)
        assert {"title", "description"} <= one.keys(), name
        assert is_listed or one.get("examples"), name


@pytest.mark.parametrize("name", sorted(own_fields()))
def test_an_example_is_a_value_that_the_field_takes(name: str) -> None:
    one = own_fields()[name]

    for example in one.get("examples", []):
        jsonschema.Draft202012Validator(one).validate(plain(example))


def engine_fields() -> dict[str, dict[str, Any]]:
    return {
        f"{section}.{name}": one
        for section, definition in spec_schema()["$defs"].items()
        for name, one in definition.get("properties", {}).items()
        if one.get("description", "").startswith("vLLM ")
    }


def test_a_field_of_the_engine_has_an_example_where_its_table_has_a_value() -> None:
    """Its default, or a value that its type names."""
    fields = engine_fields()
    shown = {name: one["examples"] for name, one in fields.items() if "examples" in one}
    listed = {name for name, one in fields.items() if any("enum" in form for form in one.get("anyOf", [one]))}
    with_default = {name for name, one in fields.items() if one.get("default", []) != []}

    assert len(listed | with_default) > 100
    assert listed | with_default <= shown.keys()
    for name, examples in shown.items():
        for example in examples:
            jsonschema.Draft202012Validator(fields[name]).validate(plain(example))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_a_published_spec_is_valid_by_both(path: Path) -> None:
    source = read_source(path.read_bytes(), path.name)

    assert faults(plain(source.data)) == []
    assert not has_errors(spec_diagnostics(source, allow_code=False))


def plain(data: Any) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_a_golden_spec_and_its_plan_are_valid(case: Any) -> None:
    source = read_source((case.folder / "spec.yaml").read_bytes(), case.name)
    plan = json.loads((case.folder / "plan.json").read_text(encoding="utf-8"))

    assert faults(plain(source.data)) == []
    jsonschema.Draft202012Validator(PLAN_SCHEMA).validate(plan)


@given(specs())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_spec_that_we_take_is_valid_by_the_schema(spec: Json) -> None:
    assert faults(plain(spec)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("servespec",), 2),
        (("model", "id"), ""),
        (("scheduler", "max_num_seqs"), 0),
        (("scheduler", "max_num_sequences"), 8),
        (("compilation", "cudagraph_mode"), "FULL_AND_PIECWISE"),
        (("compilation", "max_decode_cudagraph_capture_requests"), "many"),
        (("memory", "gpu_memory_utilization"), 92),
        (("memory", "gpu_memory_utilization"), 0),
        (("memory", "kv_cache_memory_bytes"), "40G"),
        (("speculative",), {"method": "eagle3", "dynamic": []}),
        (("speculative",), {"method": "eagle3", "num_speculative_token": 3}),
        (("parallel", "tensor_parallel_size"), "2x"),
        (("engine", "name"), "sglang"),
        (("serve", "port"), 70000),
        (("hardware", "gpu"), {"file": "x"}),
        (("performance_mode",), "fast"),
    ],
)
def test_an_editor_and_we_refuse_the_same(path: tuple[str, ...], value: Any) -> None:
    spec: Json = {"servespec": 1, "model": {"id": "org/model"}, "hardware": {"gpu": "h200"}}
    section = spec
    for step in path[:-1]:
        section = section.setdefault(step, {})
    section[path[-1]] = value

    assert faults(spec) != []
    assert has_errors(spec_diagnostics(read_source(json.dumps(spec), "spec.yaml"), allow_code=False))


@pytest.mark.parametrize("lost", [("servespec",), ("model",), ("model", "id"), ("hardware", "gpu")])
def test_an_editor_asks_an_overlay_for_nothing_that_its_base_may_say(lost: tuple[str, ...]) -> None:
    whole: Json = {"servespec": 1, "model": {"id": "org/m"}, "hardware": {"gpu": "h200", "count": 2}}
    section = whole if len(lost) == 1 else whole[lost[0]]
    del section[lost[-1]]

    assert faults(whole) != []
    assert faults({**whole, "extends": "base.yaml"}) == []


def test_every_file_beside_the_schemas_is_looked_at() -> None:
    assert PUBLISHED

"""Names that people give a field are told the field's own, which exists."""

import pytest

from servespec.compiler.facts.engine_fields import table, versions
from servespec.render.explanation import explanation
from servespec.runtime.spec_file import spec_diagnostics
from servespec.schema.called import CALLED, CALLED_THERE
from servespec.schema.parse import section_at, sections, sections_with
from servespec.schema.source import read_source


def helps(text: str) -> dict[str, str]:
    """Of every finding about a key, by the key."""
    source = read_source(f"servespec: 1\nhardware: {{gpu: h200}}\n{text}\n", "spec.yaml")
    found = spec_diagnostics(source, allow_code=False)
    return {one.message.split("`")[1]: one.help for one in found if "is not a field of" in one.message}


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ("model: {name: org/model}", "name", "id"),
        ("model: {id: org/model, name: mine}", "name", "served_model_name"),
        ("model: {model_id: org/model}", "model_id", "id"),
        ("model: {id: org/model}\ntp: 8", "tp", "parallel.tensor_parallel_size"),
        ("model: {id: org/model}\nparallel: {tp: 8}", "tp", "tensor_parallel_size"),
        ("model: {id: org/model}\nnum-gpus: 8", "num-gpus", "hardware.count"),
        ("model: {id: org/model}\nspeculative: {K: 7}", "K", "num_speculative_tokens"),
        ("model: {id: org/model}\nspeculative: {method: eagle3, draft_model: a/b}", "draft_model", "model"),
        ("model: {id: org/model}\nscheduler: {max_batch_size: 8}", "max_batch_size", "max_num_seqs"),
        ("model: {id: org/model}\nmemory: {utilization: 0.9}", "utilization", "gpu_memory_utilization"),
    ],
)
def test_another_name_is_told_the_field_s_own(text: str, key: str, meant: str) -> None:
    assert helps(text)[key] == f"did you mean `{meant}`?"


@pytest.mark.parametrize(
    "field", sorted({field for fields in (*CALLED.values(), *CALLED_THERE.values()) for field in fields})
)
def test_what_is_told_is_a_field(field: str) -> None:
    *path, name = field.split(".")
    section = section_at(tuple(path))

    assert section is not None
    assert name in section.model_fields


def test_no_name_is_a_field() -> None:
    """It would be taken for a slip where it is right."""
    engine = table(versions()[-1])
    names = {name for config in engine.configs() for name in engine.config(config)}

    assert [key for key in CALLED if sections_with(key) or key in names] == []
    there = {f"{name}.{field}" for name, model in sections() for field in model.model_fields}
    assert there.isdisjoint(CALLED_THERE)


@pytest.mark.parametrize(
    ("name", "meant"), [("num_gpus", "hardware.count"), ("K", "speculative.num_speculative_tokens")]
)
def test_explain_tells_it_too(name: str, meant: str) -> None:
    assert f"did you mean `{meant}`?" in explanation(name).text

"""A field that is written as one key with dots, the way messages name it: the help says how it is typed."""

import pytest

from servespec.schema.parse import parse_spec
from servespec.schema.source import read_source

BASE = "servespec: 1\nmodel: {id: org/name}\nhardware: {gpu: h200}\n"


def told(text: str) -> list[tuple[str, str]]:
    return [(one.code, one.help) for one in parse_spec(read_source(text, "spec.yaml")).diagnostics]


@pytest.mark.parametrize(
    ("line", "help_text"),
    [
        ("model.max_model_len: 16320", "write `max_model_len: 16320` under `model`"),
        ("engine.lowering: auto", "write `engine: {lowering: auto}`"),
        ("scheduler.max_num_seqs: 7", "write `scheduler: {max_num_seqs: 7}`"),
        ('engine.version: "0.33.0"', 'write `engine: {version: "0.33.0"}`'),
        ("engine.env.VLLM_LOGGING_LEVEL: DEBUG", "write `engine: {env: {VLLM_LOGGING_LEVEL: DEBUG}}`"),
        ("engine: {env.VLLM_LOGGING_LEVEL: DEBUG}", "write `env: {VLLM_LOGGING_LEVEL: DEBUG}`"),
        ("memory.gpu_memory_utilization: 0.5", "write `memory: {gpu_memory_utilization: 0.5}`"),
        ("scheduler.enable_chunked_prefill: false", "write `scheduler: {enable_chunked_prefill: false}`"),
        ("compilation.cudagraph_capture_sizes: [1, 2]", "write `compilation: {cudagraph_capture_sizes: [1, 2]}`"),
        (f"serve.host: {'a' * 70}", "write `serve: {host: …}`"),
    ],
)
def test_a_path_is_told_as_sections_with_its_value(line: str, help_text: str) -> None:
    assert told(f"{BASE}{line}\n") == [("S102", help_text)]


@pytest.mark.parametrize("line", ["engine.nope: 1", "serve.port.more: 1", "nope.port: 1", "serve..port: 1"])
def test_a_path_of_no_field_is_a_misspelled_name(line: str) -> None:
    ((code, help_text),) = told(f"{BASE}{line}\n")

    assert code == "S102"
    assert not help_text.startswith("write")


def test_a_field_that_is_needed_is_not_missing_where_it_has_dots() -> None:
    assert told("servespec: 1\nmodel.id: org/name\nhardware.gpu: h200\n") == [
        ("S102", "write `model: {id: org/name}`"),
        ("S102", "write `hardware: {gpu: h200}`"),
    ]

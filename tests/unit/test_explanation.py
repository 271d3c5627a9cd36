"""`explain` knows every field, code and value."""

from typing import Any, get_args

import pytest

from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.facts.engine_fields import table
from servespec.compiler.lower import Lowering
from servespec.render.explanation import explained_names, explanation, spec_fields
from servespec.schema.nearest import nearest
from servespec.schema.value_docs import VALUE_DOCS

FIELDS = {field.path: field for field in spec_fields()}


def words_of(annotation: Any) -> set[str]:
    """The texts that a field takes by name."""
    parts = get_args(annotation)
    return {part for part in parts if isinstance(part, str)} | {word for part in parts for word in words_of(part)}


@pytest.mark.parametrize("path", [path for path, field in FIELDS.items() if words_of(field.info.annotation)])
def test_every_word_that_a_field_takes_has_its_sentence(path: str) -> None:
    """A limit's `unlimited` stands in the text of its own field, and the engine has one name."""
    words = words_of(FIELDS[path].info.annotation) - {"unlimited", "vllm"}

    documented = VALUE_DOCS.get(path) or VALUE_DOCS.get(path.partition(".")[0], {})
    assert words <= set(documented)


def test_no_sentence_is_of_a_word_that_nothing_takes() -> None:
    for path, words in VALUE_DOCS.items():
        taken = words_of(FIELDS[path].info.annotation) if "." in path or path == "performance_mode" else {"auto"}
        assert path == "speculative.method" or set(words) == taken, path
    assert set(VALUE_DOCS["engine.lowering"]) == {"auto", *map(str, Lowering)}


@pytest.mark.parametrize("name", [*DEVICES, *(word for words in VALUE_DOCS.values() for word in words)])
def test_every_value_has_its_page(name: str) -> None:
    found = explanation(name)

    assert found.found
    assert f"`{name}`, a value of " in found.text


def test_a_word_of_several_fields_has_all_its_meanings() -> None:
    text = explanation("auto").text

    assert [line for line in text.splitlines() if line.startswith("`auto`")] == [
        f"`auto`, a value of {path}" for path, words in VALUE_DOCS.items() if "auto" in words
    ]


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("unlimited", "compilation.max_decode_cudagraph_capture_tokens"),
        ("bfloat16", "model.dtype"),
        ("fp8", "memory.kv_cache_dtype"),
        ("FLASH_ATTN", "attention.backend"),
        ("flash_attn", "attention.backend"),
        ("triton", "kernel.moe_backend"),
    ],
)
def test_a_word_of_the_engine_has_its_fields(word: str, field: str) -> None:
    found = explanation(word)

    assert found.found
    assert found.text.startswith(f"`{word}`, a value of ")
    assert field in " ".join(found.text.split()).partition(";")[0].replace(",", "").split()


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("-tp", ["parallel.tensor_parallel_size", "Ranks that share each layer."]),
        ("--model", ["model.id", "such as `Qwen/Qwen3-30B-A3B`, `./models/my-model`"]),
        ("--max-logprobs", ["model.max_logprobs", "type: an integer", "default: 20"]),
        ("--reasoning-parser", ["engine.args.reasoning-parser", "type: a string"]),
        ("VLLM_LOGGING_LEVEL", ["engine.env.VLLM_LOGGING_LEVEL", "default: INFO", "it does not change the plan"]),
        ("VLLM_USE_V2_MODEL_RUNNER", ["engine.model_runner", "it takes `auto`, `v1`, `v2`"]),
        ("speculative.dynamic.up_to", ["speculative.dynamic[].up_to"]),
        ("speculative.dynamic[1].up_to", ["speculative.dynamic[].up_to"]),
        ("model.dtype", ["it takes `auto`, `half`, `float16`, `bfloat16`, `float`, `float32`"]),
    ],
)
def test_a_page_says_what_is_asked_for(name: str, lines: list[str]) -> None:
    found = explanation(name)

    assert found.found
    assert set(lines) <= set(found.text.splitlines())


def test_a_secret_variable_is_not_put_into_a_spec() -> None:
    assert explanation("HF_TOKEN").text.startswith("`HF_TOKEN` may hold a secret: set it in the shell")


@pytest.mark.parametrize("path", ["memory.kv_cache_dtype", "attention.backend", "model.quantization"])
def test_a_field_of_the_engine_lists_what_it_takes(path: str) -> None:
    flag = table("0.33.0").flag({"attention.backend": "attention_backend"}.get(path, path.rpartition(".")[2]))
    assert flag is not None
    text = " ".join(explanation(path).text.split())

    assert "it takes " + ", ".join(f"`{word}`" for word in flag.type.all_choices) in text


def test_a_name_that_is_offered_has_a_page() -> None:
    """Of each kind some: they stand in the order of their kinds."""
    missing = [name for name in explained_names()[::12] if not explanation(name).found]

    assert missing == []


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("eagel3", "eagle3"),
        ("h2000", "h200"),
        ("FULL_DECODE", "FULL_DECODE_ONLY"),
        ("VLLM_LOGING_LEVEL", "VLLM_LOGGING_LEVEL"),
    ],
)
def test_a_value_that_is_misspelled_is_suggested(wrong: str, meant: str) -> None:
    found = explanation(wrong)

    assert not found.found
    assert f"`{meant}`" in found.text or not nearest(wrong, [meant])

"""`explain` knows every field, code and value."""

from typing import Any, get_args

import pytest

from servespec.compiler.facts.devices import DEVICES
from servespec.compiler.lower import Lowering
from servespec.render.explanation import explanation, spec_fields
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
    ("wrong", "meant"), [("eagel3", "eagle3"), ("h2000", "h200"), ("FULL_DECODE", "FULL_DECODE_ONLY")]
)
def test_a_value_that_is_misspelled_is_suggested(wrong: str, meant: str) -> None:
    found = explanation(wrong)

    assert not found.found
    assert f"`{meant}`" in found.text or not nearest(wrong, [meant])

"""What is dumped reads back to the same data, whatever stands in it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from servespec.schema.dump import dump_yaml
from servespec.schema.source import read_source

TRAPS = [
    "", " ", "~", "null", "true", "Yes", "off", "0", "-1", "+1", "017", "0o17", "0x1F", "1_000", "1:30", "1e3", ".5",
    "1.", ".inf", ".nan", "2026-11-30", "=", "<<", "-", "- a", "a: b", "a #b", "#a", "&a", "*a", "!a", "%a", "@a", "`a",
    "{a", "[a", "'a", '"a', "|", ">", "?", "? a", ":", "a:", "a:b", ",", "a\nb", "a\\b", "é", "\U0001f600", "1" * 70,
    "word " * 40, "word " * 40 + "end", "x" * 200, "a -b", "a - b", "...", "---",
]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(TRAPS), st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=5))
@settings(max_examples=400)
def test_it_reads_back(data: dict[str, Any]) -> None:
    assert read_source(dump_yaml(data), "spec.yaml").data == data


@given(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1), st.text("abc: #\n", max_size=20))
@settings(max_examples=100)
def test_a_comment_changes_no_data(data: dict[str, Any], comment: str) -> None:
    text = dump_yaml(data, {(key,): comment for key in data})

    assert read_source(text, "spec.yaml").data == data

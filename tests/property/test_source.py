"""Reading answers anything with data or with findings, and its places hold what they say."""

import json
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from servespec.diagnostics import SpecError
from servespec.render.diagnostics import concise, github, text
from servespec.schema.scalars import plain_scalar
from servespec.schema.source import SpecPath, excerpt_text, read_source
from servespec.schema.values import Refusal, parse_boolean, parse_bytes, parse_count, parse_fraction

PIECES = [
    *"abc01:- \n\t,[]{}#&*!|>'\"%@`?\\~.=<+_",
    "a: ", "\n  ", "\n- ", "&a ", "*a", "<<: ", "---\n", "...\n", "\\U", "\\x", "%YAML 1.2\n", "!!str ",
    "!<x> ", "\r\n", "\r", "\x85", "\u2028", "\ufeff", "漢", "|2\n", ">-\n", "null", "1e9", ": ", "? ",
    "- - ",
]  # fmt: skip
YAML_LIKE = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
ANY_TEXT = st.text(st.characters(), max_size=60)

# What a spec may hold: printable text, numbers that JSON can write, and the rest of plain data.
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"))
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**60), 10**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
DATA = st.dictionaries(
    TEXT,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


def scalar(value: Any) -> str:
    """As JSON, whose scalars are YAML; a float in the form that YAML takes for one."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def block(value: Any, indent: int) -> str:
    """``value`` below its key, in block style."""
    margin = "\n" + "  " * indent
    if isinstance(value, dict) and value:
        return "".join(f"{margin}{scalar(key)}: {block(inner, indent + 1)}" for key, inner in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{margin}- {item(inner, indent + 1)}" for inner in value)
    return scalar(value)


def item(value: Any, indent: int) -> str:
    return block(value, indent).lstrip("\n ") if isinstance(value, list | dict) and value else scalar(value)


def leaves(data: Any, path: SpecPath = ()) -> Iterator[tuple[SpecPath, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    else:
        yield path, data


def between(source_text: str, start: tuple[int, int], end: tuple[int, int]) -> str:
    lines = source_text.split("\n")
    assert start[0] == end[0]
    return lines[start[0] - 1][start[1] - 1 : end[1] - 1]


@settings(max_examples=400)
@given(YAML_LIKE | ANY_TEXT | st.binary(max_size=60) | YAML_LIKE.map(lambda t: t.encode("utf-16")))
@example('a: "\\UFFFFFFFF"')
@example("%YAML " + "9" * 5000 + ".1\n--- a")
@example("a: !%bb x")
def test_anything_gives_data_or_findings(raw: str | bytes) -> None:
    try:
        source = read_source(raw, "spec.yaml")
    except SpecError as refused:
        findings = [diagnostic.to_json() for diagnostic in refused.diagnostics]
        assert findings
        rendered = text(findings, {"spec.yaml": excerpt_text(raw)}, color=False)
        for out in (rendered, concise(findings), github(findings)):
            assert not [c for c in out if c != "\n" and not c.isprintable()]
        return
    assert isinstance(source.data, dict)
    for path, _ in leaves(source.data):
        for found in (source.place_of(path), source.place_of_key(path)):
            assert found.range is not None
            assert found.range.start <= found.range.end


@given(DATA, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_data_comes_back_and_every_place_holds_its_scalar(data: dict[str, Any], end: str, flow: bool) -> None:
    written = scalar(data) if flow or not data else block(data, 0).lstrip("\n")
    source = read_source(written.replace("\n", end), "spec.yaml")

    assert source.data == data
    for path, value in leaves(data):
        found = source.place_of(path).range
        assert found is not None
        at = between(written, (found.start.line, found.start.column), (found.end.line, found.end.column))
        assert at == scalar(value)


@given(DATA)
def test_every_key_is_where_its_place_says(data: dict[str, Any]) -> None:
    written = block(data, 0).lstrip("\n") if data else "{}"
    source = read_source(written, "spec.yaml")

    for path, _ in leaves(data):
        for depth in range(1, len(path) + 1):
            if isinstance(path[depth - 1], str):
                found = source.place_of_key(path[:depth]).range
                assert found is not None
                start, stop = found.start, found.end
                assert between(written, (start.line, start.column), (stop.line, stop.column)) == scalar(path[depth - 1])


@given(st.integers(-(10**60), 10**60) | st.floats(allow_nan=False))
def test_numbers_mean_what_python_means(number: float) -> None:
    written = repr(number).replace("inf", ".inf")

    actual = plain_scalar(written)

    assert (type(actual), actual) == (type(number), number)


@given(ANY_TEXT | st.integers() | st.floats() | st.booleans() | st.none() | st.from_regex(r"[-+0-9.,_kKGiB% ]{1,12}"))
def test_values_are_taken_or_refused(value: object) -> None:
    size, count, fraction, flag = (
        parse_bytes(value),
        parse_count(value),
        parse_fraction(value),
        parse_boolean(value),
    )

    assert isinstance(size, Refusal) or 0 <= size < 2**63
    assert isinstance(count, Refusal) or 0 <= count < 2**63
    assert isinstance(fraction, Refusal) or (0 < fraction <= 1 and math.isfinite(fraction))
    assert isinstance(flag, Refusal) or flag is value


@given(st.integers(0, 2**62))
def test_a_size_in_any_unit_is_its_number_of_bytes(size_bytes: int) -> None:
    for suffix, factor in (("", 1), ("B", 1), ("kB", 10**3), ("MiB", 2**20), ("GB", 10**9), ("GiB", 2**30)):
        whole = size_bytes // factor
        assert parse_bytes(f"{whole}{suffix}") == whole * factor

"""Reading a spec: what is accepted, what is refused, and where each finding points."""

import math

import pytest

from servespec.diagnostics import Diagnostic, Place, Position, Range, SpecError
from servespec.schema import source_rules
from servespec.schema.source import MAX_FILE_BYTES, SpecPath, SpecSource, excerpt_text, read_source
from servespec.schema.source_faults import MAX_FAULTS
from servespec.schema.source_nodes import MAX_DEPTH, MAX_VALUES


def read(raw: bytes | str) -> SpecSource:
    return read_source(raw, "spec.yaml")


def refused(raw: bytes | str) -> tuple[Diagnostic, ...]:
    with pytest.raises(SpecError) as caught:
        read(raw)
    return caught.value.diagnostics


def place(line: int, column: int, end_line: int, end_column: int) -> Place:
    return Place("spec.yaml", Range(Position(line, column), Position(end_line, end_column)))


def brief(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    assert diagnostic.place.range is not None
    start = diagnostic.place.range.start
    return diagnostic.code, start.line, start.column, diagnostic.message


def marked(source: SpecSource, found: Place) -> str:
    """The text of a place within one line."""
    assert found.range is not None
    start, end = found.range.start, found.range.end
    assert start.line == end.line
    return source.text.split("\n")[start.line - 1][start.column - 1 : end.column - 1]


ONE_FAULT = [
    # Syntax
    ("a: b: c", "S005", 1, 5, "a second `:` stands in one line"),
    ("model: Qwen/Qwen3: x\n", "S005", 1, 18, "a second `:` stands in one line"),
    ("model\n  id: x\n", "S005", 2, 5, "a key cannot stand on this line"),
    ("a: 1\n b: 2\n", "S005", 2, 3, "a key cannot stand on this line"),
    ("a: - 1\n", "S005", 1, 4, "a list item `-` cannot start on this line"),
    ("a: 1\nfoo\nb: 2\n", "S005", 2, 1, "this line is neither a key nor part of a value"),
    ("a: [1, 2\n", "S005", 1, 4, "`[` is never closed"),
    ("a: {b: 1\n", "S005", 1, 4, "`{` is never closed"),
    ("a: [1, 2\nb: 3\n", "S005", 2, 2, "`:` stands inside `[...]` where a comma or `]` should"),
    ("a: {b: 1\nc: 2\n", "S005", 2, 2, "`:` stands inside `{...}` where a comma or `}` should"),
    ("a: [b, c}\n", "S005", 1, 9, "`}` stands inside `[...]` where a comma or `]` should"),
    ("a: [1,,2]\n", "S005", 1, 7, "`,` stands where a value should"),
    ("a: ]\n", "S005", 1, 4, "`]` stands where a value should"),
    ("[[[", "S005", 1, 4, "the file ends where a value should stand"),
    ("a: 'x\n", "S005", 1, 4, "the quote is never closed"),
    ("a: 'x\n---\n'", "S005", 1, 4, "the quote is never closed"),
    ("a: 'it's'\n", "S005", 1, 8, "`s'` follows a value that has already ended"),
    ("a: @x\n", "S005", 1, 4, "a value cannot start with `@`"),
    ("a: %x\n", "S005", 1, 4, "a value cannot start with `%`"),
    ("a: `x`\n", "S005", 1, 4, "a value cannot start with a backtick"),
    ("a: *\n", "S005", 1, 4, "`*` starts a value, but no anchor's name follows"),
    ("a: &\n", "S005", 1, 4, "`&` starts a value, but no name follows"),
    ('a: "C:\\models"\n', "S005", 1, 8, "`\\m` is not an escape that YAML knows"),
    ('a: "\\x4"\n', "S005", 1, 7, "an escape has too few hexadecimal digits"),
    ('a: "\\UFFFFFFFF"\n', "S005", 1, 5, "the escape `\\UFFFFFFFF` stands for no character"),
    ('a: "\\U00110000"\n', "S005", 1, 5, "the escape `\\U00110000` stands for no character"),
    ("a: > x\n", "S005", 1, 6, "`x` stands beside the `|` or `>` that starts a text block"),
    ("a:\n    b: 1\n  c: 2\n", "S005", 3, 3, "this line's indentation fits no key above it"),
    ("a:\n  - b\n  c: 1\n", "S005", 3, 3, "`c:` stands where the next `- item` of the list should"),
    ("%FOO\na: 1\n", "S005", 2, 1, "`a:` stands where only `---` may"),
    # Tabs
    ("a:\n\tb: 1\n", "S006", 2, 1, "the line is indented with a tab"),
    ("a:\n  b: 1\n  \tc: 2\n", "S006", 3, 3, "the line is indented with a tab"),
    ("a:\tb\n", "S006", 1, 3, "a tab stands between values"),
    # Characters
    ("a: \0\n", "S002", 1, 4, "the character `U+0000` may not stand in a spec"),
    ("a: 1\nb: \x1b[31m\n", "S002", 2, 4, "the character `U+001B` may not stand in a spec"),
    ("a: 1 # \x7f\n", "S002", 1, 8, "the character `U+007F` may not stand in a spec"),
    ("a: \ud800", "S002", 1, 4, "the character `U+D800` may not stand in a spec"),
    ('a: "\\0"\n', "S002", 1, 4, "an escape stands for the character `U+0000`, which a spec may not hold"),
    (
        'a: "\\ud800"\n',
        "S002",
        1,
        4,
        "an escape stands for the character `U+D800`, which a spec may not hold",
    ),
    (b"a: 1\nb: \xe9\n", "S001", 2, 4, "byte `0xe9` at offset 8 is not UTF-8 text"),
    (b"\xef\xbb\xbfa: \xe9\n", "S001", 1, 4, "byte `0xe9` at offset 6 is not UTF-8 text"),
    ("é: é".encode() + b"\xff", "S001", 1, 5, "byte `0xff` at offset 6 is not UTF-8 text"),
    ("a: 1".encode("utf-16"), "S001", 1, 1, "the file is UTF-16 text, not UTF-8"),
    # The file as a whole
    ("", "S004", 1, 1, "the file holds no spec"),
    ("# only a comment\n", "S004", 1, 1, "the file holds no spec"),
    ("---\n", "S004", 1, 1, "the file holds no spec"),
    ("null\n", "S004", 1, 1, "the file holds no spec"),
    ("\n- a\n- b\n", "S008", 2, 3, "the file is a list, not a mapping"),
    ("[a]\n", "S008", 1, 1, "the file is a list, not a mapping"),
    ("# x\nword\n", "S008", 2, 1, "the file is one value, not a mapping of names to values"),
    ("# x\nservespec:1\n", "S008", 2, 10, "no space follows the colon of `servespec`"),
    ("servespec:1\nmodel: {id: a/b}\n", "S005", 1, 10, "no space follows the colon of `servespec`"),
    ("servespec:1 # v\nmodel: {id: a/b}\n", "S005", 1, 10, "no space follows the colon of `servespec`"),
    ("a:\n  seqs:64\n  tokens: 1\n", "S005", 2, 7, "no space follows the colon of `seqs`"),
    ("a:\n  tokens: 1\n  seqs:64\nb: 1\n", "S005", 3, 7, "no space follows the colon of `seqs`"),
    ("a:\n  url: http://x\n  b\n  c: 1\n", "S005", 3, 3, "this line is neither a key nor part of a value"),
    ("[tool]\nname = 1\n", "S005", 2, 1, "the file is not YAML: this line follows a value that has already ended"),
    ("#!/bin/sh\nvllm serve a/b\n", "S008", 2, 1, "the file is a script, not a spec"),
    ("a: 1\n--- \nb: 2\n", "S009", 2, 1, "a second document starts here; one file holds one spec"),
    ("a: 1\n...\nb: 2\n", "S009", 3, 1, "a second document starts here; one file holds one spec"),
    ("%YAML 1.1\n---\na: 1\n", "S017", 1, 1, "the file asks for YAML `1.1`, not `1.2`"),
    ("# %YAML\n%YAML 1.1\n---\na: 1\n", "S017", 2, 1, "the file asks for YAML `1.1`, not `1.2`"),
    ("%YAML 2.0\n---\na: 1\n", "S017", 1, 1, "the file asks for a version of YAML that does not exist"),
    (
        f"%YAML 1.{'9' * 5000}\n---\na: 1\n",
        "S017",
        1,
        1,
        "the file asks for a version of YAML that does not exist",
    ),
    # Aliases, merges, tags
    ("a: *x\n", "S010", 1, 4, "no anchor `&x` stands above `*x`"),
    ("a: &x\n  b: [1, *x]\n", "S011", 2, 10, "`*x` stands inside `&x` itself"),
    ("a: &x [*x]\n", "S011", 1, 8, "`*x` stands inside `&x` itself"),
    ("a:\n  <<: 3\n", "S016", 2, 3, "`<<` merges a number, not a mapping"),
    ("a: {<<: [{b: 1}, [c]]}\n", "S016", 1, 5, "`<<` merges a list, not a mapping"),
    ("a: !!python/object:os.system x\n", "S015", 1, 4, "the tag `!!python/object:os.system` is not followed"),
    ("a: &x !custom {b: 1}\n", "S015", 1, 7, "the tag `!custom` is not followed"),
    ("a: !h!x 1\n", "S015", 1, 4, "the tag `!h!x` is not followed"),
    ("a: !<x\n", "S015", 1, 4, "the tag `!<x` is not followed"),
    ("!!map\na: 1\n", "S015", 1, 1, "the tag `!!map` is not followed"),
    # Keys
    ("1: x\n", "S014", 1, 1, "the key `1` is a number, not a name"),
    ("a: {null: x}\n", "S014", 1, 5, "the key `null` is null, not a name"),
    ("true: x\n", "S014", 1, 1, "the key `true` is a boolean, not a name"),
    ("? [a]\n: x\n", "S014", 1, 3, "a key is a list, not a name"),
    ("? {a: b}\n: x\n", "S014", 1, 3, "a key is a mapping, not a name"),
    ("a: 1\n: x\n", "S014", 2, 1, "the key before `:` is missing"),
    # Numbers
    (f"a: {'9' * 65}\n", "S018", 1, 4, f"the number `{'9' * 39}…` has more than `64` characters"),
    # Depth
    ("[" * 100_000, "S013", 1, MAX_DEPTH + 1, "values are nested more than `64` deep"),
    ("- " * 10_000, "S013", 1, 2 * MAX_DEPTH + 1, "values are nested more than `64` deep"),
    ("{a: " * 10_000, "S013", 1, 4 * MAX_DEPTH + 1, "values are nested more than `64` deep"),
]


@pytest.mark.parametrize(("raw", "code", "line", "column", "message"), ONE_FAULT)
def test_one_fault_is_named_at_its_place(raw: bytes | str, code: str, line: int, column: int, message: str) -> None:
    findings = refused(raw)

    assert [brief(finding) for finding in findings] == [(code, line, column, message)]
    assert findings[0].help


def test_every_rule_of_reading_fires_in_a_test() -> None:
    elsewhere = {"S003", "S007", "S012", "S019"}

    assert {code for _, code, *_ in ONE_FAULT} | elsewhere == {rule.code for rule in source_rules.RULES}


def test_codes_are_unique_and_in_order() -> None:
    codes = [rule.code for rule in source_rules.RULES]

    assert codes == [f"S{number:03d}" for number in range(1, len(codes) + 1)]
    assert len({rule.name for rule in source_rules.RULES}) == len(codes)


def test_all_faults_are_found_in_one_run_up_to_the_first_of_syntax() -> None:
    findings = refused("1: a\nb: 1\nb: 2\nc: *x\nd: !t 1\ne: [\n")

    assert [(f.code, f.place.range and f.place.range.start.line) for f in findings] == [
        ("S014", 1),
        ("S007", 3),
        ("S010", 4),
        ("S015", 5),
        ("S005", 6),
    ]


@pytest.mark.parametrize(
    ("raw", "second", "first"),
    [
        ("a: 1\nb: 2\na: 3\n", (3, 1, 3, 2), (1, 1, 1, 2)),
        ("a:\n  - {bc: 1, d: 2, bc: 3}\n", (2, 19, 2, 21), (2, 6, 2, 8)),
        ("a: 1\n'a': 2\n", (2, 1, 2, 4), (1, 1, 1, 2)),
        ("&x a: 1\n*x : 2\n", (2, 1, 2, 3), (1, 4, 1, 5)),
        ("b: &b {c: 1}\na:\n  <<: *b\n  d: 1\n  <<: *b\n", (5, 3, 5, 5), (3, 3, 3, 5)),
    ],
)
def test_a_duplicate_key_cites_both_places(
    raw: str, second: tuple[int, int, int, int], first: tuple[int, int, int, int]
) -> None:
    (finding,) = refused(raw)

    assert finding.code == "S007"
    assert finding.place == place(*second)
    assert [related.place for related in finding.related] == [place(*first)]


def test_a_syntax_fault_cites_where_its_construct_began() -> None:
    (finding,) = refused("a: 1\nb: [1, 2\nc: 3\n")

    assert [(r.message, r.place) for r in finding.related] == [("the list begins here", place(2, 4, 2, 5))]


def test_a_misspelled_alias_names_the_anchor_meant() -> None:
    (finding,) = refused("a: &defaults {b: 1}\nc: *default\n")

    assert finding.help == "did you mean `*defaults`?"


def test_a_file_above_the_limit_is_refused_as_a_whole() -> None:
    for raw in ("a" * (MAX_FILE_BYTES + 1), b"a" * 10_000_000, "é" * (MAX_FILE_BYTES // 2 + 1)):
        (finding,) = refused(raw)

        assert finding.code == "S003"
        assert finding.place == Place("spec.yaml")


def test_a_file_at_the_limit_is_read() -> None:
    raw = "a: b #" + "x" * (MAX_FILE_BYTES - 6)

    assert read(raw).data == {"a": "b"}


def test_aliases_of_aliases_are_refused_before_they_take_memory() -> None:
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)]

    (finding,) = refused("\n".join(lines))

    assert brief(finding)[:2] == ("S012", 5)


def test_merges_of_merges_are_refused_before_they_take_time() -> None:
    keys = ", ".join(f"k{number}: 1" for number in range(1000))

    (finding,) = refused(f"a: &a {{{keys}}}\nb:\n  c: [{'*a,' * 10}]\n  <<: [{'*a,' * 95}]\n")

    assert brief(finding)[:3] == ("S012", 4, 3)


def test_values_are_counted_up_to_the_limit() -> None:
    # The root, the key's list, and its items.
    assert len(read(f"a: [{'1,' * (MAX_VALUES - 2)}]").data["a"]) == MAX_VALUES - 2
    assert [f.code for f in refused(f"a: [{'1,' * (MAX_VALUES - 1)}]")] == ["S012"]


def test_nesting_is_counted_through_aliases() -> None:
    half = MAX_DEPTH // 2
    inner = "[" * half + "]" * half

    assert read(f"a: &a {inner}\nb: {'[' * (half - 1)}*a{']' * (half - 1)}\n").data["a"]
    (finding,) = refused(f"a: &a {inner}\nb: {'[' * half}*a{']' * half}\n")
    assert brief(finding)[:3] == ("S013", 2, 4 + half)


def test_a_flood_of_faults_is_cut() -> None:
    findings = refused("".join(f"{number}: x\n" for number in range(1000)))

    assert len(findings) == MAX_FAULTS + 1
    assert findings[-1].code == "S019"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("", None), ("~", None), ("null", None), ("Null", None),
        ("true", True), ("False", False), ("TRUE", True),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("nUll", "nUll"),
        ("12", 12), ("-3", -3), ("+3", 3), ("010", 10), ("0o17", 15), ("0x1F", 31), ("0b1", "0b1"),
        ("1_024", "1_024"), ("1:30", "1:30"), ("9" * 64, int("9" * 64)),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-.5E-1", -0.05), (".", "."), ("-x", "-x"),
        (".inf", math.inf), ("-.Inf", -math.inf), ("inf", "inf"), ("nan", "nan"),
        ("2024-01-01", "2024-01-01"), ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("'12'", "12"), ('"true"', "true"), ("''", ""), ("90%", "90%"), ("=", "="), ("'it''s'", "it's"),
        ('"\\u00e9\\n"', "é\n"), ('"\\/"', "/"), ("a'b", "a'b"), ("x#y", "x#y"), ("x #y", "x"),
        ("a:b", "a:b"),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(written: str, value: object) -> None:
    actual = read(f"a: {written}\n").data["a"]

    assert (type(actual), actual) == (type(value), value)


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(read("a: .nan\n").data["a"])


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        ("a: 1\r\nb:\r\n  - x\r\n  - y: 1\r\n", {"a": 1, "b": ["x", {"y": 1}]}),
        ("a: 1\rb: 2", {"a": 1, "b": 2}),
        ("a: 1", {"a": 1}),
        ("{a: 1, 'b c': [2, {d: ~}]}", {"a": 1, "b c": [2, {"d": None}]}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("%YAML 1.2\n---\na: 1\n", {"a": 1}),
        ("ключ: значение\n漢字: 😀\n", {"ключ": "значение", "漢字": "😀"}),
        ('"a": 1\n"1": 2\n', {"a": 1, "1": 2}),
        ("a: |\n  one\n  two\nb: >-\n  three\n  four\n", {"a": "one\ntwo\n", "b": "three four"}),
        ("a:\n- 1\n-\n- - 2\n  - 3\n", {"a": [1, None, [2, 3]]}),
        ("? a\n: 1\n", {"a": 1}),
        ("a: {}\nb: []\n", {"a": {}, "b": []}),
        ("a: 'x\n\ty'\n", {"a": "x y"}),
        ("'<<': {a: 1}\n", {"<<": {"a": 1}}),
    ],
)
def test_what_yaml_allows_is_read(raw: str, data: dict[str, object]) -> None:
    assert read(raw).data == data


def test_a_merge_fills_in_what_the_mapping_does_not_say() -> None:
    raw = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\nd: {<<: *a}\n"

    source = read(raw)

    assert source.data["c"] == {"x": 3, "y": 1, "z": 2}
    assert source.data["d"] == {"x": 1, "y": 1}


def test_each_use_of_an_alias_is_a_copy() -> None:
    data = read("a: &a {x: [1]}\nb: *a\n").data

    assert data["b"] == data["a"]
    assert data["b"] is not data["a"]
    assert data["b"]["x"] is not data["a"]["x"]


def test_an_anchor_may_be_set_again() -> None:
    assert read("a: &x 1\nb: *x\nc: &x 2\nd: *x\n").data == {"a": 1, "b": 1, "c": 2, "d": 2}


SPEC = """\
servespec: 1
model: {id: org/model, revision:
  null}
base: &base
  method: eagle3   # kept
  dynamic:
    - up_to: 16
      k: 7
    -   - nested
    - &n 3
speculative:
  <<: *base
  model: &m org/draft
copy: *m
whole: *base
empty:
text: |
  one
  two

"quoted key" : 'it''s'
"""

PLACES: list[tuple[SpecPath, tuple[int, int, int, int], tuple[int, int, int, int]]] = [
    (("servespec",), (1, 12, 1, 13), (1, 1, 1, 10)),
    (("model",), (2, 8, 3, 8), (2, 1, 2, 6)),
    (("model", "id"), (2, 13, 2, 22), (2, 9, 2, 11)),
    (("model", "revision"), (3, 3, 3, 7), (2, 24, 2, 32)),
    (("base",), (4, 1, 4, 5), (4, 1, 4, 5)),
    (("base", "method"), (5, 11, 5, 17), (5, 3, 5, 9)),
    (("base", "dynamic"), (6, 3, 6, 10), (6, 3, 6, 10)),
    (("base", "dynamic", 0), (7, 7, 7, 12), (7, 7, 7, 12)),
    (("base", "dynamic", 0, "k"), (8, 10, 8, 11), (8, 7, 8, 8)),
    (("base", "dynamic", 1), (9, 11, 9, 17), (9, 11, 9, 17)),
    (("base", "dynamic", 1, 0), (9, 11, 9, 17), (9, 11, 9, 17)),
    (("base", "dynamic", 2), (10, 10, 10, 11), (10, 10, 10, 11)),
    (("speculative",), (11, 1, 11, 12), (11, 1, 11, 12)),
    (("speculative", "method"), (5, 11, 5, 17), (5, 3, 5, 9)),
    (("speculative", "model"), (13, 13, 13, 22), (13, 3, 13, 8)),
    (("copy",), (14, 7, 14, 9), (14, 1, 14, 5)),
    (("whole",), (15, 1, 15, 6), (15, 1, 15, 6)),
    (("whole", "dynamic", 0, "up_to"), (7, 14, 7, 16), (7, 7, 7, 12)),
    (("empty",), (16, 1, 16, 6), (16, 1, 16, 6)),
    (("text",), (17, 7, 19, 6), (17, 1, 17, 5)),
    (("quoted key",), (21, 16, 21, 23), (21, 1, 21, 13)),
    # Missing paths point at the key of the nearest parent.
    (("model", "missing"), (2, 1, 2, 6), (2, 1, 2, 6)),
    (("base", "dynamic", 9), (6, 3, 6, 10), (6, 3, 6, 10)),
    (("base", "dynamic", 0, "missing", 3), (7, 7, 7, 12), (7, 7, 7, 12)),
    (("base", "dynamic", "up_to"), (6, 3, 6, 10), (6, 3, 6, 10)),
    (("base", 0), (4, 1, 4, 5), (4, 1, 4, 5)),
    (("whole", "missing"), (15, 1, 15, 6), (15, 1, 15, 6)),
    (("missing",), (1, 1, 1, 1), (1, 1, 1, 1)),
    ((), (1, 1, 1, 1), (1, 1, 1, 1)),
]


@pytest.mark.parametrize(("path", "value", "key"), PLACES)
def test_places(path: SpecPath, value: tuple[int, int, int, int], key: tuple[int, int, int, int]) -> None:
    source = read(SPEC)

    assert source.place_of(path) == place(*value)
    assert source.place_of_key(path) == place(*key)


def test_columns_count_characters_after_a_byte_order_mark() -> None:
    source = read("\ufeff漢字: 😀😀, é\n".encode())

    assert source.place_of(("漢字",)) == place(1, 5, 1, 10)
    assert source.text == "漢字: 😀😀, é\n"


def test_lines_end_as_they_do_in_an_editor() -> None:
    source = read("a: 'x\u2028\x85'\r\nb: 1\rc: 2\n")

    assert [source.place_of((key,)).range for key in "bc"] == [
        Range(Position(2, 4), Position(2, 5)),
        Range(Position(3, 4), Position(3, 5)),
    ]


def test_data_without_text_has_whole_file_places() -> None:
    source = SpecSource("command line", "", {"a": {"b": 1}})

    assert source.place_of(("a", "b")) == Place("command line")
    assert source.place_of_key(("a", "b")) == Place("command line")


def test_the_text_is_kept_as_it_was() -> None:
    assert read(SPEC.encode()).text == SPEC
    assert marked(read(SPEC), read(SPEC).place_of(("base", "method"))) == "eagle3"


def test_the_excerpt_text_refuses_nothing() -> None:
    assert excerpt_text(b"\xef\xbb\xbfa: \xff") == "a: �"
    assert excerpt_text("\ufeffa") == "a"

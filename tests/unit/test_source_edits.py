"""Pairs replaced in a text, character by character; whatever else stands there stays."""

import pytest

from servespec.schema.source import read_source
from servespec.schema.source_edits import PairEdits, edited

RENAME = PairEdits(section="s", renamed={"old": "new"}, added={"more": (1, 2)})
REPLACE = PairEdits(section="s", replaced={"old": ("new", (7, 8))}, deleted=("gone",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s: {old: [1, 2], b: 2}\n", "s: {more: [1, 2], new: [1, 2], b: 2}\n"),
        ("s:\n  b: 2 # two\n  old: &x 5 # five\n", "s:\n  b: 2 # two\n  more: [1, 2]\n  new: &x 5 # five\n"),
        ("s:\r\n  old: 5\r\n", "s:\r\n  more: [1, 2]\r\n  new: 5\r\n"),
        ("s:\n  old:\n  - 5 # five\n", "s:\n  more: [1, 2]\n  new:\n  - 5 # five\n"),
        ('{"s": {"old": 5}}', '{"s": {"more": [1, 2], "new": 5}}'),
        ('{"s": {\n  "old": 5}}', '{"s": {\n  "more": [1, 2],\n  "new": 5}}'),
        ("a: &v 5\ns: {old: *v}\n", "a: &v 5\ns: {more: [1, 2], new: *v}\n"),
    ],
)
def test_a_renamed_pair_keeps_its_value(text: str, expected: str) -> None:
    assert edited(read_source(text, "t"), RENAME) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s: {old: 1, gone: 2}\n", "s: {new: [7, 8]}\n"),
        ("s: {gone: 2, old: 1}\n", "s: {new: [7, 8]}\n"),
        ("s: {gone: 2, old: 1, b: 3}\n", "s: {new: [7, 8], b: 3}\n"),
        ("s: {b: 3,\n  gone: 2, old: 1}\n", "s: {b: 3,\n  new: [7, 8]}\n"),
        ("s:\n  old: [1, 2] # one\n  gone: 2\n  b: 3\n", "s:\n  new: [7, 8] # one\n  b: 3\n"),
        ("s:\n  old: 1\n  gone: 2 # two\n", "s:\n  new: [7, 8]\n  # two\n"),
        ("s:\n  gone: 2\n  old: 1", "s:\n  new: [7, 8]"),
        (
            "s:\n  old:\n    - 1 # one\n    # two\n    - 2\n  # three\n  gone: 3\n",
            "s:\n  # one\n  # two\n  new: [7, 8]\n  # three\n",
        ),
    ],
)
def test_a_replaced_pair_keeps_its_comments(text: str, expected: str) -> None:
    assert edited(read_source(text, "t"), REPLACE) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a: &v {old: 1, gone: 2}\ns: {<<: *v}\n",
        "a: &v 1\ns: {old: *v, gone: 2}\n",
        "a: &v {old: 1, gone: 2}\ns: *v\n",
    ],
)
def test_what_does_not_stand_there_is_not_edited(text: str) -> None:
    assert edited(read_source(text, "t"), REPLACE) is None

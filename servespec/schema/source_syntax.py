"""What a YAML reader's complaint means to a person: which mistake is the likely one, and what to type.

A reader says which token it did not expect.  Each row of the table turns one such complaint into a message
about the file; what no row knows is passed on in the reader's own words.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Complaint:
    """What the reader said: ``problem`` while ``context``.

    ``before`` is the line up to the place, ``rest`` the text from the place on.
    """

    context: str
    problem: str
    before: str
    rest: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """``context`` names the construct that the place is part of.

    ``at_context`` puts the finding where that construct began and not where the reader gave up.
    """

    message: str
    help: str
    context: str
    at_context: bool = False


@dataclass(frozen=True, slots=True)
class _Row:
    context: str
    problem: str
    message: str
    help: str
    at_context: bool = False
    before: str = ""

    def matches(self, complaint: Complaint) -> bool:
        return (
            re.match(self.context, complaint.context) is not None
            and re.match(self.problem, complaint.problem, re.DOTALL) is not None
            and re.search(self.before, complaint.before) is not None
        )


_FLOW_SEQUENCE = "while parsing a flow sequence"
_FLOW_MAPPING = "while parsing a flow mapping"
_BLOCK_MAPPING = "while parsing a block mapping"
_BLOCK_LIST = "while parsing a block collection"
_DOUBLE_QUOTED = "while scanning a double-quoted scalar"
_QUOTED = "while scanning a quoted scalar"

# The first row that matches counts. `{token}` is what stands at the place, cut to one word.
_ROWS = (
    _Row(
        "",
        "mapping values are not allowed",
        "a second `:` stands in one line",
        "put a value that holds `: ` in quotes, or start the inner key on a line of its own, indented",
        before=r":\s",
    ),
    _Row(
        "",
        "mapping values are not allowed",
        "a key cannot stand on this line",
        "end the line above with `:` if that line is a key, or align this key with those beside it",
    ),
    _Row(
        "",
        "sequence entries are not allowed",
        "a list item `-` cannot start on this line",
        "put each `- item` on a line of its own below the key, or write the list as `[a, b]`",
    ),
    _Row("", "mapping keys are not allowed", "a key cannot start here", "start the key on a line of its own"),
    _Row(
        "while scanning a simple key",
        "could not find expected ':'",
        "this line is neither a key nor part of a value",
        "write it as `key: value`, with a space after the colon, or indent it to continue the value above",
        at_context=True,
    ),
    _Row(
        _FLOW_SEQUENCE,
        "expected ',' or .*stream end",
        "`[` is never closed",
        "add `]` after the last item",
        at_context=True,
    ),
    _Row(
        _FLOW_MAPPING,
        "expected ',' or .*stream end",
        "`{{` is never closed",
        "add `}}` after the last value",
        at_context=True,
    ),
    _Row(
        _FLOW_SEQUENCE,
        "expected ',' or",
        "`{token}` stands inside `[...]` where a comma or `]` should",
        "close the list with `]`, separate its items with commas, or put an item with special characters in quotes",
    ),
    _Row(
        _FLOW_MAPPING,
        "expected ',' or",
        "`{token}` stands inside `{{...}}` where a comma or `}}` should",
        "close the mapping with `}}`, separate its pairs with commas, or put a value with special characters in quotes",
    ),
    _Row(
        "while parsing a",
        "expected the node content, but found .*stream end",
        "the file ends where a value should stand",
        "close every `[` with `]` and every `{{` with `}}`",
    ),
    _Row(
        "while parsing a",
        "expected the node content",
        "`{token}` stands where a value should",
        "write the value, or put it in quotes if it is text that starts like this",
    ),
    _Row(
        _BLOCK_MAPPING,
        ".*block mapping start",
        "this line's indentation fits no key above it",
        "align the key with the keys beside it, with spaces",
    ),
    _Row(
        _BLOCK_MAPPING,
        ".*block (sequence start|entry)|.*found '-'",
        "a list item stands among the keys of a mapping",
        "indent the `-` below the key that the list belongs to",
    ),
    _Row(
        _BLOCK_MAPPING,
        ".*found '<scalar>'",
        "`{token}` follows a value that has already ended",
        "put the whole value in one pair of quotes; inside '...' a quote is written ''",
    ),
    _Row(
        _BLOCK_LIST,
        ".*",
        "`{token}` stands where the next `- item` of the list should",
        "start it with `- `, or align it with the key that the list belongs to",
    ),
    _Row(
        _BLOCK_MAPPING,
        ".*",
        "`{token}` stands where the next key of the mapping should",
        "start the line with `key: `, aligned with the keys beside it",
    ),
    _Row(
        _DOUBLE_QUOTED,
        "found unknown escape",
        "`\\{token[0]}` is not an escape that YAML knows",
        "write the text in single quotes, where a backslash is just a backslash, or double the backslash",
    ),
    _Row(
        _DOUBLE_QUOTED,
        "expected escape sequence",
        "an escape has too few hexadecimal digits",
        "write the text in single quotes, where a backslash is just a backslash, or double the backslash",
    ),
    _Row(
        _QUOTED,
        "found unexpected end",
        "the quote is never closed",
        "close it with the same quote character",
        at_context=True,
    ),
    _Row(
        _QUOTED,
        "found unexpected document",
        "the quote is never closed",
        "close it with the same quote character before the `---` or `...` line",
        at_context=True,
    ),
    _Row(
        "while scanning an alias",
        "expected alphabetic",
        "`*` starts a value, but no anchor's name follows",
        "put the value in quotes if `*` is text, or write `*name`",
        at_context=True,
    ),
    _Row(
        "while scanning an anchor",
        "expected alphabetic",
        "`&` starts a value, but no name follows",
        "put the value in quotes if `&` is text, or write `&name value`",
        at_context=True,
    ),
    _Row(
        "while scanning a block scalar",
        ".*",
        "`{token}` stands beside the `|` or `>` that starts a text block",
        "put the text on the next lines, indented, or put a value that starts with `|` or `>` in quotes",
    ),
    _Row(
        "more indented follow up line",
        ".*",
        "the first lines of a text block are indented deeper than its text",
        "indent the lines of the block alike",
    ),
    _Row(
        r"while (scanning|parsing) an? directive",
        ".*",
        "a line that starts with `%` is a directive",
        "delete the line",
    ),
    _Row(
        "while scanning for the next token",
        "found character '`'",
        "a value cannot start with a backtick",
        "put the value in quotes",
    ),
    _Row(
        "while scanning for the next token",
        "found character",
        "a value cannot start with `{token[0]}`",
        "put the value in quotes",
    ),
    _Row(
        "",
        "expected '<document start>'",
        "`{token}` stands where only `---` may",
        "align it with the keys above, or delete the lines above it that start with `%`",
    ),
    _Row(
        "",
        "found non-comment content after document end",
        "`{token}` stands after the end of the spec",
        "delete what follows `...`",
    ),
    _Row("", "(found )?duplicate", "the same directive stands twice", "delete the line"),
)

_CONTEXTS = {
    _FLOW_SEQUENCE: "the list",
    _FLOW_MAPPING: "the mapping",
    _BLOCK_MAPPING: "the mapping",
    _BLOCK_LIST: "the list",
    _DOUBLE_QUOTED: "the text",
    _QUOTED: "the text",
    "while scanning a block scalar": "the text",
}
_LONGEST_TOKEN = 24


def explain(complaint: Complaint) -> Explanation:
    """The likeliest mistake behind ``complaint``."""
    row = next((row for row in _ROWS if row.matches(complaint)), None)
    context = _CONTEXTS.get(complaint.context, "what it is part of")
    if row is None:
        message = f"this is not YAML: {_in_one_line(complaint)}"
        return Explanation(message, "check this line and the one before it", context)
    token = _token(complaint.rest)
    return Explanation(row.message.format(token=token), row.help.format(), context, row.at_context)


def _token(rest: str) -> str:
    word = re.match(r"[^\s,\[\]{}]+|\S", rest)
    return word[0][:_LONGEST_TOKEN] if word else " "


def _in_one_line(complaint: Complaint) -> str:
    return " ".join(f"{complaint.problem} {complaint.context}".split())

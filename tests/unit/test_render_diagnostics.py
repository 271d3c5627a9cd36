"""Findings as people and machines read them."""

from typing import Any

import pytest

from servespec.diagnostics import Place, Position, Range, Related, Rule, Severity
from servespec.render.diagnostics import concise, envelope, github, printable, summary, text

ERROR = Rule("S101", "unknown-key", Severity.ERROR, "a key is not known", "")
WARNING = Rule("P201", "oversized", Severity.WARNING, "an entry is dropped", "")
NOTE = Rule("P202", "remedy", Severity.NOTE, "a remedy is off", "")

ONE_LINE = Range(Position(2, 3), Position(2, 6))
SPEC = "model: x\n  abc: 1\nlast: 2\n"


def finding(
    rule: Rule = ERROR,
    where: Range | None = ONE_LINE,
    message: str = "the key `abc` is not known",
    help_text: str = "",
    file: str = "spec.yaml",
) -> dict[str, Any]:
    return rule.at(Place(file, where), message, help_text).to_json()


def line(first: int, last: int, number: int = 1) -> Range:
    return Range(Position(number, first), Position(number, last))


def excerpt(source: str, where: Range, width: int = 80) -> list[str]:
    """The source line and the marks below it."""
    return text([finding(where=where)], {"spec.yaml": source}, color=False, width=width).split("\n")[3:5]


def test_a_finding_as_text() -> None:
    one = ERROR.at(
        Place("spec.yaml", ONE_LINE),
        "the key `abc` is not known",
        "write `abd`, which is the only other key that this section of a spec takes in version 1",
        [Related("the section begins here", Place("spec.yaml", line(1, 6)))],
    ).to_json()

    assert text([one], {"spec.yaml": SPEC}, color=False) == (
        "error[S101]: the key `abc` is not known\n"
        " --> spec.yaml:2:3\n"
        "  |\n"
        "2 |   abc: 1\n"
        "  |   ^^^\n"
        " ::: spec.yaml:1:1: the section begins here\n"
        "  |\n"
        "1 | model: x\n"
        "  | -----\n"
        "  = help: write `abd`, which is the only other key that this section of a spec\n"
        "          takes in version 1\n"
        "\n"
        "1 error in spec.yaml\n"
    )


def test_the_gutter_is_as_wide_as_the_longest_line_number() -> None:
    source = "\n" * 99 + "abc: 1\n"
    here = Related("here", Place("spec.yaml", line(1, 1, 9)))
    one = ERROR.at(Place("spec.yaml", line(1, 4, 100)), "m", related=[here]).to_json()

    assert text([one], {"spec.yaml": source}, color=False).split("\n")[1:9] == [
        "   --> spec.yaml:100:1",
        "    |",
        "100 | abc: 1",
        "    | ^^^",
        "   ::: spec.yaml:9:1: here",
        "    |",
        "  9 |",
        "    | -",
    ]


def test_no_finding_is_no_text() -> None:
    assert text([], {}, color=False) == ""


@pytest.mark.parametrize(
    ("findings", "line_of_counts"),
    [
        ([finding()], "1 error in spec.yaml"),
        ([finding(), finding(), finding(WARNING)], "2 errors, 1 warning in spec.yaml"),
        ([finding(NOTE), finding(WARNING, file="b.yaml")], "1 warning, 1 note in 2 files"),
    ],
)
def test_the_summary_counts(findings: list[dict[str, Any]], line_of_counts: str) -> None:
    assert summary(findings) == line_of_counts
    assert text(findings, {}, color=False).split("\n")[-2] == line_of_counts


def test_without_its_file_a_finding_has_no_excerpt() -> None:
    assert text([finding()], {}, color=False).split("\n")[:3] == [
        "error[S101]: the key `abc` is not known",
        " --> spec.yaml:2:3",
        "",
    ]


def test_a_finding_about_a_whole_file_names_the_file() -> None:
    assert text([finding(where=None)], {"spec.yaml": SPEC}, color=False).split("\n")[1] == " --> spec.yaml"


@pytest.mark.parametrize(
    ("source", "where", "shown", "marks"),
    [
        ("漢字: 値 x", line(1, 3), "漢字: 値 x", "^^^^"),
        ("漢字: 値 x", line(5, 6), "漢字: 値 x", "      ^^"),
        ("e\u0301: x", line(4, 5), "e\u0301: x", "  ^"),
        ("a:\tb", line(4, 5), "a:    b", "      ^"),
        ("\ta: b", line(1, 2), "    a: b", "^^^^"),
        ("a: \x1b[31mred", line(4, 5), "a: <U+001B>[31mred", "   ^^^^^^^^"),
        ("a: \u202eabc", line(5, 8), "a: <U+202E>abc", "           ^^^"),
        ("a: b", line(5, 5), "a: b", "    ^"),
        ("a: b", line(90, 95), "a: b", "    ^"),
        ("a: b\r\nc: d", line(4, 5, 2), "c: d", "   ^"),
        ("a: 'x\u2028y'\nc: d", line(4, 5, 2), "c: d", "   ^"),
        ("\ufeffa: b", line(1, 2), "a: b", "^"),
        ("a: {b:\n  c}", Range(Position(1, 4), Position(2, 5)), "a: {b:", "   ^^^"),
        ("a: b", line(1, 1, 7), "", "^"),
    ],
)
def test_marks_stand_below_what_they_mark(source: str, where: Range, shown: str, marks: str) -> None:
    number = where.start.line

    assert excerpt(source, where) == [f"{number} | {shown}".rstrip(), f"  | {marks}"]


def test_a_long_line_is_cut_around_the_mark() -> None:
    source = f"{'a' * 200}BCD{'e' * 200}"

    shown, marks = excerpt(source, line(201, 204), width=40)

    assert shown == f"1 | …{'a' * 11}BCD{'e' * 20}…"
    assert marks == f"  | {' ' * 12}^^^"
    assert len(shown) == 40


@pytest.mark.parametrize(
    ("source", "where", "shown", "marks"),
    [
        ("BCD" + "e" * 200, line(1, 4), f"BCD{'e' * 31}…", "^^^"),
        ("a" * 200 + "BCD", line(201, 204), f"…{'a' * 31}BCD", f"{' ' * 32}^^^"),
        ("漢" * 200, line(100, 101), f"…{'漢' * 17}…", f"{' ' * 11}^^"),
        ("a" * 300, line(1, 301), f"{'a' * 34}…", "^" * 34),
    ],
)
def test_a_cut_line_shows_as_much_as_fits(source: str, where: Range, shown: str, marks: str) -> None:
    assert excerpt(source, where, width=40) == [f"1 | {shown}", f"  | {marks}"]


def test_a_very_long_line_is_answered_at_once() -> None:
    findings = [finding(where=line(100_000 + n, 100_001 + n)) for n in range(100)]

    lines = text(findings, {"spec.yaml": "x" * 250_000}, color=False).split("\n")

    assert max(map(len, lines)) <= 80


def test_colour_changes_nothing_else() -> None:
    findings = [finding(help_text="write `abd`"), finding(WARNING), finding(NOTE)]
    plain = text(findings, {"spec.yaml": SPEC}, color=False)
    colored = text(findings, {"spec.yaml": SPEC}, color=True)

    for code in ("\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[1;36m"):
        assert code in colored
        colored = colored.replace(code, "")
    assert colored == plain
    assert "\x1b" not in plain


def test_what_a_file_holds_cannot_drive_a_terminal() -> None:
    hostile = finding(message="the key `\x1b]0;x\x07` is\nnot known", help_text="\x9b31m", file="a\u202eb.yaml")

    for rendered in (
        text([hostile], {"a\u202eb.yaml": "\x1b[2J\n\x1b[2J\n"}, color=False),
        concise([hostile]),
        github([hostile]),
    ):
        assert not [c for c in rendered if c != "\n" and not c.isprintable()]
    assert concise([hostile]).count("\n") == 1


def test_printable_spells_out() -> None:
    assert printable("a \x1b\xa0\u200b\ue000漢😀") == "a <U+001B><U+00A0><U+200B><U+E000>漢😀"


def test_a_long_message_is_wrapped() -> None:
    message = " ".join(["word"] * 30)

    lines = text([finding(message=message)], {}, color=False).split("\n")

    assert lines[:3] == [
        "error[S101]: " + " ".join(["word"] * 13),
        "  " + " ".join(["word"] * 15),
        "  word word",
    ]


def test_concise() -> None:
    assert concise([finding(help_text="x"), finding(WARNING, where=None, message="m")]) == (
        "spec.yaml:2:3: error[S101] the key `abc` is not known\nspec.yaml: warning[P201] m\n"
    )


def test_github_annotations_escape_what_the_runner_reads() -> None:
    one = finding(message="100% of a, b: c", help_text="write 50%", file="dir,a:b%.yaml")

    assert github([one]) == (
        "::error file=dir%2Ca%3Ab%25.yaml,line=2,endLine=2,col=3,endColumn=5,title=S101 unknown-key"
        "::100%25 of a, b: c%0Ahelp: write 50%25\n"
    )


def test_github_annotations_of_other_severities_and_ranges() -> None:
    several = Range(Position(2, 3), Position(4, 1))

    assert github(
        [finding(WARNING, several, "m"), finding(NOTE, None, "m"), finding(where=line(3, 3), message="m")]
    ) == (
        "::warning file=spec.yaml,line=2,endLine=4,title=P201 oversized::m\n"
        "::notice file=spec.yaml,title=P202 remedy::m\n"
        "::error file=spec.yaml,line=1,endLine=1,col=3,endColumn=3,title=S101 unknown-key::m\n"
    )


def test_the_envelope_counts_and_judges() -> None:
    findings = [finding(), finding(WARNING), finding(NOTE)]

    assert envelope(findings) == {
        "format": 1,
        "valid": False,
        "error_count": 1,
        "warning_count": 1,
        "diagnostics": findings,
    }
    assert envelope([finding(WARNING)])["valid"] is True

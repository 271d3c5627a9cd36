"""Scripts taken apart by hand, and beside a real shell."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servespec.compiler.command_line.shell_text import shell_commands

BASH = shutil.which("bash")


def words_of(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in shell_commands(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run a b # c\nrun 'd e' \"f g\"", [["run", "a", "b"], ["run", "d e", "f g"]]),
        ("run a \\\n  b\r\nrun \\\r\n c", [["run", "a", "b"], ["run", "c"]]),
        ("run a && run b || run c; run d | run e &", [["run", one] for one in "abcde"]),
        ("run a > log 2>&1 < in >> more &> all b", [["run", "a", "b"]]),
        ("A=x; run $A ${A} \"$A\" '$A' \\$A ${B:-y} ${B-z}", [["run", "x", "x", "x", "$A", "$A", "y", "z"]]),
        ('A="x y"; run $A "$A" z$A', [["run", "x", "y", "x y", "zx", "y"]]),
        ('A=(p "q r" # s\n t); A+=(u); run "${A[@]}" $A', [["run", "p", "q r", "t", "u", "p", "q", "r", "t", "u"]]),
        ('A=x; A+=" y"; run $A', [["run", "x", "y"]]),
        ("X=1 Y='2 3' run a", [["X=1", "Y=2 3", "run", "a"]]),
        ("cat <<EOF > f\nrun hidden\nEOF\nrun a", [["cat"], ["run", "a"]]),
        ('run \'{"a": "$b"}\' {"c":1} "{\\"d\\": 2}"', [["run", '{"a": "$b"}', "{c:1}", '{"d": 2}']]),
        ("$ run a", [["run", "a"]]),
        ("if true; then\n run a\nelse { exec run b; }; fi", [["if", "true"], ["run", "a"], ["run", "b"], ["fi"]]),
        ("run ''", [["run", ""]]),
        ("A=; run $A b", [["run", "b"]]),
        ("run 'open", [["run", "open"]]),
    ],
)
def test_commands_by_hand(text: str, expected: list[list[str]]) -> None:
    assert words_of(text) == expected


def test_what_nothing_sets_is_named() -> None:
    command = next(shell_commands('export H="$TOKEN"\nA=$1\nrun $A "${B}" $(nproc) `date` c'))

    assert [word.text for word in command.exported] == ["H=$TOKEN"]
    assert [word.unset for word in (*command.exported, *command.words)] == [
        ("$TOKEN",), (), ("$1",), ("${B}",), ("$(nproc)",), ("`date`",), (),
    ]  # fmt: skip


def test_each_command_sees_the_variables_above_it() -> None:
    text = "export A=1\nrun a\nexport B=2 A=3\nC=4\nrun b\nexport C\nrun c"

    assert [[word.text for word in command.exported] for command in shell_commands(text)] == [
        ["A=1"], ["A=3", "B=2"], ["A=3", "B=2", "C=4"],
    ]  # fmt: skip


def test_a_word_knows_where_it_stands() -> None:
    text = "\n  run 'a b'  c"
    (command,) = shell_commands(text)

    assert [text[slice(*word.span)] for word in command.words] == ["run", "'a b'", "c"]


pieces = st.one_of(
    st.sampled_from(["a", "b-c", "--x=1", "'p q'", '"r s"', '"${V}"', "${V}", "${W}", '"${L[@]}"', "\\ ", "\\'",
                     '"\\"t"', "''", "{}", '{"k":1}', "u#v", "'$V'", "${N:-d}", "=", "x~y", "\\\n", "'\\'", '"\\a"']),
    st.text("abc019_-=,:/[]", min_size=1, max_size=5),
)  # fmt: skip
arguments = st.lists(st.lists(pieces, min_size=1, max_size=3).map("".join), max_size=5)
separators = st.sampled_from(["\n", "; ", " && ", " # told\n", " 2>&1\n", " > /dev/null\n", "  \\\n  \n"])


@pytest.mark.skipif(BASH is None, reason="no bash")
@settings(max_examples=200)
@given(st.lists(st.tuples(arguments, separators), min_size=1, max_size=4), st.text("xy ", max_size=4))
def test_a_real_shell_takes_scripts_apart_alike(lines: list[tuple[list[str], str]], value: str) -> None:
    """Without patterns and home folders, in whose place a shell puts names of files."""
    script = f"V='{value}'\nW=w\nL=(l 'm n')\n"
    script += "".join(f"run {' '.join(words)}{separator}" for words, separator in lines) + "true\n"
    program = "set -f\nrun() { printf '%s\\0' run \"$@\" >&3; printf '\\n\\0' >&3; }\n" + script

    assert BASH is not None
    done = subprocess.run(
        [BASH, "-c", f"exec 3>&1 1>/dev/null\n{program}"], capture_output=True, text=True, env={"HOME": "~"}, timeout=30
    )

    real = [part.split("\0")[:-1] for part in done.stdout.split("\n\0")[:-1]]
    assert done.stderr == ""
    assert [words for words in words_of(script) if words[0] == "run"] == real

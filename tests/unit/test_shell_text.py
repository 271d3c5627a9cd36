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
        ("run ${1:-x} ${2-y}", [["run", "x", "y"]]),
        ('A="x y"; run $A "$A" z$A', [["run", "x", "y", "x y", "zx", "y"]]),
        ('A=(p "q r" # s\n t); A+=(u); run "${A[@]}" $A', [["run", "p", "q r", "t", "u", "p", "q", "r", "t", "u"]]),
        ('A=x; A+=" y"; run $A', [["run", "x", "y"]]),
        ("X=1 Y='2 3' run a", [["X=1", "Y=2 3", "run", "a"]]),
        ("cat <<EOF > f\nrun hidden\nEOF\nrun a", [["cat"], ["run", "a"]]),
        ('run \'{"a": "$b"}\' {"c":1} "{\\"d\\": 2}"', [["run", '{"a": "$b"}', "{c:1}", '{"d": 2}']]),
        ("$ run a", [["run", "a"]]),
        ("if true; then\n run a\nelse { exec run b; }; fi", [["true"], ["run", "a"], ["run", "b"]]),
        ("run ''", [["run", ""]]),
        ("A=; run $A b", [["run", "b"]]),
        ("run 'open", [["run", "open"]]),
        ('D="$(cd "$(dirname "${B[0]}")" && pwd)"\nrun a', [["run", "a"]]),
        ("D=$(echo \")\" ')' \\) # it's )\n (b)) ; run a", [["run", "a"]]),
        ('D=`a \\` ) b` E=${F#"}"} run a', [["D=`a \\` ) b`", 'E=${F#"}"}', "run", "a"]]),
        ('A=1; run ${B:-${A}}${C-"$A x"}', [["run", "11 x"]]),
        ('run "${A:-{\\"b\\": \'c\'}}" ${A:?say} ', [["run", "{\"b\": 'c'}", "${A:?say}"]]),
        (': "${P:=8001}" ${Q=2}; run $P "$Q"', [[":", "8001", "2"], ["run", "8001", "2"]]),
        ('run "$(a', [["run", "$(a"]]),
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


def test_what_is_unknown_stays_in_one_piece() -> None:
    """With its blanks, however it comes into a word, and beside the word that has it alone."""
    command = next(shell_commands('L=$(( 4096 * 2 ))\nA="--a $L --b"\nrun $A $( c d )'))

    assert [(word.text, word.unset) for word in command.words] == [
        ("run", ()), ("--a", ()), ("$(( 4096 * 2 ))", ("$(( 4096 * 2 ))",)), ("--b", ()), ("$( c d )", ("$( c d )",)),
    ]  # fmt: skip


def test_a_default_that_is_assigned_in_a_branch_is_a_guess() -> None:
    *_, command = shell_commands("if t; then : ${A:=$1}; fi\nrun $A")

    assert [(word.text, word.unset, len(word.guesses)) for word in command.words] == [
        ("run", (), 0),
        ("$1", ("$1",), 1),
    ]


def test_brackets_without_end_are_read() -> None:
    assert words_of("run " + "$(" * 20_000)[0][0] == "run"
    assert words_of("run " + "${A:-" * 20_000 + "}" * 20_000)[0][0] == "run"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if t; then A=1; fi; run $A", [("A", "the `if`", 0)]),
        ("A=0; if t; then A=1; elif u; then A=2; else A=3; fi; run $A", [("A", "the `else`", 3)]),
        ("if t; then A=1; elif u; then A=2; fi; run $A", [("A", "the `elif`", 1)]),
        ("case $1 in\n(a|b) A=1;;\n'c d') A=2 ;;\n*)\n A=3\nesac\nrun $A", [("A", "the case `*)`", 2)]),
        ("case x in a) case y in b) A=1;; esac; B=1;; esac; run $A $B",
         [("A", "the case `b)`", 0), ("B", "the case `a)`", 0)]),
        ("for i in 1 2; do A+=x; done; run $A", [("A", "the `for`", 0)]),
        ("for ((i=0; i<3; i++)); do A=1; done; run $A", [("A", "the `for`", 0)]),
        ("while read x; do A=1; done < f; run $A", [("A", "the `while`", 0)]),
        ("[ $1 ] && A=1\nrun $A", [("A", "what follows the `&&`", 0)]),
        ("[[ $1 && $2 ]] &&\n A=1; run $A", [("A", "what follows the `&&`", 0)]),
        ("t || A=1 && run $A", [("A", "what follows the `||`", 0)]),
        ("f() { A=1; }; f; run $A", [("A", "the function `f`", 0)]),
        ("function f {\n A=1\n}\nf\nrun $A", [("A", "the function `f`", 0)]),
        ("A=(a); if t; then A+=(b); fi; run \"${A[@]}\"", [("A", "the `if`", 0)] * 2),
        ("if t; then A=1; fi; B=$A; run $B $B", [("A", "the `if`", 0)] * 2),
        ("t && { A=1; B=2; }; run $B", [("B", "what follows the `&&`", 0)]),
        ("A=1; if t; then local A=2; fi; run $A", [("A", "the `if`", 1)]),
        # What holds wherever the command runs, or is set again, is no guess.
        ("if t; then A=1; run $A; fi", []),
        ("cd x && A=1 && run $A", []),
        ("f() { A=1; run $A; }; f", []),
        ("if t; then A=1; fi; A=2; run $A", []),
        ("if t; then A=1; A=2; fi; A=3; if t; then run $A; fi", []),
        ("if t; then B=1; fi; A=1; run $A", []),
    ],
)  # fmt: skip
def test_what_is_set_in_a_branch_is_a_guess(text: str, expected: list[tuple[str, str, int]]) -> None:
    """With the variable, the branch, and how many assignments hold where it is not taken."""
    (command,) = [one for one in shell_commands(text) if one.words[0].text == "run"]
    found = [guess for word in command.words for guess in word.guesses]

    assert [(one.name, one.conditions[-1].words, len(one.instead)) for one in found] == expected


def test_an_export_in_a_branch_is_a_guess() -> None:
    *_, command = shell_commands("A=1\nif t; then export A; export B=2; fi\nrun")

    assert [(word.text, len(word.guesses)) for word in command.exported] == [("A=1", 1), ("B=2", 1)]


def test_only_what_is_exported_reaches_a_program() -> None:
    *_, command = shell_commands("declare A=1; readonly B=2; declare -rx C=3; typeset -x D=4; run")

    assert [word.text for word in command.exported] == ["C=3", "D=4"]


def test_a_shell_of_its_own_keeps_its_variables() -> None:
    text = "A=1; (D=$(cd $(dirname $0) && pwd); A=2; export B=3; run $A)\n((i > 2)) && run $A"

    commands = [one for one in shell_commands(text) if one.words[0].text == "run"]
    assert [[word.text for word in (*one.exported, *one.words)] for one in commands] == [
        ["B=3", "run", "2"], ["run", "1"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("if t; then run; fi", ["the `if`"]),
        ("for i in 1; do if t; then run; fi; done", ["the `for`", "the `if`"]),
        ("t || run", ["what follows the `||`"]),
        ("if t; then x; fi; run", []),
        ("case x in a) x;; esac && run", ["what follows the `&&`"]),
        ("if t; then (x; fi; run", []),
        ("fi; done; esac; }; ) ; run", []),
    ],
)
def test_a_command_knows_what_has_to_hold(text: str, words: list[str]) -> None:
    (command,) = [one for one in shell_commands(text) if one.words[0].text == "run"]

    assert [one.words for one in command.conditions] == words


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
                     '"\\"t"', "''", "{}", '{"k":1}', "u#v", "'$V'", "${N:-d}", "=", "x~y", "\\\n", "'\\'", '"\\a"',
                     '${N:-"e f"}', "${N-$V}", "\"${N:-'g'}\"", "${M:=h}", '"${N:-${W:-i}}"']),
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

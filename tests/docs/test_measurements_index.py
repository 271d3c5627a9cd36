"""What the list of measurements says of launches is what the files that each row links hold."""

import re

import measured_launches as measured
import pytest

from tests.plans import REPOSITORY

INDEX = REPOSITORY / "docs" / "measurements" / "README.md"
ROWS = [line for line in INDEX.read_text(encoding="utf-8").splitlines() if "-launches" in line and line.startswith("|")]
WORDS = {"one": 1, "two": 2, "four": 4, "six": 6, "seven": 7, "nine": 9, "ten": 10, "eleven": 11}


def files_of(row: str) -> list[str]:
    return re.findall(r"\]\(([^)]+\.json)\)", row.split("|")[1])


def captured_graphs(file: str) -> int:
    return sum(sum(launch["captured"].values()) for launch in measured.document(file)["launches"])


@pytest.mark.parametrize("row", [row for row in ROWS if re.search(r"\d graphs", row)], ids=lambda row: files_of(row)[0])
def test_graphs_of_launches_are_those_that_were_captured(row: str) -> None:
    """A number for each file, or one for all of them."""
    (said,) = re.findall(r"((?:[\d,]+ and )?[\d,]+) graphs", row)
    told = [int(number.replace(",", "")) for number in said.split(" and ")]
    each = [captured_graphs(file) for file in files_of(row)]

    assert told in (each, [sum(each)])


@pytest.mark.parametrize(
    ("row", "word"),
    [(row, word[1].lower()) for row in ROWS if (word := re.search(r"\| (\w+) (?:more )?launches", row))],
    ids=lambda one: one if one in WORDS else "",
)
def test_launches_are_as_many_as_the_files_hold(row: str, word: str) -> None:
    """One that captured less than was planned did not come up, which a row says apart."""
    launches = [launch for file in files_of(row) for launch in measured.document(file)["launches"]]

    whole = [launch for launch in launches if sum(launch["captured"].values()) == sum(launch["planned"].values())]
    assert len(whole) == WORDS[word]


def test_every_kind_of_row_is_looked_at() -> None:
    assert sum("graphs" in row for row in ROWS) >= 4

"""Code blocks of the documentation, with the remark that stands before each.

A remark is an HTML comment above the block, one of:

- ``not run: WHY``: a command that these tests do not run;
- ``file: NAME``: the block is the file of that name in the folder where the page's commands run;
- ``same as: PATH``: the block stands in that file of the repository too;
- ``output not shown``: only the exit code counts; ``exit code: N``: the commands end with N;
- ``refused: CODE``: a spec that is refused with that error;
- ``engine: SCENARIO``: what `serve` says on stderr with an engine that fails as ``test_failures.py`` tells it to.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HAND_WRITTEN = tuple(
    sorted(
        path
        for path in (*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in ("README.md", "AGENTS.md", "CHANGELOG.md")))
        if "reference" not in path.parts
    )
)

REMARKS = ("not run", "file", "same as", "output not shown", "exit code", "refused", "engine", "curve")
_REMARK = re.compile(r"<!-- (?P<name>[a-z ]+?)(?:: (?P<text>.*))? -->")
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    remarks: tuple[tuple[str, str], ...]

    def remark(self, name: str) -> str | None:
        return dict(self.remarks).get(name)

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    remarks: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        if lines[at].startswith(_FENCE):
            end = lines.index(_FENCE, at + 1)
            text = "\n".join(lines[at + 1 : end]) + "\n"
            yield Block(page, at + 1, lines[at][3:], text, tuple(remarks))
            remarks, at = [], end
        elif found := _REMARK.fullmatch(lines[at]):
            remarks.append((found["name"], found["text"] or ""))
        elif lines[at]:
            remarks = []
        at += 1


def all_blocks(language: str) -> tuple[Block, ...]:
    return tuple(block for page in HAND_WRITTEN for block in blocks(page) if block.language == language)


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """(line number, text) of what is neither code, table nor comment."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(_FENCE):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "<!--")):
            yield number, line

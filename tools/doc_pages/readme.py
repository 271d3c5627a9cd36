"""The plan that the README shows, between its two markers."""

from pathlib import Path

from doc_pages.compiling import plan_of_file
from servespec.render.plan_text import plan_text

EXAMPLE = "examples/qwen3-30b-a3b-h200.yaml"
BEGIN, END = "<!-- plan (written by tools/gen_docs.py) -->", "<!-- end of plan -->"


def readme(root: Path) -> str:
    """The README with its plan made anew; the rest of it is written by hand."""
    text = (root / "README.md").read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert found, f"README.md has lost `{BEGIN}`"
    assert ended, f"README.md has lost `{END}`"
    return f"{before}{BEGIN}\n\n{_shown_plan(root)}\n\n{END}{after}"


def _shown_plan(root: Path) -> str:
    document = plan_of_file(root / EXAMPLE).to_json()
    return f"```console\n$ servespec plan {EXAMPLE} --against stock\n{plan_text(document)}```"

"""Pages and comments read back: their elements and their texts, and plans with values that would break out of them."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.golden.cases import every_case

Json = dict[str, Any]

PLANS = {case.name: case.folder / "plan.json" for case in every_case() if not case.refused}
VOID = {"meta", "br", "input"}


def golden_plan(name: str) -> Json:
    return read_plan(PLANS[name])


def read_plan(path: Path) -> Json:
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass
class Node:
    """An element with the text in it, its own and that of the elements below."""

    tag: str
    attributes: dict[str, str | None]
    parent: "Node | None" = None
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str) -> list["Node"]:
        found = [child for child in self.children if isinstance(child, Node)]
        return [node for child in found for node in ([child] if child.tag == tag else []) + child.all(tag)]

    def tags(self) -> list[str]:
        """Of everything in it, in order."""
        below = [child for child in self.children if isinstance(child, Node)]
        return [tag for child in below for tag in (child.tag, *child.tags())]

    def by_id(self, name: str) -> "Node":
        [found] = [node for tag in set(self.tags()) for node in self.all(tag) if node.attributes.get("id") == name]
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("root", {})
        self.at = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs), self.at)
        self.at.children.append(node)
        if tag not in VOID:
            self.at = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Node(tag, dict(attrs), self.at))

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def read(text: str) -> Node:
    """The tree of a page whose every element is closed where it should be."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.at is reader.root, f"<{reader.at.tag}> is not closed"
    return reader.root


def cells(table: Node) -> list[list[str]]:
    """The rows of a table below its head."""
    [body] = table.all("tbody")
    return [[cell.text for cell in row.children if isinstance(cell, Node)] for row in body.all("tr")]


_PIECES = [
    "</script>", "<script>alert(1)</script>", "<!--", "-->", "<img src=x onerror=alert(1)>", '"', "'", "&lt;", "&#60;",
    "</pre></code>", "|", "\\", "\\|", "*bold*", "_under_", "~~gone~~", "[text](javascript:alert(1))", "]]>",
    "![i](http://x.y/z)", "https://x.y", "www.x.y", "a@b.c", "@someone", "$x$", "{", "</details>", "<details>", "---",
    "\u202e", "\u0000", "\n", "é", "# title", "- item", "1. one", "> quote", "=", "日本",
]  # fmt: skip

hostile_text = (
    st.lists(st.sampled_from(_PIECES) | st.text(max_size=4), min_size=1, max_size=5)
    .map("".join)
    .map(lambda text: text.encode("utf-8", "ignore").decode().replace("`", "") or "x")
)
"""What someone may write to break out of a page or a comment; no backticks, which findings use for values."""


def hostile_plan(value: str) -> Json:
    """A small plan that holds ``value`` wherever a spec, a file or a name may bring it in."""
    plan = golden_plan("cpu")
    plan["inputs"]["model"]["id"] = value
    plan["device"]["name"] = value
    plan["resolved"]["serve.chat_template"] = {"value": value, "origin": "spec", "because": value}
    plan["launch"] = {"argv": ["vllm", "serve", value, "--chat-template", value], "env": {"VLLM_LOGGING_PREFIX": value}}
    finding = {"code": "P101", "name": "decode-eager", "severity": "warning", "message": value, "help": value}
    place = {"file": value, "range": None}
    plan["diagnostics"] = [{**finding, **place, "related": [{"message": value, **place}]}]
    return plan

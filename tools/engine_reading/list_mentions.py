"""Where a wheel names its one list of graph sizes, or what it copies from it."""

import ast
from collections.abc import Iterator

from engine_reading.source import Engine
from servespec.compiler.facts.list_readers import LIST_ATTRIBUTES

Mention = tuple[str, str]


def list_mentions(engine: Engine) -> frozenset[Mention]:
    """(file, qualified function or class) of every attribute, keyword or literal with such a name."""
    return frozenset(found for path in engine.paths("vllm/**/*.py") for found in _mentions_in(engine, path))


def _mentions_in(engine: Engine, path: str) -> Iterator[Mention]:
    text = (engine.root / path).read_text(encoding="utf-8")
    if any(name in text for name in LIST_ATTRIBUTES):
        yield from ((path, owner) for owner in _owners(ast.parse(text), ()))


def _owners(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if _named(child) in LIST_ATTRIBUTES:
            yield ".".join(inside)
        is_scope = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _owners(child, (*inside, child.name) if is_scope else inside)


def _named(node: ast.AST) -> object:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.keyword):
        return node.arg
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

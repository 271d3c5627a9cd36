"""The digest of a function or class of the engine, as text, by which two versions count as the same.

Comments, docstrings, formatting and line numbers do not count; anything that runs does.  The digest is the
same under every Python that servespec supports, which ``ast.dump`` is not.
"""

import ast
import hashlib
from collections.abc import Iterator

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Fields that a newer Python adds or that say how a thing was spelled.
_IGNORED_FIELDS = frozenset({"kind", "type_comment", "type_ignores", "ctx"})
_DIGEST_LENGTH = 16


def digest_of(source_text: str, name: str) -> str:
    """The digest of ``function``, ``Class`` or ``Class.method`` in a source; KeyError where it is not."""
    found = dict(_definitions(ast.parse(source_text).body, ""))
    return digest_of_node(found[name])


def digests_of(source_text: str, names: frozenset[str]) -> dict[str, str]:
    """The digests of those of ``names`` that ``source_text`` defines, in one parse."""
    definitions = _definitions(ast.parse(source_text).body, "")
    return {name: digest_of_node(node) for name, node in definitions if name in names}


def names_in(source_text: str) -> tuple[str, ...]:
    """Every function, class and method that ``source_text`` defines at module or class level."""
    return tuple(dict.fromkeys(name for name, _ in _definitions(ast.parse(source_text).body, "")))


def digest_of_node(node: ast.AST) -> str:
    """Sixteen hexadecimal digits of the SHA-256 over the normalized tree."""
    return hashlib.sha256("".join(_tokens(node)).encode()).hexdigest()[:_DIGEST_LENGTH]


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, _Definition]]:
    for statement in body:
        if isinstance(statement, _Definition):
            yield prefix + statement.name, statement
        if isinstance(statement, ast.ClassDef):
            yield from _definitions(statement.body, f"{prefix}{statement.name}.")


def _tokens(value: object) -> Iterator[str]:
    if isinstance(value, ast.JoinedStr):
        value = _merged(value)
    if isinstance(value, ast.AST):
        yield f"({type(value).__name__}"
        for field, inner in ast.iter_fields(value):
            if field not in _IGNORED_FIELDS and inner is not None and inner != []:
                yield f" {field}="
                yield from _tokens(inner)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for one in value:
            if not _is_bare_text(one):
                yield from _tokens(one)
        yield "]"
    else:
        yield f"{type(value).__name__}:{value!r}"


def _is_bare_text(node: object) -> bool:
    """A docstring, or any string that stands as a statement of its own."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return False
    return isinstance(node.value.value, str)


def _merged(node: ast.JoinedStr) -> ast.JoinedStr:
    """An f-string whose literal pieces are whole; how a parser cuts them differs between versions."""
    pieces: list[ast.expr] = []
    for one in node.values:
        last = pieces[-1] if pieces else None
        if isinstance(one, ast.Constant) and isinstance(last, ast.Constant):
            pieces[-1] = ast.Constant(value=str(last.value) + str(one.value))
        else:
            pieces.append(one)
    return ast.JoinedStr(values=[p for p in pieces if not (isinstance(p, ast.Constant) and p.value == "")])

"""The descriptions of the spec's fields: the docstrings under them, read from the models' source."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import lru_cache

from servespec.schema import spec


@lru_cache(maxsize=1)
def field_docs() -> Mapping[tuple[str, str], str]:
    """The text under each field by (model class, field), white space folded."""
    module = ast.parse(inspect.getsource(spec))
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return {(owner.name, name): text for owner in classes for name, text in documented(owner)}


def description(model: type[spec.Section], field: str) -> str:
    """The text under a field of ``model``; of a section, the section's own docstring where it has none."""
    own = field_docs().get((model.__name__, field), "")
    return own or field_docs().get((spec.Section.__name__, field), "")


def documented(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Each annotated field of a class that has text under it, with that text, white space folded."""
    for node, after in zip(owner.body, owner.body[1:], strict=False):
        text = _text(after)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and text is not None:
            yield node.target.id, " ".join(text.split())


def _text(node: ast.stmt) -> str | None:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None

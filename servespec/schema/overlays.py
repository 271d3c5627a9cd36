"""A spec laid over others: `extends` names files whose values stand where this one says nothing.

Mappings are put together key by key; a list or a plain value of the file above takes the place of the one below.
Every value keeps its own file and line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servespec.diagnostics import Place
from servespec.schema.source import SpecPath, SpecSource
from servespec.schema.source_nodes import Entry

EXTENDS = "extends"


@dataclass(frozen=True, slots=True)
class LayeredSource(SpecSource):
    """``layers`` begin with the file itself; each stands over those after it."""

    layers: tuple[SpecSource, ...] = ()

    @property
    def own(self) -> SpecSource:
        return self.layers[0]

    @property
    def texts(self) -> Mapping[str, str]:
        return {name: text for layer in reversed(self.layers) for name, text in layer.texts.items()}

    def entry_at(self, path: SpecPath) -> Entry | None:
        return self._layer_of(path).entry_at(path)

    def place_of(self, path: SpecPath) -> Place:
        return self._layer_of(path).place_of(path)

    def place_of_key(self, path: SpecPath) -> Place:
        return self._layer_of(path).place_of_key(path)

    def _layer_of(self, path: SpecPath) -> SpecSource:
        """The uppermost layer that writes ``path``, else the one that writes the most of the way to it."""
        for length in range(len(path), 0, -1):
            for layer in self.layers:
                if layer.entry_at(path[:length]) is not None:
                    return layer
        return self.layers[0]


def layered(own: SpecSource, bases: Sequence[SpecSource]) -> SpecSource:
    """``own`` over ``bases``, of which a later one stands over an earlier one."""
    layers = (own, *reversed(bases))
    data: Mapping[str, Any] = {}
    for layer in reversed(layers):
        data = _laid_over(data, {key: value for key, value in layer.data.items() if key != EXTENDS})
    # The file's own text comes first, so that its lines are where its places say.
    text = "\n".join(layer.text for layer in layers)
    return LayeredSource(own.name, text, data, layers=layers)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        is_both = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = _laid_over(old, value) if is_both and old is not None else value
    return merged

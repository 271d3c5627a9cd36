"""The best graphs that take no more memory than a bound: a search over what a spec leaves open.

It asks the ledger of each choice and assumes nothing about it but a floor: the tensors that are alive at once, which
no allocator holds in less and which only grow with either reach.  What is really reserved does not: a pool whose
PIECEWISE graphs are as wide as its FULL ones is smaller than one where they are a little narrower, because free
blocks are then large enough to be taken again.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from servespec.compiler.graphs.extents import Density, Extent, Rows, Space
from servespec.compiler.graphs.split import CaptureFields
from servespec.compiler.resolve.graph_request import written_fields
from servespec.units import Bytes

Cost = Callable[[CaptureFields], Bytes]
"""Graph memory of a plan with these fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphChoice:
    """What was chosen of a space; not ``fits``: nothing of it is within the bound, and this takes least."""

    space: Space
    extent: Extent
    density: Density
    bound_bytes: Bytes
    fits: bool

    @property
    def fields(self) -> CaptureFields:
        return self.space.fields_of(self.extent, self.density)

    @property
    def chooses_decode(self) -> bool:
        return self.extent.decode is not None

    @property
    def chooses_prefill(self) -> bool:
        return self.extent.prefill_tokens is not None

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen, as a spec writes it under `compilation`."""
        written = written_fields(self.space.fields)
        return {name: value for name, value in written_fields(self.fields).items() if name not in written}


def best_within(space: Space, bound_bytes: Bytes, taken: Cost, least: Cost) -> GraphChoice:
    """The first in the order of :mod:`servespec.compiler.graphs.extents` that takes no more than the bound.

    ``least`` is at most ``taken``, and no smaller where the prefill reach is wider; neither is smaller where sizes lie
    closer together.
    """
    search = _Search(space, bound_bytes, _cached(space, taken), _cached(space, least))
    if search.fits(space.widest, space.densities[0]):
        return search.choice(space.widest, space.densities[0], fits=True)
    hopeful = tuple(row for row in space.rows if search.may_fit(row[-1], space.sparsest))
    for rows in space.by_share(hopeful) if hopeful else ():
        found = search.first_of(rows)
        if found is not None:
            return found
    return search.choice(search.smallest(), space.sparsest, fits=False)


_ChoiceCost = Callable[[Extent, Density], Bytes]


def _cached(space: Space, cost: Cost) -> _ChoiceCost:
    return cache(lambda extent, density: cost(space.fields_of(extent, density)))


@dataclass(frozen=True, slots=True)
class _Search:
    space: Space
    bound_bytes: Bytes
    taken: _ChoiceCost
    least: _ChoiceCost

    def first_of(self, rows: Rows) -> GraphChoice | None:
        for row in rows:
            if self._first_of_row(row, self.space.sparsest) is None:
                continue
            for density in self.space.densities:
                extent = self._first_of_row(row, density)
                if extent is not None:
                    return self._densest(extent, density)
        return None

    def _first_of_row(self, row: tuple[Extent, ...], density: Density) -> Extent | None:
        """The widest prefill reach with decode sizes of this density and prefill sizes as sparse as may be."""
        sparse = replace(density, prefill=self.space.sparsest.prefill)
        if not self.may_fit(row[-1], sparse):
            return None
        first = bisect_left(row, True, key=lambda extent: self.may_fit(extent, sparse))
        return next((extent for extent in row[first:] if self.fits(extent, sparse)), None)

    def _densest(self, extent: Extent, density: Density) -> GraphChoice:
        same_decode = (one for one in self.space.densities if one.decode == density.decode)
        return self.choice(extent, next(one for one in same_decode if self.fits(extent, one)), fits=True)

    def smallest(self) -> Extent:
        """What takes least with the sparsest sizes, the narrowest of equals, which need not be the narrowest of all."""
        best = self.space.rows[-1][-1]
        for row in reversed(self.space.rows):
            for extent in reversed(row):
                best_bytes = self.taken(best, self.space.sparsest)
                if self.least(extent, self.space.sparsest) >= best_bytes:
                    break
                if self.taken(extent, self.space.sparsest) < best_bytes:
                    best = extent
        return best

    def may_fit(self, extent: Extent, density: Density) -> bool:
        return self.least(extent, density) <= self.bound_bytes

    def fits(self, extent: Extent, density: Density) -> bool:
        return self.taken(extent, density) <= self.bound_bytes

    def choice(self, extent: Extent, density: Density, *, fits: bool) -> GraphChoice:
        return GraphChoice(space=self.space, extent=extent, density=density, bound_bytes=self.bound_bytes, fits=fits)

"""A plan whose memory an earlier launch measured: its ledger, the KV cache that it pins, and what is said of it."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from servespec.compiler import plan_rules as rules
from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.graphs.shape import Shape, rows_of
from servespec.compiler.memory.indexer_logits import indexer_row
from servespec.compiler.memory.ledger import Ledger
from servespec.compiler.memory.measurement import (
    Measurement,
    differences,
    differing_rows,
    identity_of,
    pinned_by,
    with_measurement,
)
from servespec.compiler.plan import Plan, row_json
from servespec.compiler.resolve.resolution import Resolution
from servespec.diagnostics import Diagnostic, Place
from servespec.provenance import Origin, Resolved

_PIN = "memory.kv_cache_memory_bytes"
_MOST_NAMES = 4


def by_measurement(
    resolution: Resolution,
    ledger: Ledger,
    measurement: Measurement,
    shapes: tuple[Shape, ...],
    remedies: Collection[Remedy],
) -> tuple[Resolution, Ledger]:
    """Both by the measurement: the KV cache is pinned where the spec leaves it open and all else was measured.

    A remedy that sizes the cache by itself is left to do so.
    """
    rows = [row_json(row, resolution.frame) for row in rows_of(shapes)]
    measured = with_measurement(ledger, measurement, has_its_graphs=not differing_rows(measurement, rows))
    is_open = ledger.pinned_bytes is None and Remedy.KV_FROM_MEASUREMENT not in remedies
    pinned = pinned_by(measured) if is_open else None
    if pinned is None:
        return resolution, measured
    because = f"what `{measurement.name}` leaves of the budget, less a margin"
    values = {**resolution.values, _PIN: Resolved(int(pinned), Origin.DERIVED, because)}
    return replace(resolution, values=values), replace(measured, pinned_bytes=pinned, estimate=None)


def kv_cache_memory_bytes(resolution: Resolution) -> int | None:
    """Of the spec, or of a measurement."""
    pin = resolution.values.get(_PIN)
    return resolution.request.spec.memory.kv_cache_memory_bytes if pin is None else int(pin.value)


def measurement_findings(plan: Plan) -> Iterator[Diagnostic]:
    """Whether the measurement holds for the plan, and which of its graphs it does not tell of."""
    measurement = plan.measurement
    if measurement is None:
        return
    document, place = plan.to_json(), Place(measurement.name)
    context_matters = indexer_row(plan.resolution) is not None
    others = differences(measurement, identity_of(document), context_matters=context_matters)
    if others:
        message = f"it was measured with another {_listed(others)}"
        yield rules.P136.at(place, message, "launch this spec once with `--record`, and name that record")
        return
    rows = differing_rows(measurement, document["runners"])
    if rows:
        message = f"the graphs of {_listed(rows)} are not those that were measured: graph memory is by formula"
        yield rules.P137.at(place, message, "launch this spec once with `--record`, and name that record")


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + more

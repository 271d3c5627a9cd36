"""A plan whose memory an earlier launch measured: its ledger, the KV cache that it pins, and what is said of it."""

from collections.abc import Collection, Generator, Iterator
from dataclasses import replace

from servespec.compiler import plan_rules as rules
from servespec.compiler.curves.step_times import StepTimes
from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.graphs.shape import Shape, rows_of
from servespec.compiler.measured_steps import idle_graph_findings
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
from servespec.units import Bytes, size_words

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


def measured_findings(
    plan: Plan, measurement: Measurement | None, step_times: StepTimes | None
) -> Iterator[Diagnostic]:
    """Whether what was measured holds for the plan, and what it says of its graphs."""
    if measurement is not None and (yield from _holds(plan, measurement, "launch this spec once with `--record`")):
        rows = differing_rows(measurement, plan.to_json()["runners"])
        if rows:
            message = f"the graphs of {_listed(rows)} are not those that were measured: graph memory is by formula"
            help_text = "launch this spec once with `--record`, and name that record"
            yield rules.P137.at(Place(measurement.name), message, help_text)
        yield from _of_compiling(plan, measurement)
    # Remedies change where the memory of a graph lies, and none of its kernels.
    again = "run `servespec steps` on this spec"
    if step_times is not None and (yield from _holds(plan, step_times, again, free=frozenset({"remedies"}))):
        yield from idle_graph_findings(plan, step_times)


def _of_compiling(plan: Plan, measurement: Measurement) -> Iterator[Diagnostic]:
    """A cache of given size is made after the engine has compiled, so that it need not leave room for that."""
    if measurement.is_of_compiling and measurement.peak_bytes is not None and _PIN in plan.resolution.values:
        peak = size_words(Bytes(measurement.peak_bytes))
        message = f"that launch compiled its models, which its peak of {peak} counts, and the KV cache leaves that free"
        help_text = "launch this spec again with `--record`: with the code in its cache the engine's peak is lower"
        yield rules.P150.at(Place(measurement.name), message, help_text)


def _holds(
    plan: Plan, measured: Measurement | StepTimes, instead: str, free: Collection[str] = ()
) -> Generator[Diagnostic, None, bool]:
    context_matters = indexer_row(plan.resolution) is not None
    found = differences(measured.identity, identity_of(plan.to_json()), context_matters=context_matters)
    others = tuple(name for name in found if name not in free)
    if others:
        message = f"it was measured with another {_listed(others)}"
        yield rules.P136.at(Place(measured.name), message, f"{instead}, and name what it leaves")
    return not others


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + more

"""What a record of one launch says of memory, and a ledger with its lines in place of formulas.

A record holds for a plan that starts the engine with the same arguments but for memory, address and graphs.  Of its
graphs it speaks only where the plan captures the very same; weights, the peak of a step and what else is held do not
depend on them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from servespec.compiler.graphs.hand_off import HAND_OFF_KEY, Remedy
from servespec.compiler.launch_identity import differing_names
from servespec.compiler.memory.ledger import Ledger
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.memory.working import BEFORE_OWNER
from servespec.provenance import Basis
from servespec.units import Bytes

Json = Mapping[str, Any]

_MARGIN_BYTES: Final = 150 << 20
"""Left free of the budget, as the engine leaves it in the cache size that it suggests.

Source: vllm/v1/worker/gpu_worker.py: Worker.compile_or_warm_up_model.
"""
# chosen: five identical launches on one GPU differed by less than a thousandth (docs/measurements); another card is not
# the same card
_SPREAD = 0.01
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """The graphs of one row of the plan that was launched, and what went from the device while they were captured."""

    key: tuple[str, str, str, int | None, int | None]
    sizes: tuple[int, ...]
    active_loras: tuple[int, ...]
    ubatches: tuple[int, ...]
    device_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One launch, on the rank that held most.

    ``held_bytes`` is all but the KV cache once it had captured, ``peak_bytes`` what a step took above that, None where
    the engine did not profile it; ``before_bytes`` was in use before the worker's first look at the device.
    ``identity`` is everything but memory, address and graphs that the engine was started with, by what a person calls
    it.  ``is_of_compiling`` says that ``peak_bytes`` counts what compiling took.
    """

    name: str
    device_name: str
    date: str
    versions: Mapping[str, str | None]
    identity: Mapping[str, str]
    rows: tuple[MeasuredRow, ...]
    before_bytes: int
    weights_bytes: int
    held_bytes: int
    peak_bytes: int | None
    is_of_compiling: bool


def measurement_of(record: Json, name: str) -> Measurement | str:
    """The measurement in a record, or why there is none in it."""
    measured = record["measured"]
    ranks = [(at, rank) for at, rank in enumerate(measured["ranks"]) if rank["memory"] is not None]
    if not ranks:
        return "its workers did not report their memory: launch it once with `engine.lowering: extension`"
    if measured["verdict"] != "as_planned":
        return "that launch did not capture what was planned"
    at, widest = max(ranks, key=lambda one: one[1]["memory"]["held_bytes"])
    memory, rows = widest["memory"], tuple(_rows(record["runners"], at))
    graphs_bytes = sum(row.device_bytes for row in rows)
    if memory["free_at_start_bytes"] > memory["device_bytes"]:
        return f"rank {at} found more memory free than its device has, so the record is damaged"
    if memory["weights_bytes"] + graphs_bytes > memory["held_bytes"]:
        return f"the weights and graphs of rank {at} are more than all that it held, so the record is damaged"
    peaks = [rank["memory"]["peak_bytes"] for _, rank in ranks]
    return Measurement(
        name=name,
        device_name=record["device"]["name"],
        date=measured["started_at"][:10],
        versions=measured["versions"],
        identity=identity_of(record),
        rows=rows,
        before_bytes=memory["device_bytes"] - memory["free_at_start_bytes"],
        weights_bytes=memory["weights_bytes"],
        held_bytes=memory["held_bytes"],
        peak_bytes=None if None in peaks else max(peaks),
        is_of_compiling=measured["engine_said"].get("compiled_graphs", 0) > 0 and not _profiles_again(record),
    )


def _profiles_again(record: Json) -> bool:
    """Once all is compiled, by the remedy that needs to know what a later start takes."""
    return Remedy.KV_FROM_MEASUREMENT in record.get("remedies", ())


def _rows(runners: Sequence[Json], rank: int) -> Iterator[MeasuredRow]:
    for row in runners:
        costs = row["captured"]["costs"]
        cost = costs[rank] if rank < len(costs) else None
        if cost is not None:
            yield MeasuredRow(
                key=(row["runner"], row["routine"], row["mode"], row["query_len"], row["num_speculative_tokens"]),
                sizes=tuple(row["sizes"]),
                active_loras=tuple(row["active_loras"]),
                ubatches=tuple(row["ubatches"]),
                device_bytes=cost["device_bytes"],
            )


# Whether it holds for a plan


_FREE_FLAGS: Final = frozenset(
    {
        "--gpu-memory-utilization",
        "--kv-cache-memory-bytes",
        "--num-gpu-blocks-override",
        "--host",
        "--port",
        "--served-model-name",
    }
)
_FREE_VARIABLES: Final = frozenset({"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "VLLM_ENABLE_STARTUP_PLAN"})
_FREE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "--compilation-config": ("cudagraph_capture_sizes", "max_cudagraph_capture_size"),
    "--additional-config": (HAND_OFF_KEY,),
    # The digest of its config says which model it is; where that lies does not matter.
    "--speculative-config": ("model",),
}
_CONTEXT_FLAG: Final = "--max-model-len"


def identity_of(document: Json) -> dict[str, str]:
    """What the engine of a plan or record is started with, apart from memory, address and graphs, each by its name."""
    engine, device, inputs = document["engine"], document["device"], document["inputs"]
    remedies = [one for one in document.get("remedies", ()) if one != Remedy.KV_FROM_MEASUREMENT]
    env = {name: value for name, value in document["launch"]["env"].items() if name not in _FREE_VARIABLES}
    return {
        "engine": f"{engine['name']} {engine['version']}",
        "lowering": engine["lowering"],
        "device": f"{device['count']} x {device['name']}",
        "model": _digest(inputs["model"]),
        "draft model": _digest(inputs["draft"]),
        "remedies": ", ".join(remedies),
        **env,
        **dict(_settings(document["launch"]["argv"])),
    }


def _digest(model: Json | None) -> str:
    return "" if model is None else model["config_sha256"]


def _settings(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every flag with its words; of a flag that takes an object, without what is free in it."""
    flag, words = "", list[str]()
    for word in (*argv, "--"):
        if not word.startswith("--"):
            words.append(word)
            continue
        if flag and flag not in _FREE_FLAGS:
            yield flag, _setting(flag, " ".join(words))
        flag, joined, value = word.partition("=")
        words = [value] if joined else []


def _setting(flag: str, text: str) -> str:
    if flag not in _FREE_KEYS:
        return text
    kept = {key: value for key, value in json.loads(text).items() if key not in _FREE_KEYS[flag]}
    return json.dumps(kept, sort_keys=True)


def differences(measured: Mapping[str, str], identity: Mapping[str, str], *, context_matters: bool) -> tuple[str, ...]:
    """The names of what the measured engine was started with otherwise; those of graphs and memory are not among them.

    The longest context changes what a sparse index scores and the size of the KV cache, nothing else of weight.
    """
    free = set() if context_matters else {_CONTEXT_FLAG}
    return tuple(name for name in differing_names(measured, identity) if name not in free)


def differing_rows(measurement: Measurement, rows: Sequence[Json]) -> tuple[str, ...]:
    """The rows, as a plan's JSON form has them, whose graphs are not those that were measured."""
    measured = {row.key: row for row in measurement.rows}
    planned = {_key(row): row for row in rows if row["graphs"]}
    names = [f"{key[0]} {key[1]}" for key in (*planned, *measured) if not _is_same(measured.get(key), planned.get(key))]
    return tuple(dict.fromkeys(names))


def _is_same(measured: MeasuredRow | None, planned: Json | None) -> bool:
    return (
        measured is not None
        and planned is not None
        and [list(measured.sizes), list(measured.active_loras), list(measured.ubatches)]
        == [planned["sizes"], planned["active_loras"], planned["ubatches"]]
    )


def _key(row: Json) -> tuple[str, str, str, int | None, int | None]:
    return row["runner"], row["routine"], row["mode"], row["query_len"], row["num_speculative_tokens"]


# The ledger


def with_measurement(ledger: Ledger, measurement: Measurement, *, has_its_graphs: bool) -> Ledger:
    """The ledger with what was measured in place of formulas; what only steps under load take stays."""
    kept = [line for line in ledger.lines if line.part is Part.RUNTIME]
    if not has_its_graphs:
        kept += [line for line in ledger.lines if line.part is Part.GRAPHS]
    if measurement.peak_bytes is None:
        kept += [line for line in ledger.lines if line.part is Part.ACTIVATIONS]
    parts = {Part.WEIGHTS, Part.OTHER, Part.ACTIVATIONS, *({Part.GRAPHS} if has_its_graphs else ())}
    return replace(
        ledger,
        lines=(*_lines(measurement, has_its_graphs=has_its_graphs), *kept),
        unknown=tuple(one for one in ledger.unknown if one.part not in parts),
    )


def pinned_by(ledger: Ledger) -> Bytes | None:
    """The KV cache that a budget leaves beside what was measured, in whole MiB; None where not all of it was measured.

    Graphs count by what they take, and the engine is not asked for an estimate.
    """
    budgeted = [line for line in ledger.lines if line.is_budgeted]
    if any(line.basis is not Basis.MEASURED for line in budgeted):
        return None
    left = ledger.budget_bytes - sum(line.size for line in budgeted) - _MARGIN_BYTES
    return Bytes(max(left, 0) // _MIB * _MIB)


def _lines(measurement: Measurement, *, has_its_graphs: bool) -> Iterator[MemoryLine]:
    graphs = sum(row.device_bytes for row in measurement.rows)
    rest = measurement.held_bytes - measurement.weights_bytes - graphs
    yield _line("weights of target and drafter", Holder.TARGET, Part.WEIGHTS, measurement.weights_bytes, measurement)
    if measurement.peak_bytes is not None:
        yield _line("peak of a step", Holder.ENGINE, Part.ACTIVATIONS, measurement.peak_bytes, measurement)
    yield _line("context, buffers and what warm-up left", Holder.ENGINE, Part.OTHER, rest, measurement)
    before = _line(BEFORE_OWNER, Holder.ENGINE, Part.OTHER, measurement.before_bytes, measurement)
    yield replace(before, is_budgeted=False)
    for row in measurement.rows if has_its_graphs else ():
        runner, routine, mode, query_len, _ = row.key
        owner = f"{routine}: {len(row.sizes)} sizes of {mode} graphs" + (f" at q = {query_len}" if query_len else "")
        yield _line(owner, Holder(runner), Part.GRAPHS, row.device_bytes, measurement)


def _line(owner: str, holder: Holder, part: Part, size: int, measurement: Measurement) -> MemoryLine:
    """Its bar is for another card and driver than the ones that were measured on."""
    spread = int(abs(size) * _SPREAD)
    return MemoryLine(
        owner=owner,
        holder=holder,
        part=part,
        size=Bytes(size),
        low=Bytes(size - spread),
        high=Bytes(size + spread),
        basis=Basis.MEASURED,
        because=f"measured on `{measurement.device_name}`, {measurement.date}",
    )

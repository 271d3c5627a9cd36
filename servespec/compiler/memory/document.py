"""The ledger in the plan's JSON form."""

from collections.abc import Sequence
from typing import Any

from servespec.compiler.json_shapes import (
    COUNT,
    DIFFERENCE,
    MAYBE_COUNT,
    MAYBE_DIFFERENCE,
    MAYBE_TEXT,
    TEXT,
    closed_object,
)
from servespec.compiler.memory.kv_cache import KvGroup, LayerKind
from servespec.compiler.memory.ledger import Fit, Ledger, basis_of, deciding
from servespec.compiler.memory.line import Holder, MemoryLine, Part
from servespec.compiler.memory.measurement import Measurement
from servespec.compiler.memory.weights import Unknown
from servespec.provenance import Basis


def memory_json(stages: Sequence[Ledger]) -> dict[str, Any]:
    """Bytes of one device, on the stage that decides; those of each where there are several.  Null is not known."""
    decides = deciding(stages)
    found = ledger_json(decides)
    if len(stages) > 1:
        found["stages"] = [_stage_json(one, decides=one is decides) | ledger_json(one) for one in stages]
    return found


def _stage_json(ledger: Ledger, *, decides: bool) -> dict[str, Any]:
    """Null where the model does not tell its layers, or the stage holds none."""
    own = ledger.layers
    return {
        "stage": ledger.stage.index,
        "layers": None if own is None else len(own),
        "first_layer": own.start if own else None,
        "last_layer": own.stop - 1 if own else None,
        "decides": decides,
    }


def ledger_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "lines": [_line_json(line) for line in ledger.lines],
        "unknown": [_unknown_json(line) for line in ledger.unknown],
        "kv_groups": [] if isinstance(ledger.kv, str) else [_group_json(group) for group in ledger.kv.groups],
        "totals": _totals_json(ledger),
        "fits": str(ledger.fits),
        "fits_at_start": str(ledger.fits_at_start),
    }


def _group_json(group: KvGroup) -> dict[str, Any]:
    """Layers that share a block table, with what a block takes of them on one device."""
    return {
        "kind": str(group.kind),
        "layers": group.layers,
        "block_tokens": group.block_tokens,
        "block_bytes": group.block_bytes,
        "window_tokens": group.window_tokens,
    }


def measurement_json(measurement: Measurement) -> dict[str, Any]:
    """Whose figures stand in place of formulas."""
    return {
        "record": measurement.name,
        "device_name": measurement.device_name,
        "date": measurement.date,
        "versions": dict(measurement.versions),
    }


def _line_json(line: MemoryLine) -> dict[str, Any]:
    return {
        "owner": line.owner,
        "runner": str(line.holder),
        "part": str(line.part),
        "bytes": line.size,
        "low_bytes": line.low,
        "high_bytes": line.high,
        "basis": line.basis.name.lower(),
        "budgeted": line.is_budgeted,
        "because": line.because,
    }


def _unknown_json(line: Unknown) -> dict[str, Any]:
    return {"owner": line.owner, "runner": str(line.holder), "part": str(line.part), "because": line.because}


def _totals_json(ledger: Ledger) -> dict[str, Any]:
    missing = {line.part for line in ledger.unknown}
    estimate = ledger.estimate

    def total(part: Part) -> int | None:
        return None if part in missing else ledger.of(part).size

    return {
        "device_bytes": ledger.device_bytes,
        "budget_bytes": ledger.budget_bytes,
        "taken_bytes": None if {Part.WEIGHTS, Part.KV_CACHE} & missing else ledger.whole.size,
        "weights_bytes": total(Part.WEIGHTS),
        "activation_peak_bytes": None if Part.WEIGHTS in missing else total(Part.ACTIVATIONS),
        "cudagraph_bytes": total(Part.GRAPHS),
        "engine_estimate_bytes": None if estimate is None else estimate.size,
        "other_bytes": total(Part.OTHER),
        "runtime_bytes": total(Part.RUNTIME),
        **_cache_json(ledger),
    }


def _cache_json(ledger: Ledger) -> dict[str, Any]:
    is_known = ledger.pinned_bytes is not None or ledger.is_spending_known
    cache, kv = ledger.cache, ledger.kv
    has_tokens = is_known and not isinstance(kv, str)
    return {
        "kv_cache_bytes": cache.size if is_known else None,
        "kv_cache_low_bytes": cache.low if is_known else None,
        "kv_cache_high_bytes": cache.high if is_known else None,
        "kv_cache_basis": basis_of(ledger).name.lower() if is_known else None,
        "kv_cache_pinned": ledger.pinned_bytes is not None,
        "kv_block_bytes": None if isinstance(kv, str) else kv.block_bytes,
        "kv_bytes_per_token": None if isinstance(kv, str) else round(kv.bytes_per_token, 1),
        "kv_cache_tokens": ledger.tokens(cache.size) if has_tokens else None,
        "kv_cache_low_tokens": ledger.tokens(cache.low) if has_tokens else None,
        "kv_cache_high_tokens": ledger.tokens(cache.high) if has_tokens else None,
        "max_concurrency": round(kv.concurrency(cache.size), 2) if has_tokens and not isinstance(kv, str) else None,
    }


_BASES = [basis.name.lower() for basis in Basis]


_OWNED = {
    "owner": TEXT,
    "runner": {"enum": [str(holder) for holder in Holder]},
    "part": {"enum": [str(part) for part in Part]},
    "because": TEXT,
}
_LINE = closed_object(
    {
        **_OWNED,
        "bytes": DIFFERENCE,
        "low_bytes": DIFFERENCE,
        "high_bytes": DIFFERENCE,
        "basis": {"enum": _BASES},
        "budgeted": {"type": "boolean"},
    }
)
_GROUP = closed_object(
    {
        "kind": {"enum": [str(kind) for kind in LayerKind]},
        "layers": COUNT,
        "block_tokens": COUNT,
        "block_bytes": COUNT,
        "window_tokens": MAYBE_COUNT,
    }
)
_TOTALS = closed_object(
    {
        "device_bytes": COUNT,
        "budget_bytes": COUNT,
        "taken_bytes": MAYBE_COUNT,
        "weights_bytes": MAYBE_COUNT,
        "activation_peak_bytes": MAYBE_COUNT,
        "cudagraph_bytes": MAYBE_COUNT,
        "engine_estimate_bytes": MAYBE_COUNT,
        "other_bytes": MAYBE_COUNT,
        "runtime_bytes": MAYBE_COUNT,
        "kv_cache_bytes": MAYBE_DIFFERENCE,
        "kv_cache_low_bytes": MAYBE_DIFFERENCE,
        "kv_cache_high_bytes": MAYBE_DIFFERENCE,
        "kv_cache_basis": {"enum": [*_BASES, None]},
        "kv_cache_pinned": {"type": "boolean"},
        "kv_block_bytes": MAYBE_COUNT,
        "kv_bytes_per_token": {"type": ["number", "null"], "minimum": 0},
        "kv_cache_tokens": MAYBE_COUNT,
        "kv_cache_low_tokens": MAYBE_COUNT,
        "kv_cache_high_tokens": MAYBE_COUNT,
        "max_concurrency": {"type": ["number", "null"], "minimum": 0},
    }
)
_MEASURED_BY = {
    "description": "The launch whose figures stand in place of formulas, where there is one.",
    **closed_object(
        {
            "record": TEXT,
            "device_name": TEXT,
            "date": TEXT,
            "versions": {"type": "object", "additionalProperties": MAYBE_TEXT},
        }
    ),
}
_LEDGER = {
    "lines": {"type": "array", "items": _LINE},
    "unknown": {"type": "array", "items": closed_object(_OWNED)},
    "kv_groups": {"type": "array", "items": _GROUP},
    "totals": _TOTALS,
    "fits": {"enum": [str(fit) for fit in Fit]},
    "fits_at_start": {"enum": [str(fit) for fit in Fit]},
}
_STAGES = {
    "description": "Of each pipeline stage, where there are several; the one that decides is the plan's.",
    "type": "array",
    "items": closed_object(
        {
            "stage": COUNT,
            "layers": MAYBE_COUNT,
            "first_layer": MAYBE_COUNT,
            "last_layer": MAYBE_COUNT,
            "decides": {"type": "boolean"},
            **_LEDGER,
        }
    ),
}
MEMORY_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {"type": "null"},
        closed_object({**_LEDGER, "stages": _STAGES, "measured_by": _MEASURED_BY}, optional=("stages", "measured_by")),
    ]
}
"""JSON Schema of a plan's `memory`; null on a CPU."""

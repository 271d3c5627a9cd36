"""JSON Schema of a record: a plan with measured columns beside the planned ones, format 1.

A record is what one launch left: every row of the plan says what was captured of it, and `measured` holds the rest.
"""

import json
from typing import Any

from servespec.compiler.json_shapes import COUNT, DIFFERENCE, MAYBE_COUNT, MAYBE_DIFFERENCE, MAYBE_TEXT, closed_object
from servespec.compiler.lower import Statistics
from servespec.compiler.plan import DIAGNOSTICS_SCHEMA, PLAN_SCHEMA

_VERDICT = {"enum": ["as_planned", "differs", "unseen"]}

_SECONDS = {"type": "number", "minimum": 0}
_COST = {
    "description": "What the captures of the row took on one rank, eager runs included: in the allocator's pools, and "
    "of the device. Below zero where they gave back what an earlier one left.",
    **closed_object(
        {"pool_bytes": DIFFERENCE, "device_bytes": DIFFERENCE, "seconds": {"type": "number", "minimum": 0}}
    ),
    "type": ["object", "null"],
}
_CAPTURED = {
    "description": "Graphs of this row that were captured, on each rank of `measured.ranks` or as the log counts them; "
    "null where the evidence has no number of its own. `costs` are in that order, none where the evidence has none.",
    **closed_object(
        {
            "graphs": {"type": "array", "items": MAYBE_COUNT},
            "verdict": _VERDICT,
            "costs": {"type": "array", "items": _COST},
        }
    ),
}
_MEMORY = {
    "description": "Bytes of the rank's device after capture: `held_bytes` is all but the KV cache, `peak_bytes` what "
    "a step took above that in the profile run; null for what the engine did not profile.",
    **closed_object(
        {
            "device_bytes": COUNT,
            "free_at_start_bytes": COUNT,
            "weights_bytes": COUNT,
            "held_bytes": DIFFERENCE,
            "peak_bytes": MAYBE_DIFFERENCE,
            "engine_estimate_bytes": MAYBE_DIFFERENCE,
            "kv_cache_bytes": COUNT,
        }
    ),
    "type": ["object", "null"],
}
_RANK = closed_object(
    {
        "data_parallel_rank": MAYBE_COUNT,
        "rank": MAYBE_COUNT,
        "capture_seconds": _SECONDS,
        "graph_bytes": {"type": "integer", "description": "Device memory that went during capture; can be negative."},
        "memory": _MEMORY,
    }
)
_DISPATCHED = closed_object(
    {
        "engine": COUNT,
        "mode": {"type": "string", "description": "FULL, PIECEWISE, or NONE for eager."},
        "steps": COUNT,
        "unpadded_tokens": COUNT,
        "padding_tokens": COUNT,
    }
)
_SAID = (
    "model_bytes",
    "kv_cache_bytes",
    "kv_cache_tokens",
    "graph_pool_bytes",
    "graph_pool_estimate_bytes",
    "compiled_graphs",
)
_MEASURED = closed_object(
    {
        "started_at": {"type": "string", "description": "UTC, ISO 8601; so are the other times."},
        "ready_at": MAYBE_TEXT,
        "ended_at": MAYBE_TEXT,
        "exit_code": {"type": ["integer", "null"], "description": "Of `servespec serve`; null while it serves."},
        "verdict": _VERDICT,
        "evidence": {"enum": ["workers", "log", None]},
        "ranks": {"type": "array", "items": _RANK},
        "graphs_at_exit": {
            "description": "Whether the workers held the same graphs at their end; null while they serve.",
            "enum": ["same", "changed", "unseen", None],
        },
        "engine_said": {
            "description": "What the engine's log says; bytes are as round as the GiB that it prints.",
            **closed_object({key: {"type": "integer"} for key in _SAID}, optional=_SAID),
        },
        "dispatch": {
            "description": "How the target's steps ran, by engine (data-parallel rank); NONE is eager.",
            "type": "array",
            "items": _DISPATCHED,
        },
        "verification": {
            "description": "Steps with all drafts and adaptive ones, where verification follows the load.",
            "anyOf": [{"type": "null"}, closed_object({"fixed_steps": COUNT, "adaptive_steps": COUNT})],
        },
        "statistics": {"enum": [str(one) for one in Statistics]},
        "versions": closed_object(
            {"servespec": {"type": "string"}, "engine": MAYBE_TEXT, "torch": MAYBE_TEXT, "driver": MAYBE_TEXT}
        ),
        "findings": DIAGNOSTICS_SCHEMA,
    }
)


def _record_schema() -> dict[str, Any]:
    # Through text, so that no part of it is the plan's own, or its stock's.
    schema: dict[str, Any] = json.loads(json.dumps(PLAN_SCHEMA))
    schema["title"] = "servespec record"
    schema["description"] = "A plan, and beside it what one launch of it captured and did, format 1."
    schema["properties"]["measured"] = _MEASURED
    schema["required"].append("measured")
    row = schema["properties"]["runners"]["items"]
    row["properties"]["captured"] = _CAPTURED
    row["required"].append("captured")
    return schema


RECORD_SCHEMA = _record_schema()

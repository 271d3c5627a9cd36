"""JSON Schema of a record: a plan with measured columns beside the planned ones, format 1.

A record is what one launch left: every row of the plan says what was captured of it, and `measured` holds the rest.
"""

import json
from collections.abc import Mapping
from typing import Any

from servespec.compiler.lower import Statistics
from servespec.compiler.plan import DIAGNOSTICS_SCHEMA, PLAN_SCHEMA

_COUNT = {"type": "integer", "minimum": 0}
_MAYBE_COUNT = {"type": ["integer", "null"], "minimum": 0}
_MAYBE_TEXT = {"type": ["string", "null"]}
_VERDICT = {"enum": ["as_planned", "differs", "unseen"]}


def _object(properties: Mapping[str, Any], optional: bool = False) -> dict[str, Any]:
    """An object of these keys alone, all of them there unless ``optional``."""
    required = [] if optional else list(properties)
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


_CAPTURED = {
    "description": "Graphs of this row that were captured, on each rank of `measured.ranks` or as the log counts them; "
    "null where the evidence has no number of its own.",
    **_object({"graphs": {"type": "array", "items": _MAYBE_COUNT}, "verdict": _VERDICT}),
}
_RANK = _object(
    {
        "data_parallel_rank": _MAYBE_COUNT,
        "rank": _MAYBE_COUNT,
        "capture_seconds": {"type": "number", "minimum": 0},
        "graph_bytes": {"type": "integer", "description": "Device memory that went during capture; can be negative."},
    }
)
_DISPATCHED = _object(
    {
        "engine": _COUNT,
        "mode": {"type": "string", "description": "FULL, PIECEWISE, or NONE for eager."},
        "steps": _COUNT,
        "unpadded_tokens": _COUNT,
        "padding_tokens": _COUNT,
    }
)
_SAID = (
    "model_bytes",
    "kv_cache_bytes",
    "kv_cache_tokens",
    "graph_pool_bytes",
    "graph_pool_estimate_bytes",
)
_MEASURED = _object(
    {
        "started_at": {"type": "string", "description": "UTC, ISO 8601; so are the other times."},
        "ready_at": _MAYBE_TEXT,
        "ended_at": _MAYBE_TEXT,
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
            **_object({key: {"type": "integer"} for key in _SAID}, optional=True),
        },
        "dispatch": {
            "description": "How the target's steps ran, by engine (data-parallel rank); NONE is eager.",
            "type": "array",
            "items": _DISPATCHED,
        },
        "statistics": {"enum": [str(one) for one in Statistics]},
        "versions": _object(
            {"servespec": {"type": "string"}, "engine": _MAYBE_TEXT, "torch": _MAYBE_TEXT, "driver": _MAYBE_TEXT}
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

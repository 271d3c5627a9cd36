"""JSON Schema of what differs between two plans, format 1."""

from typing import Any

from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.coverage import Ran
from servespec.compiler.graphs.shape import Routine, Runner
from servespec.compiler.json_shapes import COUNT, MAYBE_COUNT, TEXT, closed_object

COMPARISON_FORMAT = 1

_SIZES = {"type": "array", "items": {"type": "integer", "minimum": 1}}
_MODE = {"enum": [*(str(ran) for ran in Ran), None]}
_RAN = {"before": _MODE, "after": _MODE, "padding": {"enum": ["less", "more", "same", "none"]}}
_EXTENT = closed_object({"count": COUNT, "graphs": COUNT, "largest": MAYBE_COUNT})


def _rows(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": closed_object(properties)}


_CHANGES = _rows({"name": TEXT, "before": {}, "after": {}})

COMPARISON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "servespec comparison",
    "description": "What differs between two plans, format 1; null is what a side does not have.",
    **closed_object(
        {
            "format": {"const": COMPARISON_FORMAT},
            "before": TEXT,
            "after": TEXT,
            "same": {"type": "boolean", "description": "Whether nothing differs."},
            "runners": _rows(
                {
                    "runner": {"enum": [str(runner) for runner in Runner]},
                    "routine": {"enum": [*(str(routine) for routine in Routine), "none"]},
                    "mode": {"enum": [str(mode) for mode in CudaGraphMode]},
                    "query_len": MAYBE_COUNT,
                    "num_speculative_tokens": MAYBE_COUNT,
                    "unit": {"enum": ["tokens", "requests"]},
                    "before": _EXTENT,
                    "after": _EXTENT,
                    "added_sizes": _SIZES,
                    "dropped_sizes": _SIZES,
                }
            ),
            "coverage": closed_object(
                {
                    "decode": _rows(
                        {"runner": TEXT, "routine": TEXT, "from_requests": COUNT, "to_requests": COUNT, **_RAN}
                    ),
                    "prefill": _rows({"from_tokens": COUNT, "to_tokens": COUNT, **_RAN}),
                    "mixed": _rows({"requests": COUNT, "tokens": COUNT, "drafted_at_requests": COUNT, **_RAN}),
                }
            ),
            "memory": _CHANGES,
            "resolved": _CHANGES,
            "launch": closed_object({"argv": _CHANGES, "env": _CHANGES}),
        }
    ),
}

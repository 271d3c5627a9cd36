"""The JSON form of where graphs pay, within a plan's."""

from typing import Any, Final

from servespec.compiler.curves.step_times import Bound, GraphGain, StepTimes, graph_gains
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.json_shapes import COUNT, MAYBE_COUNT, TEXT, Shape, closed_object

_DIGITS: Final = 3


def gains_json(times: StepTimes) -> dict[str, Any]:
    """In the form of ``GAINS_SCHEMA``."""
    return {"measured_by": times.name, "sizes": [_gain_json(one) for one in graph_gains(times)]}


def _gain_json(one: GraphGain) -> dict[str, Any]:
    return {
        "mode": str(one.mode),
        "query_len": one.query_len,
        "unit": "tokens" if one.query_len is None else "requests",
        "from_size": one.from_size,
        "to_size": one.to_size,
        "bound": str(one.bound),
        "least_gain": round(one.least, _DIGITS),
        "most_gain": round(one.most, _DIGITS),
    }


_RATIO: Final[Shape] = {"type": "number", "exclusiveMinimum": 0}

GAINS_SCHEMA: Final[Shape] = closed_object(
    {
        "measured_by": TEXT,
        "sizes": {
            "type": "array",
            "items": closed_object(
                {
                    "mode": {"enum": [str(CudaGraphMode.FULL), str(CudaGraphMode.PIECEWISE)]},
                    "query_len": MAYBE_COUNT,
                    "unit": {"enum": ["requests", "tokens"]},
                    "from_size": COUNT,
                    "to_size": COUNT,
                    "bound": {"enum": list(map(str, Bound))},
                    "least_gain": _RATIO,
                    "most_gain": _RATIO,
                }
            ),
        },
    }
)

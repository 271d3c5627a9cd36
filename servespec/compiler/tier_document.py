"""The JSON form of tiers that a curve chose, within a plan's."""

from typing import Any, Final

from servespec.compiler.curves.tiers import Prediction
from servespec.compiler.json_shapes import COUNT, TEXT, Shape, closed_object
from servespec.compiler.resolve.curve_tiers import TierChoice

_RATE_DIGITS: Final = 4
_SPEED_DIGITS: Final = 1


def choice_json(choice: TierChoice) -> dict[str, Any]:
    """In the form of ``TIERS_SCHEMA``."""
    return {
        "measured_by": choice.profile.name,
        "acceptance_rates": [round(rate, _RATE_DIGITS) for rate in choice.acceptance.rates],
        "acceptance": choice.acceptance.because,
        "tolerance": choice.tolerance,
        "chosen": [
            {
                "from_requests": tier.from_requests,
                "to_requests": tier.to_requests,
                "num_speculative_tokens": tier.num_speculative_tokens,
            }
            for tier in choice.tiers
        ],
        "predicted": [_prediction_json(one) for one in choice.predictions],
    }


def _prediction_json(one: Prediction) -> dict[str, Any]:
    return {
        "requests": one.requests,
        "num_speculative_tokens": one.num_speculative_tokens,
        "fixed": [
            {"num_speculative_tokens": k, "tokens_per_second": round(rate, _SPEED_DIGITS)}
            for k, rate in one.tokens_per_second.items()
        ],
        "without_speculation": None if one.without is None else round(one.without, _SPEED_DIGITS),
    }


def _list_of(item: Shape) -> Shape:
    return {"type": "array", "items": item}


_SHARE: Final[Shape] = {"type": "number", "minimum": 0, "maximum": 1}
_SPEED: Final[Shape] = {"type": "number", "exclusiveMinimum": 0}
_FIXED = closed_object({"num_speculative_tokens": COUNT, "tokens_per_second": _SPEED})
_CHOSEN = closed_object({"from_requests": COUNT, "to_requests": COUNT, "num_speculative_tokens": COUNT})
_PREDICTED = closed_object(
    {
        "requests": COUNT,
        "num_speculative_tokens": COUNT,
        "fixed": _list_of(_FIXED),
        "without_speculation": {"anyOf": [_SPEED, {"type": "null"}]},
    }
)

TIERS_SCHEMA: Final[Shape] = closed_object(
    {
        "measured_by": TEXT,
        "acceptance_rates": _list_of(_SHARE),
        "acceptance": TEXT,
        "tolerance": _SHARE,
        "chosen": _list_of(_CHOSEN),
        "predicted": _list_of(_PREDICTED),
    }
)

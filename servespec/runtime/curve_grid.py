"""Capture sizes by a curve that was measured, beside the default grid: the answer to `servespec grid`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from servespec.compiler.curves.measured_grid import MeasuredGrid, padding_of
from servespec.compiler.curves.profile import Profile
from servespec.compiler.curves.step_curve import StepCurve
from servespec.compiler.facts.graph_sizes import DECODE_EPSILON, PREFILL_EPSILON
from servespec.compiler.graphs.grid import DecodeGrid, PrefillGrid
from servespec.diagnostics import Place, SpecError
from servespec.runtime.config_rules import R022
from servespec.runtime.measured_files import profile_in
from servespec.units import Requests, Tokens

_DIGITS: Final = 4
_PREFILL: Final = "prefill"
FIELDS: Final = {"decode": "decode_cudagraph_capture_request_sizes", _PREFILL: "prefill_cudagraph_capture_token_sizes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GridWanted:
    """``kind`` is `decode` or `prefill`; what is None comes from the curve, ``epsilon`` from the default grid."""

    kind: str
    num_speculative_tokens: int | None
    cap: int | None
    epsilon: float | None
    padded_row_cost: float


def grid_of(files: Sequence[str], wanted: GridWanted) -> dict[str, Any]:
    """The sizes with what padding costs, and those of the default grid.

    Raises SpecError where a file is no curve, or where the curve does not reach what is asked for.
    """
    profile = profile_in(files)
    default_epsilon = PREFILL_EPSILON.value if wanted.kind == _PREFILL else DECODE_EPSILON.value
    epsilon = default_epsilon if wanted.epsilon is None else wanted.epsilon
    for option, share, most in (("--epsilon", epsilon, 1.0), ("--padded-row-cost", wanted.padded_row_cost, 10.0)):
        if not 0 < share <= most:
            raise _refused(option, f"`{share:g}` is not above 0 and up to {most:g}", f"write `{option} 0.05`")
    drafts, curve = _curve(profile, wanted)
    cap = curve.last if wanted.cap is None else wanted.cap
    unit = "tokens" if wanted.kind == _PREFILL else "requests"
    if curve.first > 1:
        message = f"`{profile.name}` has no step of fewer than {curve.first} {unit}, and sizes start at 1"
        raise _refused("--of", message, f"run `servespec profile` with `--{unit} auto`, or with 1 among them")
    if cap > curve.last:
        message = f"`{profile.name}` has no step of more than {curve.last} {unit}, not of {cap}"
        raise _refused("--cap", message, f"write `--cap {curve.last}`, or run `servespec profile` with more")
    sizes = MeasuredGrid(curve, epsilon, wanted.padded_row_cost).sizes(cap)
    return {
        "curve": profile.name,
        "kind": wanted.kind,
        "num_speculative_tokens": drafts,
        "epsilon": epsilon,
        "padded_row_cost": wanted.padded_row_cost,
        "field": FIELDS[wanted.kind],
        "by_curve": _grid_json(sizes, curve, wanted.padded_row_cost),
        "default": _grid_json(_default_sizes(wanted.kind, cap), curve, wanted.padded_row_cost),
    }


def _curve(profile: Profile, wanted: GridWanted) -> tuple[int | None, StepCurve]:
    if wanted.kind == _PREFILL:
        if profile.mixed is None:
            raise _refused("--of", f"`{profile.name}` has no steps with prompts", "run `servespec profile` again")
        return None, profile.mixed
    timed = list(profile.by_drafts)
    drafts = timed[-1] if wanted.num_speculative_tokens is None else wanted.num_speculative_tokens
    if drafts not in profile.by_drafts:
        message = f"`{profile.name}` has no steps with K = {drafts}"
        raise _refused("--num-speculative-tokens", message, f"it has {', '.join(f'`{k}`' for k in timed)}")
    return drafts, profile.by_drafts[drafts]


def _default_sizes(kind: str, cap: int) -> tuple[int, ...]:
    return PrefillGrid().sizes(Tokens(cap)) if kind == _PREFILL else DecodeGrid().sizes(Requests(cap))


def _grid_json(sizes: Sequence[int], curve: StepCurve, padded_row_cost: float) -> dict[str, Any]:
    padding = padding_of(sizes, curve, padded_row_cost)
    return {
        "sizes": list(sizes),
        "mean_padding": round(padding.mean, _DIGITS),
        "worst_padding": round(padding.worst, _DIGITS),
        "worst_at": padding.worst_at,
    }


def _refused(option: str, message: str, help_text: str) -> SpecError:
    return SpecError([R022.at(Place(option), message, help_text)])

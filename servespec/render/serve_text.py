"""What `serve` says while it works, one line an event."""

from collections.abc import Mapping, Sequence
from typing import Any

from servespec.compiler.lower import Statistics
from servespec.compiler.plan import Plan
from servespec.runtime.capture_log import verdict
from servespec.runtime.supervise import Event, PhaseReached, Ready, Started, Stopping


def event_line(event: Event, plan: Plan) -> str:
    match event:
        case Started(pid=pid, log_path=log_path):
            return f"started the engine (process {pid}); its log is {log_path}"
        case PhaseReached(phase=phase, after_seconds=seconds):
            return f"{seconds:6.0f} s  {phase}"
        case Ready(base_url=url, after_seconds=seconds, findings=findings):
            said = "; ".join(finding.message for finding in findings) or verdict(plan)
            return f"{seconds:6.0f} s  {said}\n{seconds:6.0f} s  ready at {url}"
        case Stopping(because=because):
            return f"stopping: {because}"


_MODES: Mapping[str, str] = {"FULL": "FULL", "PIECEWISE": "PIECEWISE", "NONE": "eager"}


def dispatch_table(counts: Sequence[Mapping[str, Any]], statistics: Statistics) -> str:
    """How the target's steps ran, over all engines; '' where the engine said nothing."""
    if statistics is Statistics.OFF:
        return "the target's steps were not counted: `engine.args` switches the engine's statistics off\n"
    if not counts:
        return ""
    modes = sorted({one["mode"] for one in counts}, key=[*_MODES].index)
    steps = sum(one["steps"] for one in counts)
    lines = (_mode_line([one for one in counts if one["mode"] == mode], steps) for mode in modes)
    return "\n".join(("how the target's steps ran; a drafter's are not counted", *lines)) + "\n"


def _mode_line(counts: Sequence[Mapping[str, Any]], all_steps: int) -> str:
    steps, unpadded, padding = (sum(one[key] for one in counts) for key in _SUMMED)
    share, padded = 100 * steps / all_steps, 100 * padding / max(unpadded + padding, 1)
    name = _MODES[counts[0]["mode"]]
    return f"  {name:<9} {share:5.1f} % of {all_steps:,} steps, {padded:.1f} % of its tokens padding"


_SUMMED = ("steps", "unpadded_tokens", "padding_tokens")

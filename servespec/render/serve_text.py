"""What `serve` says while it works, one line an event."""

from collections.abc import Iterator, Mapping, Sequence

from servespec.compiler.lower import Statistics
from servespec.compiler.plan import Plan
from servespec.runtime.capture import Capture, Evidence, VerificationSteps
from servespec.runtime.dispatch_counts import ModeCount
from servespec.runtime.serving import Checked, LaunchEvent
from servespec.runtime.supervise import PhaseReached, Progressed, Ready, Stalled, Started, Stopping

_GIB_BYTES = 1 << 30


def event_line(event: LaunchEvent, plan: Plan) -> str | None:
    """None for what only a bar can show."""
    match event:
        case Progressed():
            return None
        case Started(pid=pid, log_path=log_path):
            return f"started the engine (process {pid}); its log is {log_path}"
        case PhaseReached(phase=phase, after_seconds=seconds):
            return f"{seconds:6.0f} s  {phase}"
        case Stalled(phase=phase, last_line=line, quiet_seconds=quiet, after_seconds=seconds):
            return (
                f"{seconds:6.0f} s  still {phase}: the log has not grown for {quiet:.0f} seconds; its last line: {line}"
            )
        case Checked(capture=capture):
            return capture_line(capture, plan)
        case Ready(base_url=url, after_seconds=seconds):
            return f"{seconds:6.0f} s  ready at {url}"
        case Stopping(because=because):
            return f"stopping: {because}"


def capture_line(capture: Capture, plan: Plan) -> str:
    """One line: as planned, with what it took, or how it differs."""
    if capture.findings:
        return "; ".join(finding.message for finding in capture.findings)
    if not plan.graphs.shapes:
        return "no graphs were planned"
    return f"captured as planned{_BY[capture.evidence]}: {', '.join(_extent(capture, plan))}"


_BY: Mapping[Evidence, str] = {Evidence.WORKERS: "", Evidence.LOG: ", by the counts in the log"}


def _extent(capture: Capture, plan: Plan) -> Iterator[str]:
    """Runners, graphs, and the memory and time of the rank that took most of each."""
    ranks = capture.ranks
    where = f" on {_counted(len(ranks), 'rank')}" if capture.evidence is Evidence.WORKERS else ""
    yield _counted(len(plan.graphs.rows), "runner")
    yield _counted(len(plan.graphs.shapes), "graph") + where
    # What other processes gave back meanwhile can be more than the graphs took.
    if ranks and (graph_bytes := max(rank.graph_bytes for rank in ranks)) > 0:
        yield f"{graph_bytes / _GIB_BYTES:.1f} GiB"
    if ranks:
        yield f"{max(rank.capture_seconds for rank in ranks):.0f} s"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def verification_line(steps: VerificationSteps | None) -> str:
    """Which steps verified all their drafts, '' where verification does not follow the load."""
    if steps is None:
        return ""
    return f"verification: {steps.fixed:,} steps with all drafts, {steps.adaptive:,} adaptive\n"


_MODES: Mapping[str, str] = {"FULL": "FULL", "PIECEWISE": "PIECEWISE", "NONE": "eager"}


def dispatch_table(counts: Sequence[ModeCount], statistics: Statistics) -> str:
    """How the target's steps ran, over all engines; '' where the engine said nothing."""
    if statistics is Statistics.OFF:
        return "the target's steps were not counted: `engine.args` switches the engine's statistics off\n"
    if not counts:
        return ""
    steps = sum(one.steps for one in counts)
    by_mode = {mode: [one for one in counts if one.mode == mode] for mode in (*_MODES, *(one.mode for one in counts))}
    lines = (_mode_line(_MODES.get(mode, mode), own, steps) for mode, own in by_mode.items() if own)
    return "\n".join(("how the target's steps ran; a drafter's are not counted", *lines)) + "\n"


def _mode_line(name: str, counts: Sequence[ModeCount], all_steps: int) -> str:
    padding = sum(one.padding_tokens for one in counts)
    tokens = padding + sum(one.unpadded_tokens for one in counts)
    share, padded = 100 * sum(one.steps for one in counts) / all_steps, 100 * padding / max(tokens, 1)
    return f"  {name:<9} {share:5.1f} % of {all_steps:,} steps, {padded:.1f} % of its tokens padding"

"""What `serve` says while it works, one line an event."""

from servespec.compiler.plan import Plan
from servespec.runtime.capture_log import verdict
from servespec.runtime.supervise import Event, PhaseReached, Ready, Stalled, Started, Stopping


def event_line(event: Event, plan: Plan) -> str:
    match event:
        case Started(pid=pid, log_path=log_path):
            return f"started the engine (process {pid}); its log is {log_path}"
        case PhaseReached(phase=phase, after_seconds=seconds):
            return f"{seconds:6.0f} s  {phase}"
        case Stalled(phase=phase, last_line=line, quiet_seconds=quiet, after_seconds=seconds):
            return (
                f"{seconds:6.0f} s  still {phase}: the log has not grown for {quiet:.0f} seconds; its last line: {line}"
            )
        case Ready(base_url=url, after_seconds=seconds, findings=findings):
            said = "; ".join(finding.message for finding in findings) or verdict(plan)
            return f"{seconds:6.0f} s  {said}\n{seconds:6.0f} s  ready at {url}"
        case Stopping(because=because):
            return f"stopping: {because}"

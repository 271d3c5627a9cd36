"""What `serve` says while it works, one line an event."""

from servespec.runtime.supervise import Event, PhaseReached, Ready, Started, Stopping


def event_line(event: Event) -> str:
    match event:
        case Started(pid=pid, log_path=log_path):
            return f"started the engine (process {pid}); its log is {log_path}"
        case PhaseReached(phase=phase, after_seconds=seconds):
            return f"{seconds:6.0f} s  {phase}"
        case Ready(base_url=url, after_seconds=seconds):
            return f"{seconds:6.0f} s  ready at {url}"
        case Stopping(because=because):
            return f"stopping: {because}"

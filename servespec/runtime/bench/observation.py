"""What is seen of a server and the client while a cell runs, beside what the client measures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.runtime.bench.cpu_time import CpuTimes, busiest_share, cpu_times, front_end_pids
from servespec.runtime.bench.servers import Server
from servespec.runtime.bench.steps import Counted, counted_steps, steps_between

Seen = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """Counters at one moment."""

    steps: Counted
    client: CpuTimes
    front_end: CpuTimes


def moment(server: Server, client_pid: int) -> Moment:
    front_end = front_end_pids(server.folder / "engine.log")
    return Moment(counted_steps(server.base_url), cpu_times([client_pid]), cpu_times(front_end))


def seen_between(before: Moment, after: Moment) -> Seen:
    """Steps by how they ran; cores that the client and the busiest API server took: at 1 it bounds the cell."""
    return {
        "steps": steps_between(before.steps, after.steps),
        "client_cores": busiest_share(before.client, after.client),
        "api_server_cores": busiest_share(before.front_end, after.front_end),
    }


def observed(server: Server, client_pid: int, run: Callable[[], Mapping[str, Any]]) -> tuple[Mapping[str, Any], Seen]:
    """What ``run`` gives, and what was seen meanwhile."""
    before = moment(server, client_pid)
    result = run()
    return result, seen_between(before, moment(server, client_pid))

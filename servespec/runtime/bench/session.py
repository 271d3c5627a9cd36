"""One bench from its first launch to its last cell."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from servespec.diagnostics import Diagnostic
from servespec.runtime.bench.arms import Arm
from servespec.runtime.bench.client_process import Load
from servespec.runtime.bench.design import BenchDesign, Cell, arms_in, rounds_of
from servespec.runtime.bench.results import Results, cell_json, launch_json
from servespec.runtime.bench.servers import Server

THROWAWAY_ROUND: Final = 0
_WARM_UP_PROMPTS_PER_REQUEST: Final = 1

ArmUp = Callable[[Arm, Path], AbstractContextManager[Server]]
"""Serves an arm, with its records in a folder, for the time of a block."""


Observe = Callable[[Server, Callable[[], Mapping[str, Any]]], tuple[Mapping[str, Any], Mapping[str, Any]]]
"""What a run gives, and what was seen of the server and the client meanwhile."""


class Client(Protocol):
    """Makes a load, and says what it measured."""

    def run(self, load: Load) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ArmStarting:
    """An arm is being launched, for :data:`THROWAWAY_ROUND` or a measured round."""

    arm: str
    round: int


@dataclass(frozen=True, slots=True)
class ArmReady:
    arm: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CellDone:
    """``number`` of ``count`` cells."""

    cell: Mapping[str, Any]
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Warned:
    """What was found before anything is launched, and stops nothing."""

    findings: tuple[Diagnostic, ...]


BenchEvent = Warned | ArmStarting | ArmReady | CellDone
OnBenchEvent = Callable[[BenchEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A design with the arms and the ways to run them.

    ``folder`` keeps a folder for each launch; ``observe`` looks at a server while something runs.
    """

    design: BenchDesign
    arms: Mapping[str, Arm]
    folder: Path
    arm_up: ArmUp
    client: Client
    observe: Observe
    on_event: OnBenchEvent


def run_bench(bench: Bench, results: Results) -> None:
    """Measures every cell that ``results`` does not hold yet.

    Raises SpecError where an arm cannot be served or the client fails; what was measured is in the file.
    """
    missing = [cells for cells in _missing(bench.design, results) if cells]
    if not missing:
        return
    if bench.design.side_by_side_kv_bytes is None:
        _take_turns(bench, results, missing)
    else:
        _side_by_side(bench, results, missing)


def _missing(design: BenchDesign, results: Results) -> Iterator[list[Cell]]:
    for cells in rounds_of(design):
        yield [cell for cell in cells if not results.has(cell)]


def _side_by_side(bench: Bench, results: Results, rounds: Sequence[Sequence[Cell]]) -> None:
    """All arms are up at once, and one at a time has requests."""
    with ExitStack() as stack:
        first = rounds[0][0].round
        servers = {arm: stack.enter_context(_started(bench, arm, first)) for arm in bench.design.arms}
        for server in servers.values():
            _await(bench, results, server, first)
        for server in servers.values():
            _warm_up(bench, server)
        for cell in (cell for cells in rounds for cell in cells):
            _measure(bench, results, servers[cell.arm], cell)


def _take_turns(bench: Bench, results: Results, rounds: Sequence[Sequence[Cell]]) -> None:
    """A launch for every arm and round, after one of each that nobody measures: it fills the engine's caches."""
    for arm in bench.design.arms:
        with _started(bench, arm, THROWAWAY_ROUND) as server:
            server.wait_until_ready()
    for cells in rounds:
        number = cells[0].round
        for arm in arms_in(bench.design, number):
            own = [cell for cell in cells if cell.arm == arm]
            if own:
                _one_turn(bench, results, arm, own)


def _one_turn(bench: Bench, results: Results, arm: str, cells: Sequence[Cell]) -> None:
    with _started(bench, arm, cells[0].round) as server:
        _await(bench, results, server, cells[0].round)
        _warm_up(bench, server)
        for cell in cells:
            _measure(bench, results, server, cell)


def _started(bench: Bench, arm: str, round_number: int) -> AbstractContextManager[Server]:
    bench.on_event(ArmStarting(arm, round_number))
    return bench.arm_up(bench.arms[arm], bench.folder / f"{arm}-{round_number}")


def _await(bench: Bench, results: Results, server: Server, round_number: int) -> None:
    seconds = server.wait_until_ready()
    results.add_launch(launch_json(server, round_number, seconds, is_alone=bench.design.side_by_side_kv_bytes is None))
    bench.on_event(ArmReady(server.arm.label, seconds))


def _warm_up(bench: Bench, server: Server) -> None:
    """Every load once, unmeasured: kernels are compiled for a batch size when it is first met."""
    for concurrency in bench.design.concurrencies:
        bench.client.run(_load(bench.design, server, THROWAWAY_ROUND, concurrency, _WARM_UP_PROMPTS_PER_REQUEST))


def _measure(bench: Bench, results: Results, server: Server, cell: Cell) -> None:
    load = _load(bench.design, server, cell.round, cell.concurrency, bench.design.prompts_per_request)
    result, seen = bench.observe(server, lambda: bench.client.run(load))
    server.check_alive()
    results.add_cell(cell_json(cell, load.prompts, result, seen))
    count = len(bench.design.arms) * len(bench.design.concurrencies) * bench.design.rounds
    bench.on_event(CellDone(results.cells[-1], len(results.cells), count))


def _load(design: BenchDesign, server: Server, round_number: int, concurrency: int, prompts_per_request: int) -> Load:
    arm = server.arm
    return Load(
        base_url=server.base_url,
        model=arm.tokenizer,
        served_name=arm.served_name,
        concurrency=concurrency,
        prompts=concurrency * prompts_per_request,
        input_tokens=design.input_tokens,
        output_tokens=design.output_tokens,
        seed=design.prompts_seed(round_number, concurrency),
    )

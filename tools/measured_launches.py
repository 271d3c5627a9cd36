"""What measured launches held: the files of ``docs/measurements/`` as launches with their figures."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.memory.graph_remedy import GraphRemedy
from servespec.schema.overrides import with_overrides
from servespec.schema.source import read_source

ROOT = Path(__file__).resolve().parents[1]

GIB = 1 << 30
MIB = 1 << 20
Json = Mapping[str, Any]

MEASUREMENTS = ROOT / "docs" / "measurements"
FILES = (
    "2026-11-29-h200-memory.json",
    "2026-11-29-h200-graph-memory.json",
    "published-gb200-memory.json",
    "published-sm120-memory.json",
)
OWN_FILES = "*-memory-launches-*.json"
"""As `benchmarks/launches.py` writes them."""
FITTED_FILES = ("2026-12-01-h200-memory-launches-9.json", "2026-12-01-h200-memory-launches-11.json")
"""Of launches whose FULL graphs say what the kernels of a layer take."""
SHARED_FILES = (
    "2026-12-01-h200-launches-extension.json",
    "2026-12-01-h200-launches-bench-8b-fp8.json",
    "2026-12-01-h200-launches-bench-30b-a3b-fp8.json",
)
"""Launches that shared a GPU, with what their captures reserved in the process but not on the device.

The last two are as `benchmarks/bench_launches.py` writes them.
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure; ``is_fitted`` where a constant of the ledger was chosen by it.

    ``bound`` is what its file asks for, None where all of its name have the same; ``bound_gib`` is enough too.
    """

    name: str
    value: float
    unit: str
    is_fitted: bool
    bound: float | None = None
    bound_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """One start-up: its spec, what was measured in it, and the engine's estimate of its graphs where that is given.

    ``is_stock`` takes the graphs of the unmodified engine, else those of the plan; ``is_planned`` says that the launch
    was servespec's own, under the lowering of its spec.
    """

    name: str
    file: str
    is_stock: bool
    target: Json
    draft: Json | None
    spec: Json
    figures: tuple[Figure, ...]
    given_estimate_gib: float | None
    is_planned: bool = False


@dataclass(frozen=True, slots=True)
class Saving:
    """What remedies took away, one after the other, on an earlier grid without a limit of decode tokens."""

    launch: Launch
    before: frozenset[GraphRemedy]
    added: frozenset[GraphRemedy]
    measured_gib: float


def launches() -> Iterator[Launch]:
    for file in FILES:
        found = document(file)
        for one in found["launches"]:
            yield _launch(file, found["models"], one)
    yield from own_launches()


@dataclass(frozen=True, slots=True)
class Repeated:
    """A figure of launches that were the same but for their port."""

    launch: str
    name: str
    values: tuple[float, ...]
    unit: str

    @property
    def spread(self) -> float:
        """The widest difference, as a share of the smallest."""
        return max(self.values) / min(self.values) - 1


def own_launches() -> Iterator[Launch]:
    """Launches of `benchmarks/launches.py` that served; of those that are the same, the first."""
    yield from (same[0] for same in _same_launches())


def repeated() -> Iterator[Repeated]:
    for same in _same_launches():
        for figures in zip(*(launch.figures for launch in same), strict=True) if len(same) > 1 else ():
            yield Repeated(same[0].name, figures[0].name, tuple(one.value for one in figures), figures[0].unit)


def _same_launches() -> list[list[Launch]]:
    found: dict[str, list[Launch]] = {}
    for path in sorted(MEASUREMENTS.glob(OWN_FILES)):
        held = document(path.name)
        for one in held["launches"]:
            if one["exit_code"] == 0:
                launch = _own_launch(path.name, held["models"], one)
                found.setdefault(launch.name, []).append(launch)
    return list(found.values())


def _own_launch(file: str, models: Json, one: Json) -> Launch:
    written = YAML(typ="safe", pure=True).load(one["text"])
    target = written["model"]["id"]
    switches = _remedies(one)
    in_force = [remedy for remedy, is_on in switches.items() if is_on]
    title, figures = _title(target, written, in_force), tuple(_own_figures(one, is_fitted=file in FITTED_FILES))
    return _launch_of_spec(title, file, models, written, switches, figures)


def _launch_of_spec(
    name: str, file: str, models: Json, written: dict[str, Any], remedies: Json, figures: tuple[Figure, ...] = ()
) -> Launch:
    """``written`` is the spec's own mapping, which is taken apart; ``remedies`` are those that were in force."""
    del written["serve"]
    target, drafted = written["model"].pop("id"), written.get("speculative")
    return Launch(
        name=name,
        file=file,
        is_stock=False,
        target=models[target],
        draft=None if drafted is None else models[drafted.pop("model")],
        spec={**written, "remedies": remedies},
        figures=figures,
        given_estimate_gib=None,
        is_planned=True,
    )


def _remedies(one: Json) -> Json:
    """Those that the workers ran with; what `auto` turns on today is not what it did then."""
    ran = {name for report in one["reports"] for name in report["remedies"]}
    return {str(remedy): remedy in ran for remedy in Remedy}


@dataclass(frozen=True, slots=True)
class SharedRow:
    """What the captures of one row of a plan reserved in the allocator of their process."""

    routine: str
    widest_tokens: int
    pool_bytes: int

    @property
    def stage(self) -> str:
        """Both modes have the same: a FULL graph wider than all PIECEWISE ones is captured among those."""
        return STAGES[self.routine]


@dataclass(frozen=True, slots=True)
class SharedLaunch:
    """A launch beside others on one GPU; what went on the device meanwhile is everybody's."""

    whole: Launch
    rows: tuple[SharedRow, ...]


def shared_launches() -> Iterator[SharedLaunch]:
    """By the names of their specs, of which no two files have the same."""
    for file in SHARED_FILES:
        held = document(file)
        for one in held["launches"]:
            written = with_overrides(read_source(one["text"], one["spec"]), one["settings"]).data
            name = Path(one["spec"]).stem
            whole = _launch_of_spec(name, file, held["models"], deepcopy(dict(written)), _remedies(one))
            yield SharedLaunch(whole, tuple(map(_shared_row, one["row_costs"])))


def _shared_row(row: Json) -> SharedRow:
    return SharedRow(row["routine"], row["max_tokens"], max(cost["pool_bytes"] for cost in row["costs"]))


_USUAL_CONTEXT, _USUAL_SHARE = 4096, 0.9


def _title(target: str, spec: Json, remedies: Sequence[str] = ()) -> str:
    """What tells one of our launches from another; ``remedies`` are in force, whoever turned them on."""
    ranks = spec.get("parallel", {}).get("tensor_parallel_size", 1)
    context, share = spec["model"].get("max_model_len"), spec["memory"].get("gpu_memory_utilization")
    parts = (
        f"{Path(target).name} K={spec.get('speculative', {}).get('num_speculative_tokens', 0)}",
        f"{spec['scheduler']['max_num_seqs']} requests",
        *((f"context {context}",) if context != _USUAL_CONTEXT else ()),
        *((f"share {share}",) if share != _USUAL_SHARE else ()),
        "stock" if spec["engine"]["lowering"] == "none" else spec["engine"]["lowering"],
        *remedies,
        *((f"{ranks} ranks",) if ranks > 1 else ()),
    )
    return ", ".join(parts)


def _own_figures(one: Json, *, is_fitted: bool) -> Iterator[Figure]:
    """Of the rank that held most, and of the engine's log."""
    said, ranks = one["measured"]["engine_said"], one["measured"]["ranks"]
    memory = max(
        (rank["memory"] for rank in ranks if rank["memory"]), key=lambda held: held["held_bytes"], default=None
    )
    if memory is not None:
        yield _measured("weights", memory["weights_bytes"])
        yield _measured("held", memory["held_bytes"])
        yield _measured("peak of a step", memory["peak_bytes"])
    yield replace(_measured("added", max(rank["graph_bytes"] for rank in ranks)), is_fitted=is_fitted)
    for name, key in (("estimate", "graph_pool_estimate_bytes"), ("KV cache", "kv_cache_bytes")):
        yield _measured(name, said[key])
    yield Figure("KV tokens", said["kv_cache_tokens"], "tokens", is_fitted=False)
    for name, size in _stages(one).items():
        yield _measured(name, size)


def _stages(one: Json) -> Mapping[str, int]:
    """What the captures of a stage took in the allocator, outputs and workspaces with it, where they took most."""
    stages: dict[str, int] = {}
    for row in one["row_costs"]:
        costs = [cost["pool_bytes"] for cost in row["costs"] if cost is not None]
        if costs:
            name = f"{STAGES[row['routine']]} {row['mode']}{WHOLE_STAGE}"
            stages[name] = stages.get(name, 0) + max(costs)
    return stages


STAGES: Mapping[str, str] = {
    "piecewise": "target",
    "uniform_decode": "target",
    "adaptive_verification": "target",
    "step0_piecewise": "step 0",
    "step0_uniform": "step 0",
    "later_steps": "later steps",
}
WHOLE_STAGE = ", all"
"""What the lines of the ledger call the manager that captures a routine."""


def _measured(name: str, size_bytes: int) -> Figure:
    return Figure(name, size_bytes / GIB, "GiB", is_fitted=False)


def bench_files() -> tuple[Path, ...]:
    """Results of `servespec bench`; the launches of some have a file of their own."""
    return tuple(path for path in sorted(MEASUREMENTS.glob("*-bench-*.json")) if "-launches-" not in path.name)


@cache
def document(file: str) -> Json:
    """What a file of measurements holds."""
    found: Json = json.loads((MEASUREMENTS / file).read_text(encoding="utf-8"))
    return found


def _launch(file: str, models: Json, one: Json) -> Launch:
    draft = one.get("draft")
    return Launch(
        name=one["name"],
        file=file,
        is_stock=one.get("graphs", "stock") == "stock",
        target=models[one["target"]],
        draft=None if draft is None else models[draft],
        spec=one["spec"],
        figures=tuple(_figure(name, value) for name, value in one["figures"].items()),
        given_estimate_gib=one.get("given", {}).get("estimate_gib"),
    )


def _figure(name: str, written: Json) -> Figure:
    unit = next(unit for unit in _UNITS if unit in written)
    value = written[unit] / GIB if unit == "bytes" else written[unit]
    return Figure(
        name, value, _UNITS[unit], bool(written.get("fitted")), written.get("bound"), written.get("bound_gib", 0.0)
    )


_UNITS: Mapping[str, str] = {"gib": "GiB", "bytes": "GiB", "tokens": "tokens", "token_bytes": "bytes"}
"""A figure's key in the file, and the unit that it is shown in."""


def savings() -> Iterator[Saving]:
    by_name = {launch.name: launch for launch in launches()}
    for file in FILES:
        for one in document(file).get("savings", ()):
            launch = by_name[one["launch"]]
            yield Saving(
                launch=replace(launch, spec={**launch.spec, **one["spec"]}),
                before=frozenset(map(GraphRemedy, one["before"])),
                added=frozenset(map(GraphRemedy, one["added"])),
                measured_gib=one["gib"],
            )
    yield from _own_savings(by_name)


def _own_savings(by_name: Mapping[str, Launch]) -> Iterator[Saving]:
    """Launches with remedies of graph memory beside the same launch without."""
    for name, launch in by_name.items():
        switches = launch.spec["remedies"] if launch.is_planned else {}
        remedies = [remedy for remedy, is_on in switches.items() if is_on]
        are_of_graphs = bool(remedies) and set(remedies) <= set(map(str, GraphRemedy))
        bare = by_name.get(name.removesuffix(", " + ", ".join(remedies))) if are_of_graphs else None
        if bare is not None:
            taken = (next(one.value for one in each.figures if one.name == "added") for each in (bare, launch))
            without, with_them = taken
            yield Saving(bare, frozenset(), frozenset(map(GraphRemedy, remedies)), without - with_them)

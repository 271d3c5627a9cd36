"""The results file: read, checked, continued, written whole after every cell."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jsonschema

from servespec.compiler.json_shapes import COUNT, MAYBE_TEXT, TEXT, closed_object
from servespec.diagnostics import Place, SpecError
from servespec.runtime.bench.bench_rules import RESULTS_FOREIGN
from servespec.runtime.bench.design import Cell
from servespec.runtime.bench.ratios import paired_ratios
from servespec.runtime.bench.servers import Server
from servespec.runtime.machine import MADE_ON
from servespec.runtime.machine_paths import without_machine_paths
from servespec.runtime.private_file import write_whole

BENCH_FORMAT: Final = 1

_NUMBER = {"type": "number"}
_MAYBE_NUMBER = {"type": ["number", "null"]}
_CELL_NUMBERS: Final = {
    "duration": "duration_seconds",
    "output_throughput": "output_tokens_per_second",
    "total_token_throughput": "total_tokens_per_second",
    **{
        f"{how}_{what}_ms": f"{how}_{what}_ms"
        for what in ("ttft", "tpot", "itl", "e2el")
        for how in ("mean", "median", "p90", "p99")
    },
    "spec_decode_acceptance_length": "acceptance_length",
}
"""The client's names of its numbers and ours; ours end in their unit."""


BENCH_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "servespec bench",
    "description": "Arms of one spec benched against each other in interleaved rounds, format 1.",
    **closed_object(
        {
            "format": {"const": BENCH_FORMAT},
            "what": TEXT,
            "servespec": TEXT,
            **MADE_ON,
            "spec_sha256": TEXT,
            "spec_text": TEXT,
            "acceptance": {"enum": ["none", "measured", "modelled"]},
            "design": {"type": "object"},
            "arms": {"type": "object", "additionalProperties": {"type": "object"}},
            "launches": {
                "type": "array",
                "items": closed_object(
                    {
                        "arm": TEXT,
                        "round": COUNT,
                        "ready_seconds": _NUMBER,
                        "verdict": TEXT,
                        "evidence": MAYBE_TEXT,
                        "ranks": {"type": "array", "items": {"type": "object"}},
                        "engine_said": {"type": "object", "additionalProperties": {"type": "integer"}},
                    }
                ),
            },
            "cells": {
                "type": "array",
                "items": closed_object(
                    {
                        "round": {"type": "integer", "minimum": 1},
                        "arm": TEXT,
                        "concurrency": {"type": "integer", "minimum": 1},
                        "prompts": COUNT,
                        "completed": COUNT,
                        "first_error": MAYBE_TEXT,
                        **dict.fromkeys(_CELL_NUMBERS.values(), _MAYBE_NUMBER),
                        "steps": {"type": ["object", "null"]},
                        "client_cores": _MAYBE_NUMBER,
                        "api_server_cores": _MAYBE_NUMBER,
                    }
                ),
            },
            "ratios": {
                "type": "array",
                "items": closed_object(
                    {
                        "metric": TEXT,
                        "arm": TEXT,
                        "over": TEXT,
                        "concurrency": COUNT,
                        "ratios": {"type": "array", "items": _NUMBER, "minItems": 1},
                        "geometric_mean": {**_NUMBER, "description": "Of `ratios`; the interval is its own."},
                        "median": {**_NUMBER, "description": "Of `ratios`; few pairs leave no interval of it."},
                        "low_95": _MAYBE_NUMBER,
                        "high_95": _MAYBE_NUMBER,
                    },
                    optional=["geometric_mean"],
                ),
            },
        }
    ),
}
"""JSON Schema (draft 2020-12) of a results file; a file that is continued is checked against it."""

_SAID_BESIDE_OTHERS: Final = ("model_bytes", "kv_cache_bytes", "kv_cache_tokens")
"""What the engine says by its own count; the rest it reads off the device's free memory."""

_SAME: Final = ("format", "servespec", "versions", "device", "spec_sha256", "design", "arms")
"""What must be equal for a file to be continued."""


@dataclass(slots=True)
class Results:
    """One results file. ``head`` says what was measured on what; cells and launches are added as they come."""

    path: Path
    head: Mapping[str, Any]
    launches: list[dict[str, Any]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)

    def has(self, cell: Cell) -> bool:
        return any((one["round"], one["arm"], one["concurrency"]) == _key(cell) for one in self.cells)

    def add_launch(self, launch: dict[str, Any]) -> None:
        self.launches.append(launch)
        self.write()

    def add_cell(self, cell: dict[str, Any]) -> None:
        self.cells.append(cell)
        self.write()

    def document(self) -> dict[str, Any]:
        ratios = paired_ratios(tuple(self.head["arms"]), self.cells)
        return {
            **self.head,
            "launches": self.launches,
            "cells": self.cells,
            "ratios": [one.to_json() for one in ratios],
        }

    def write(self) -> None:
        write_whole(self.path, json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n")


def _key(cell: Cell) -> tuple[int, str, int]:
    return cell.round, cell.arm, cell.concurrency


def open_results(path: Path, head: Mapping[str, Any]) -> Results:
    """New results, or those of ``path`` to be gone on with.

    Raises SpecError where the file is no results file, or one of another bench.
    """
    if not path.exists():
        return Results(path, head)
    try:
        found = json.loads(path.read_bytes())
        jsonschema.validate(found, BENCH_SCHEMA)
    except (ValueError, RecursionError, jsonschema.ValidationError):
        raise SpecError([_foreign(path, "it is no results file of `servespec bench`")]) from None
    differing = [name for name in _SAME if found[name] != json.loads(json.dumps(head[name]))]
    if differing:
        raise SpecError([_foreign(path, f"its {' and '.join(f'`{name}`' for name in differing)} differ")])
    return Results(path, {**head, "date": found["date"]}, found["launches"], found["cells"])


def _foreign(path: Path, why: str) -> Any:
    message = f"`{path}` cannot be gone on with: {why}"
    return RESULTS_FOREIGN.at(Place(str(path)), message, "name another file, or move this one away")


def cell_json(cell: Cell, prompts: int, result: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    """A cell as the file holds it; what the client did not give is null."""
    return {
        "round": cell.round,
        "arm": cell.arm,
        "concurrency": cell.concurrency,
        "prompts": prompts,
        "completed": result["completed"],
        "first_error": without_machine_paths(result.get("first_error")),
        **{ours: _rounded(result.get(theirs)) for theirs, ours in _CELL_NUMBERS.items()},
        **seen,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


_OF_THE_DEVICE: Final = ("graph_bytes", "memory")
"""Read off free memory, which others on the device change too."""


def launch_json(server: Server, round_number: int, ready_seconds: float, *, is_alone: bool) -> dict[str, Any]:
    """A launch as the file holds it; memory only where nothing else used the GPU."""
    measured = server.measured()
    ranks = [dict(rank) for rank in measured["ranks"]]
    said = dict(measured["engine_said"])
    if not is_alone:
        said = {name: said[name] for name in _SAID_BESIDE_OTHERS if name in said}
        ranks = [{name: value for name, value in rank.items() if name not in _OF_THE_DEVICE} for rank in ranks]
    return {
        "arm": server.arm.label,
        "round": round_number,
        "ready_seconds": round(ready_seconds, 1),
        "verdict": measured["verdict"],
        "evidence": measured["evidence"],
        "ranks": ranks,
        "engine_said": said,
    }

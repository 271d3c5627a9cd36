"""How the steps of the target ran: the engine's dispatch statistics, summed, as the files that a server leaves.

Each API server process leaves a file of its own; an engine reports every step to one of them, so the files add up.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servespec.runtime.private_file import write_private

FORMAT = 1
_FILE = re.compile(r"dispatch-\d+\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeCount:
    """The steps of one engine (data-parallel rank) that ran in one CUDA-graph mode; NONE is eager.

    ``padding_tokens`` were computed beside the ``unpadded_tokens`` because a graph, or another rank, is wider.
    """

    engine: int
    mode: str
    steps: int
    unpadded_tokens: int
    padding_tokens: int


def write_counts(folder: Path, process_id: int, counts: Iterable[ModeCount]) -> None:
    """Leaves the counts of one process; raises OSError where the folder cannot be written."""
    document = {"format": FORMAT, "counts": [to_json(count) for count in counts]}
    write_private(folder / f"dispatch-{process_id}.json", json.dumps(document, indent=1) + "\n")


def read_counts(folder: Path) -> tuple[ModeCount, ...]:
    """The sum over every process that left a file; empty where the engine made no statistics."""
    sums: dict[tuple[int, str], ModeCount] = {}
    for count in _each(folder):
        before = sums.get((count.engine, count.mode))
        sums[count.engine, count.mode] = count if before is None else _sum(before, count)
    return tuple(sums[key] for key in sorted(sums))


def remove_counts(folder: Path) -> None:
    """Of an earlier launch with the same folder, so that none is taken for this one's."""
    for path in _files(folder):
        path.unlink()


def to_json(count: ModeCount) -> dict[str, Any]:
    return {
        "engine": count.engine,
        "mode": count.mode,
        "steps": count.steps,
        "unpadded_tokens": count.unpadded_tokens,
        "padding_tokens": count.padding_tokens,
    }


def _files(folder: Path) -> list[Path]:
    """None of a folder that is gone."""
    return sorted(path for path in folder.glob("dispatch-*.json") if _FILE.fullmatch(path.name))


def _each(folder: Path) -> Iterator[ModeCount]:
    for path in _files(folder):
        yield from (ModeCount(**one) for one in json.loads(path.read_text(encoding="utf-8"))["counts"])


def _sum(one: ModeCount, other: ModeCount) -> ModeCount:
    return ModeCount(
        engine=one.engine,
        mode=one.mode,
        steps=one.steps + other.steps,
        unpadded_tokens=one.unpadded_tokens + other.unpadded_tokens,
        padding_tokens=one.padding_tokens + other.padding_tokens,
    )

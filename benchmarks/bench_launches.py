"""Writes what the arms of a side-by-side bench planned and captured, from its results and the folder of its records.

usage: python benchmarks/bench_launches.py --out FILE --models FOLDER BENCH RECORDS

BENCH is what `servespec bench --side-by-side` wrote, RECORDS what it kept with `--record`: a folder ARM-ROUND of each
launch.  FOLDER is the one that the specs' models are named from.  Nothing is launched and nothing is asked of this
machine: device, driver, versions, date and command are those of the bench.  Its arms shared a GPU, so only what the
others cannot change is written, in the form of `benchmarks/launches.py`.  A spec with the settings that were laid over
it has to be the one that the record tells of, and a model's config too.
"""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launches import counted, has_all, measured, models_of, named, row_costs

from servespec.diagnostics import SpecError
from servespec.runtime.bench.arms import NAMED_ARMS, settings_of_named
from servespec.runtime.bench.command import further_settings
from servespec.runtime.bench.design import BenchDesign
from servespec.runtime.capture_log import captured_counts
from servespec.runtime.machine import MADE_ON
from servespec.runtime.machine_paths import without_machine_paths
from servespec.runtime.record import RECORD_NAME, read_record
from servespec.schema.overrides import with_overrides
from servespec.schema.source import read_source

Json = Mapping[str, Any]

_LEFT_OUT = (
    "The arms shared the GPU, so device bytes, free memory and seconds, which the others change, are not here; "
    "`pool_bytes` is what the allocator of the arm's own process reserved. `settings` are what the bench laid over "
    "each spec, and in place of a curve what it chose. `exit_code` is the engine's, which the bench stopped at its end."
)
_LOG_NAME = "engine.log"
_OF_OTHERS = ("ranks", "engine_said")
_OF_OTHERS_IN_REPORTS = ("capture_seconds", "graph_bytes", "memory", "captures")
_MANAGERS = {"step0_piecewise": "prefill", "step0_uniform": "prefill", "later_steps": "decode"}
"""The drafter's, by a routine of theirs, as `benchmarks/launches.py` names them."""


def main() -> int:
    arguments = _arguments()
    bench = json.loads(arguments.bench.read_text(encoding="utf-8"))
    document = document_of(bench, arguments.records, arguments.models)
    arguments.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for one in document["launches"]:
        verdict = "as planned" if one["equal"] else "DIFFERS"
        print(f"{one['spec']}: {sum(one['captured'].values())} graphs, {verdict}, {one['measured']['graphs_at_exit']}")
    return 0 if all(one["equal"] for one in document["launches"]) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("bench", type=Path, metavar="BENCH")
    parser.add_argument("records", type=Path, metavar="RECORDS")
    return parser.parse_args()


def document_of(bench: Json, records: Path, models: Path) -> dict[str, Any]:
    """Of every launch of the bench; SystemExit where one has no record, or the record is of something else."""
    if bench["design"]["side_by_side_kv_bytes"] is None:
        raise SystemExit("the arms of this bench took turns: benchmarks/launches.py says more of such launches")
    found = [_launch(bench, one, records, models) for one in bench["launches"]]
    document = {
        "what": "graphs planned by servespec and captured by the engine, by manager and mode",
        **{key: bench[key] for key in MADE_ON},
        "left_out": _LEFT_OUT,
        "models": dict(model for one in found for model in models_of(one["text"], models)),
        "launches": found,
    }
    return dict(without_machine_paths(document, records))


def _launch(bench: Json, launched: Json, records: Path, models: Path) -> dict[str, Any]:
    arm = bench["arms"][launched["arm"]]
    folder = records / f"{launched['arm']}-{launched['round']}"
    record, text = _record(folder), arm["texts"][arm["spec"]]
    given = (*_own_settings(launched["arm"], text), *further_settings(_design(bench["design"])))
    _check(launched["arm"], record, text, given, models)
    planned = _planned(record)
    captured = named(captured_counts((folder / _LOG_NAME).read_text(encoding="utf-8", errors="replace")))
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("captured-*.json"))]
    said = measured(folder / RECORD_NAME)
    return {
        "spec": arm["spec"],
        "arm": launched["arm"],
        "text": text,
        "settings": [*given, *_chosen(record)],
        "exit_code": record["measured"]["exit_code"],
        "lowering": record["engine"]["lowering"],
        "planned": planned,
        "captured": captured,
        "equal": said["verdict"] == "as_planned" and has_all(planned, captured, reports),
        "reports": [_without(counted(report), _OF_OTHERS_IN_REPORTS) for report in reports],
        "measured": _without(said, _OF_OTHERS),
        "row_costs": [_own_costs(row) for row in row_costs(folder / RECORD_NAME)],
    }


def _record(folder: Path) -> Json:
    missing = [name for name in (RECORD_NAME, _LOG_NAME) if not (folder / name).is_file()]
    if missing:
        raise SystemExit(f"there is no {missing[0]} in {folder}: name the folder that the bench had as --record")
    try:
        return read_record(folder / RECORD_NAME)
    except SpecError as error:
        raise SystemExit(error.diagnostics[0].message) from None


def _design(written: Json) -> BenchDesign:
    return BenchDesign(**{field: written[field] for field in BenchDesign.__dataclass_fields__})


def _own_settings(arm: str, text: str) -> tuple[str, ...]:
    """Of an arm that is a way to serve the bench's spec, and not a spec of its own."""
    return tuple(settings_of_named(arm, read_source(text, arm))) if arm in NAMED_ARMS else ()


def _check(arm: str, record: Json, text: str, given: tuple[str, ...], models: Path) -> None:
    """A launch tells nothing of a spec or a config that are not those it was of.

    The bench gives each server a port, as the last of the settings.
    """
    words = record["launch"]["argv"]
    served = with_overrides(read_source(text, arm), (*given, f"serve.port={words[words.index('--port') + 1]}")).text
    if hashlib.sha256(served.encode()).hexdigest() != record["inputs"]["spec_sha256"]:
        laid_over = " ".join(("its one spec and", *given))
        raise SystemExit(f"arm {arm} was served from more than {laid_over}, or its record is of another bench")
    for model in filter(None, (record["inputs"]["model"], record["inputs"]["draft"])):
        path = models / model["id"] / "config.json"
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != model["config_sha256"]:
            raise SystemExit(f"{path} is not the config that arm {arm} was served with")


def _planned(record: Json) -> dict[str, int]:
    """Graphs of each bar, as the plan of that launch had them."""
    planned: Counter[str] = Counter()
    for row in record["runners"]:
        manager = "target" if row["runner"] == "target" else _MANAGERS.get(row["routine"], "block")
        planned[f"{manager} {row['mode']}"] += row["graphs"]
    return dict(sorted(planned.items()))


def _chosen(record: Json) -> Iterator[str]:
    """The tiers that a curve chose, as one would write them; the last of them has no end."""
    tiers = record.get("tiers", {}).get("chosen", [])
    drafts = [f"num_speculative_tokens: {tier['num_speculative_tokens']}" for tier in tiers]
    ends = [f"up_to: {tier['to_requests']}, " for tier in tiers[:-1]]
    if tiers:
        words = (f"{{{end}{count}}}" for end, count in zip((*ends, ""), drafts, strict=True))
        yield f"speculative.dynamic=[{', '.join(words)}]"


def _own_costs(row: Json) -> dict[str, Any]:
    """Of each rank, None where it gave none."""
    costs = [None if cost is None else {"pool_bytes": cost["pool_bytes"]} for cost in row["costs"]]
    return {**row, "costs": costs}


def _without(said: Json, names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key not in names}


if __name__ == "__main__":
    raise SystemExit(main())

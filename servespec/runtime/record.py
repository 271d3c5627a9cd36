"""`record.json`: the plan of a launch with what was measured beside what was planned; its form is RECORD_SCHEMA."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache, reduce
from pathlib import Path
from typing import Any, Final

from servespec import __version__
from servespec.compiler.json_text import json_text
from servespec.compiler.plan import Plan
from servespec.compiler.record_schema import RECORD_SCHEMA
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.runtime.capture import AtExit, Capture, RankCapture, RowCapture, Verdict, VerificationSteps
from servespec.runtime.dispatch_counts import ModeCount, to_json
from servespec.runtime.installed_engine import find_installed_engine
from servespec.runtime.launch import secrets_of
from servespec.runtime.machine import version_of
from servespec.runtime.private_file import write_private
from servespec.runtime.probe import driver_version
from servespec.runtime.run_rules import RECORD_UNREADABLE, RECORD_UNWRITABLE

RECORD_NAME: Final = "record.json"
_SHOWN_CHARACTERS: Final = 200

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of a launch so far.  Times are seconds since the epoch, None for what has not come.

    ``capture`` is None until the server answered; ``said`` are the numbers of the engine's log.
    """

    started: float
    ready: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    capture: Capture | None = None
    said: Mapping[str, int] = field(default_factory=dict)
    counts: tuple[ModeCount, ...] = ()
    at_exit: AtExit | None = None
    verification: VerificationSteps | None = None
    findings: tuple[Diagnostic, ...] = ()


def write_record(folder: Path, plan: Plan, measured: Measured) -> tuple[Diagnostic, ...]:
    """Leaves the record in ``folder``; a finding where that is not possible."""
    path = folder / RECORD_NAME
    try:
        write_private(path, json_text(record_of(plan, measured)))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        message = f"the record `{path}` cannot be written: {why}"
        return (RECORD_UNWRITABLE.at(Place(str(path)), message, "name a folder that you can write to"),)
    return ()


def read_record(path: Path) -> Json:
    """The record of a finished or running launch; SpecError where the file is none."""
    import jsonschema

    try:
        record: Json = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(RECORD_SCHEMA).validate(record)
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from None
    except jsonschema.ValidationError as error:
        raise _unreadable(path, f"{error.json_path}: {error.message[:_SHOWN_CHARACTERS]}") from None
    return record


def _unreadable(path: Path, why: str) -> SpecError:
    message = f"`{path}` is no record of a launch: {why.splitlines()[0]}"
    return SpecError([RECORD_UNREADABLE.at(Place(str(path)), message, "name a `record.json` that `serve` left")])


def record_of(plan: Plan, measured: Measured) -> Json:
    """The record's JSON form."""
    document, capture = plan.to_json(), measured.capture
    rows = capture.rows if capture is not None else ()
    # A drafter that owns no graphs has a row behind those of the graphs.
    unplanned = RowCapture((), Verdict.AS_PLANNED if capture is not None else Verdict.UNSEEN)
    for at, row in enumerate(document["runners"]):
        row["captured"] = _row_json(rows[at] if at < len(rows) else unplanned)
    document["measured"] = _measured_json(plan, measured)
    # The variables of a launch are the spec's; those of the shell are in no record.
    masked: Json = _masked(document, secrets_of(document["launch"]["env"], document["launch"]["argv"]))
    return masked


def _masked(value: Any, secrets: Collection[str]) -> Any:
    """``value`` with every secret in its texts replaced."""
    match value:
        case str():
            return reduce(lambda text, secret: text.replace(secret, "***"), secrets, value)
        case list():
            return [_masked(part, secrets) for part in value]
        case dict():
            return {key: _masked(part, secrets) for key, part in value.items()}
    return value


def _row_json(row: RowCapture) -> Json:
    costs = [None if cost is None else asdict(cost) for cost in row.costs]
    return {"graphs": list(row.graphs), "verdict": str(row.verdict), "costs": costs}


def _measured_json(plan: Plan, measured: Measured) -> Json:
    capture = measured.capture
    return {
        "started_at": _utc(measured.started),
        "ready_at": _utc(measured.ready),
        "ended_at": _utc(measured.ended),
        "exit_code": measured.exit_code,
        "verdict": str(capture.verdict if capture is not None else Verdict.UNSEEN),
        "evidence": str(capture.evidence) if capture is not None else None,
        "ranks": [_rank_json(rank) for rank in capture.ranks] if capture is not None else [],
        "graphs_at_exit": None if measured.at_exit is None else str(measured.at_exit),
        "engine_said": dict(measured.said),
        "dispatch": [to_json(count) for count in measured.counts],
        "verification": _verification_json(measured.verification),
        "statistics": str(plan.lowered.statistics),
        "versions": _versions(),
        "findings": [finding.to_json() for finding in measured.findings],
    }


def _verification_json(steps: VerificationSteps | None) -> Json | None:
    return None if steps is None else {"fixed_steps": steps.fixed, "adaptive_steps": steps.adaptive}


def _utc(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _rank_json(rank: RankCapture) -> Json:
    return {
        "data_parallel_rank": rank.data_parallel_rank,
        "rank": rank.rank,
        "capture_seconds": rank.capture_seconds,
        "graph_bytes": rank.graph_bytes,
        "memory": None if rank.memory is None else asdict(rank.memory),
    }


@cache
def _versions() -> Json:
    """Once a process, as the driver takes its time to answer."""
    engine = find_installed_engine()
    return {
        "servespec": __version__,
        "engine": f"{engine.distribution} {engine.version}" if engine is not None else None,
        "torch": version_of("torch"),
        "driver": driver_version(),
    }

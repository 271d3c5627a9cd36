"""The plan: a frozen value, and its JSON form, format 1.

The JSON form is what renders, comparisons and records read; it holds the same bytes for the same inputs on every
machine.  ``PLAN_SCHEMA`` is published beside the spec's schema.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler.curves.step_times import StepTimes
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.gain_document import GAINS_SCHEMA, gains_json
from servespec.compiler.graphs.coverage import Coverage, DecodeRange, MixedStep, PrefillRange
from servespec.compiler.graphs.hand_off import Remedy
from servespec.compiler.graphs.managers import GraphFrame
from servespec.compiler.graphs.shape import Routine, Row, Runner, Shape, rows_of, union_tokens
from servespec.compiler.json_shapes import COUNT, MAYBE_COUNT, TEXT, closed_object
from servespec.compiler.lower import Lowered, Lowering
from servespec.compiler.memory.document import MEMORY_SCHEMA, measurement_json, memory_json
from servespec.compiler.memory.ledger import Ledger, deciding
from servespec.compiler.memory.measurement import Measurement
from servespec.compiler.plan_rules import R115
from servespec.compiler.remedy_savings import SAVINGS_SCHEMA, RemedySaving, saving_json
from servespec.compiler.resolve.resolution import Resolution
from servespec.compiler.tier_document import TIERS_SCHEMA, choice_json
from servespec.diagnostics import Diagnostic, has_errors
from servespec.provenance import Resolved

PLAN_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPlan:
    """One inventory with what follows from it: coverage by the dispatch rule that goes with it, capture time."""

    shapes: tuple[Shape, ...]
    coverage: Coverage
    capture_seconds: float
    mode: CudaGraphMode

    @property
    def rows(self) -> tuple[Row, ...]:
        return rows_of(self.shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockPlan:
    """What the unmodified engine would do with the same spec; ``stages`` as in `Plan`."""

    graphs: GraphPlan
    stages: tuple[Ledger, ...]

    @property
    def ledger(self) -> Ledger | None:
        return deciding(self.stages) if self.stages else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a plan was made from, as digests; ``draft`` is None without a draft model of its own.

    ``curve_sha256`` is of the step times that chose the tiers, None where the spec has its own or none.
    """

    spec_sha256: str
    model: Mapping[str, str | None]
    draft: Mapping[str, str | None] | None
    facts_sha256: str
    curve_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided before launch.

    ``graphs`` is what will be captured under the lowering; ``stock`` what the unmodified engine would do with the
    same spec without our fields, None where it was not asked for.  ``stages`` are the ledgers of the pipeline stages,
    none on a CPU; ``measurement`` is the one whose figures the only one holds, None where all are by formula.
    ``step_times`` say where graphs pay, if some were named.  ``savings`` are what remedies take off the graphs.
    """

    servespec_version: str
    resolution: Resolution
    graphs: GraphPlan
    stock: StockPlan | None
    stages: tuple[Ledger, ...]
    measurement: Measurement | None
    step_times: StepTimes | None
    savings: tuple[RemedySaving, ...]
    lowered: Lowered
    diagnostics: tuple[Diagnostic, ...]
    inputs: Inputs

    @property
    def ledger(self) -> Ledger | None:
        """Of the stage that decides whether the engine starts, and how many tokens of KV it has."""
        return deciding(self.stages) if self.stages else None

    @property
    def ok(self) -> bool:
        return not has_errors(self.diagnostics)

    @property
    def complete(self) -> bool:
        """Whether nothing that may change the plan was left out of it."""
        return self.resolution.complete and all(finding.rule is not R115 for finding in self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        """The JSON form, with the stock engine's runners, coverage and memory where they were asked for."""
        resolution, lowering = self.resolution, self.lowered.lowering
        frame = resolution.frame
        document = {
            "format": PLAN_FORMAT,
            "servespec": self.servespec_version,
            "engine": {
                "name": "vllm",
                "version": resolution.engine.version,
                "facts_version": resolution.engine.facts_version,
                "lowering": str(lowering),
            },
            "device": _device_json(resolution),
            "resolved": {path: _resolved_json(value) for path, value in sorted(resolution.values.items())},
            **_graphs_json(self.graphs, frame, resolution),
            "memory": _memory_json(self.stages, self.measurement),
            "diagnostics": [d.to_json() for d in self.diagnostics],
            "inputs": {
                "spec_sha256": self.inputs.spec_sha256,
                "model": dict(self.inputs.model),
                "draft": None if self.inputs.draft is None else dict(self.inputs.draft),
                "facts_sha256": self.inputs.facts_sha256,
                **({} if self.inputs.curve_sha256 is None else {"curve_sha256": self.inputs.curve_sha256}),
            },
            "complete": self.complete,
            "launch": {"argv": list(self.lowered.argv), "env": dict(self.lowered.env)},
        }
        if resolution.tier_choice is not None:
            document["tiers"] = choice_json(resolution.tier_choice)
        if self.step_times is not None:
            document["graph_gains"] = gains_json(self.step_times)
        if self.lowered.remedies:
            document["remedies"] = [str(remedy) for remedy in self.lowered.remedies]
        if self.savings:
            document["remedy_savings"] = [saving_json(saving) for saving in self.savings]
        if self.stock is not None:
            document["stock"] = {
                **_graphs_json(self.stock.graphs, frame, resolution),
                "memory": _memory_json(self.stock.stages),
            }
        return document


def _graphs_json(graphs: GraphPlan, frame: GraphFrame, resolution: Resolution) -> dict[str, Any]:
    rows = [row_json(row, frame) for row in graphs.rows]
    if resolution.drafter_without_graphs:
        rows.append(_no_graphs_json(resolution.drafter_without_graphs))
    return {
        "runners": rows,
        "union_tokens": list(union_tokens(graphs.shapes)),
        "capture_seconds_estimate": round(graphs.capture_seconds, 1),
        "coverage": {
            "decode": [_decode_json(r) for r in graphs.coverage.decode],
            "prefill": [_prefill_json(r) for r in graphs.coverage.prefill],
            "mixed": [_mixed_json(r) for r in graphs.coverage.mixed],
        },
    }


def _memory_json(stages: tuple[Ledger, ...], measurement: Measurement | None = None) -> dict[str, Any] | None:
    if not stages:
        return None
    return memory_json(stages) | ({} if measurement is None else {"measured_by": measurement_json(measurement)})


def row_json(row: Row, frame: GraphFrame) -> dict[str, Any]:
    """A row of `runners`."""
    return {
        "runner": str(row.runner),
        "routine": str(row.routine),
        "mode": str(row.mode),
        "unit": row.unit,
        "query_len": row.query_len,
        "num_speculative_tokens": _k_of(row, frame),
        "sizes": list(row.sizes),
        "count": len(row.sizes),
        "graphs": row.graphs,
        "active_loras": list(row.active_loras),
        "ubatches": list(row.ubatches),
        "ranks": "last_pp" if row.runner is Runner.DRAFTER else "all",
        "max_requests": row.max_requests,
        "max_tokens": row.max_tokens,
    }


def _k_of(row: Row, frame: GraphFrame) -> int | None:
    if row.draft_steps is not None:
        return row.draft_steps
    if row.routine in (Routine.UNIFORM_DECODE, Routine.STEP0_UNIFORM, Routine.ADAPTIVE_VERIFICATION):
        return None if row.query_len is None else row.query_len - 1
    if row.routine in (Routine.BLOCK, Routine.LATER_STEPS):
        return frame.num_speculative_tokens
    return None


def _no_graphs_json(because: str) -> dict[str, Any]:
    """A drafter that owns no graphs has a row that says so."""
    return {
        "runner": "drafter", "routine": "none", "mode": "NONE", "unit": "requests", "query_len": None,
        "num_speculative_tokens": None, "sizes": [], "count": 0, "graphs": 0, "active_loras": [], "ubatches": [],
        "ranks": "last_pp", "max_requests": None, "max_tokens": 0, "because": because,
    }  # fmt: skip


def _decode_json(covered: DecodeRange) -> dict[str, Any]:
    return {
        "runner": str(covered.runner),
        "routine": str(covered.routine),
        "from_requests": covered.from_requests,
        "to_requests": covered.to_requests,
        "query_len": covered.query_len,
        "num_speculative_tokens": covered.num_speculative_tokens,
        "mode": str(covered.ran),
        "padded_to_requests": covered.padded_to_requests,
        "padded_to_tokens": covered.padded_to_tokens,
    }


def _prefill_json(covered: PrefillRange) -> dict[str, Any]:
    return {
        "from_tokens": covered.from_tokens,
        "to_tokens": covered.to_tokens,
        "mode": str(covered.ran),
        "padded_to_tokens": covered.padded_to_tokens,
    }


def _mixed_json(step: MixedStep) -> dict[str, Any]:
    return {
        "requests": step.requests,
        "tokens": step.tokens,
        "drafted_at_requests": step.drafted_at_requests,
        "mode": str(step.ran),
        "padded_to_tokens": step.padded_to_tokens,
    }


def _resolved_json(value: Resolved[Any]) -> dict[str, Any]:
    return {"value": value.value, "origin": str(value.origin), "because": value.because}


def _device_json(resolution: Resolution) -> dict[str, Any]:
    device = resolution.device
    major, minor = device.compute_capability
    return {
        "name": device.name,
        "device_name": device.device_name,
        "compute_capability": f"{major}.{minor}",
        "memory_bytes": device.total_memory_bytes,
        "count": resolution.device_count,
    }


def _array(properties: Mapping[str, Any], optional: Iterable[str] = ()) -> dict[str, Any]:
    """Schema of an array of objects with exactly these keys."""
    return {"type": "array", "items": closed_object(properties, optional)}


_RAN = {"enum": ["FULL", "PIECEWISE", "EAGER", "UNSCHEDULED"]}

RUNNERS_SCHEMA = _array(
    {
        "runner": {"enum": [str(runner) for runner in Runner]},
        "routine": {"enum": [*(str(routine) for routine in Routine), "none"]},
        "mode": {"enum": [str(mode) for mode in CudaGraphMode]},
        "unit": {"enum": ["tokens", "requests"]},
        "query_len": MAYBE_COUNT,
        "num_speculative_tokens": MAYBE_COUNT,
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "count": COUNT,
        "graphs": COUNT,
        "active_loras": {"type": "array", "items": COUNT},
        "ubatches": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "ranks": {"enum": ["all", "first_pp", "last_pp"]},
        "max_requests": MAYBE_COUNT,
        "max_tokens": COUNT,
        "because": TEXT,
    },
    optional=("because",),
)

COVERAGE_SCHEMA = {
    "type": "object",
    "required": ["decode", "prefill", "mixed"],
    "additionalProperties": False,
    "properties": {
        "decode": _array(
            {
                "runner": TEXT, "routine": TEXT, "from_requests": COUNT, "to_requests": COUNT,
                "query_len": COUNT, "num_speculative_tokens": COUNT, "mode": _RAN, "padded_to_requests": MAYBE_COUNT,
                "padded_to_tokens": MAYBE_COUNT,
            }
        ),
        "prefill": _array(
            {"from_tokens": COUNT, "to_tokens": COUNT, "mode": _RAN, "padded_to_tokens": MAYBE_COUNT}
        ),
        "mixed": _array(
            {
                "requests": COUNT, "tokens": COUNT, "drafted_at_requests": COUNT, "mode": _RAN,
                "padded_to_tokens": MAYBE_COUNT,
            }
        ),
    },
}  # fmt: skip

_GRAPHS_PROPERTIES: dict[str, Any] = {
    "runners": RUNNERS_SCHEMA,
    "union_tokens": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    "capture_seconds_estimate": {"type": "number", "minimum": 0},
    "coverage": COVERAGE_SCHEMA,
}

_POSITION = {
    "type": "object",
    "required": ["line", "column"],
    "properties": {"line": {"type": "integer", "minimum": 1}, "column": {"type": "integer", "minimum": 1}},
}
_RANGE = {
    "type": ["object", "null"],
    "required": ["start", "end"],
    "properties": {"start": _POSITION, "end": _POSITION},
}
DIAGNOSTICS_SCHEMA = _array(
    {
        "code": {"type": "string", "pattern": "^[SRPL][0-9]{3}$"},
        "name": TEXT,
        "severity": {"enum": ["error", "warning", "note"]},
        "message": TEXT,
        "help": TEXT,
        "file": TEXT,
        "range": _RANGE,
        "related": _array({"message": TEXT, "file": TEXT, "range": _RANGE}),
    }
)

_MODEL_INPUT = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}

PLAN_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "servespec plan",
    "description": "What a vLLM server will capture, how every batch runs and where memory goes, format 1.",
    "type": "object",
    "required": [
        "format", "servespec", "engine", "device", "resolved", *_GRAPHS_PROPERTIES, "memory", "diagnostics",
        "inputs", "complete", "launch",
    ],
    "additionalProperties": False,
    "properties": {
        "format": {"const": PLAN_FORMAT},
        "servespec": TEXT,
        "engine": {
            "type": "object",
            "required": ["name", "version", "facts_version", "lowering"],
            "properties": {
                "name": {"const": "vllm"},
                "version": TEXT,
                "facts_version": TEXT,
                "lowering": {"enum": [str(lowering) for lowering in Lowering]},
            },
        },
        "device": {
            "type": "object",
            "required": ["name", "device_name", "compute_capability", "memory_bytes", "count"],
            "properties": {
                "name": TEXT, "device_name": TEXT, "compute_capability": TEXT, "memory_bytes": COUNT,
                "count": {"type": "integer", "minimum": 1},
            },
        },
        "resolved": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["value", "origin", "because"],
                "properties": {
                    "value": {},
                    "origin": {"enum": ["spec", "preset", "engine_default", "derived"]},
                    "because": TEXT,
                },
            },
        },
        **_GRAPHS_PROPERTIES,
        "memory": MEMORY_SCHEMA,
        "diagnostics": DIAGNOSTICS_SCHEMA,
        "inputs": {
            "type": "object",
            "required": ["spec_sha256", "model", "draft", "facts_sha256"],
            "properties": {
                "spec_sha256": TEXT,
                "model": _MODEL_INPUT,
                "draft": {"oneOf": [_MODEL_INPUT, {"type": "null"}]},
                "facts_sha256": TEXT,
                "curve_sha256": TEXT,
            },
        },
        "complete": {"type": "boolean"},
        "launch": {
            "type": "object",
            "required": ["argv", "env"],
            "properties": {
                "argv": {"type": "array", "items": TEXT},
                "env": {"type": "object", "additionalProperties": TEXT},
            },
        },
        "tiers": TIERS_SCHEMA,
        "graph_gains": GAINS_SCHEMA,
        "remedies": {"type": "array", "items": {"enum": [str(remedy) for remedy in Remedy]}},
        "remedy_savings": SAVINGS_SCHEMA,
        "stock": {
            "type": "object",
            "required": [*_GRAPHS_PROPERTIES, "memory"],
            "additionalProperties": False,
            "properties": {**_GRAPHS_PROPERTIES, "memory": MEMORY_SCHEMA},
        },
    },
}  # fmt: skip
"""JSON Schema (draft 2020-12) of the plan's JSON form; every plan that is read back is checked against it."""

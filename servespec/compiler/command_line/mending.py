"""A spec that gives every decode batch a FULL graph, from one whose larger batches run without."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from servespec.compiler.facts.graph_sizes import DECODE_BUDGET
from servespec.schema.capture_fields import LEGACY_FIELDS
from servespec.schema.dump import Path, dump_yaml
from servespec.schema.modeline import MODELINE

_CAP = "max_decode_cudagraph_capture_requests"
_SIZES = "decode_cudagraph_capture_request_sizes"
_BUDGET = "max_decode_cudagraph_capture_tokens"
_PREFILL_CAP = "max_prefill_cudagraph_capture_tokens"
_MODE = "cudagraph_mode"

_BUDGETED_CAPABILITY = "10."
"""The compute capabilities on which a decode budget is the default."""


@dataclass(frozen=True, slots=True)
class _Decode:
    """How the target's uniform batches run: the ranges in order, what can be scheduled alone."""

    ranges: tuple[Mapping[str, Any], ...]

    @property
    def lacking(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(one for one in self.ranges if one["mode"] != "FULL")

    @property
    def most_requests(self) -> int:
        return max((one["to_requests"] for one in self.ranges), default=0)

    @property
    def most_tokens(self) -> int:
        return max((one["to_requests"] * one["query_len"] for one in self.ranges), default=0)


@dataclass(frozen=True, slots=True)
class _Mending:
    """What to write under `compilation`, and what to say above keys of the spec."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    comments: Mapping[Path, str] = field(default_factory=dict)


def mended(spec_data: Mapping[str, Any], plan_json: Mapping[str, Any]) -> str:
    """The YAML of a spec in which every decode batch that ``plan_json`` runs without a FULL graph has one.

    ``spec_data`` is the spec that the plan was made from.  Where no field can give such graphs, the spec stays as it
    is and a comment says why.
    """
    decode = _decode_of(plan_json)
    mending = _mending(spec_data, plan_json, decode) if decode.lacking else _Mending()
    data = _with_fields(spec_data, mending.fields)
    return f"{MODELINE}\n{dump_yaml(data, mending.comments)}"


def _decode_of(plan_json: Mapping[str, Any]) -> _Decode:
    rows = plan_json["coverage"]["decode"]
    return _Decode(tuple(one for one in rows if one["runner"] == "target" and one["mode"] != "UNSCHEDULED"))


def _with_fields(spec_data: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with ``fields`` in place of the fields that size decode graphs otherwise."""
    if not fields:
        return dict(spec_data)
    written = spec_data.get("compilation") or {}
    replaced = (*LEGACY_FIELDS, _SIZES, *fields)
    kept = {name: value for name, value in written.items() if name not in replaced}
    return {**spec_data, "compilation": {**kept, **fields}}


def _mending(spec_data: Mapping[str, Any], plan_json: Mapping[str, Any], decode: _Decode) -> _Mending:
    obstacle = _obstacle(spec_data, plan_json)
    if obstacle is not None:
        return obstacle
    written = spec_data.get("compilation") or {}
    why = "\n".join(_range_lines(decode.lacking))
    if written.get(_MODE) == "FULL":
        return _Mending({_PREFILL_CAP: decode.most_tokens}, {("compilation", _PREFILL_CAP): why})
    modes = _mode_field(spec_data)
    budget = _budget_field(written, plan_json, decode.most_tokens)
    prefill = _prefill_field(written, plan_json)
    comments = {
        **dict.fromkeys(modes, "FULL graphs for decode need a mode that has them"),
        _CAP: why,
        **dict.fromkeys(budget, f"{decode.most_requests} requests are {decode.most_tokens} tokens"),
        **dict.fromkeys(prefill, "prefill graphs reach as far as before"),
    }
    fields = {**modes, _CAP: decode.most_requests, **budget, **prefill}
    return _Mending(fields, {("compilation", name): text for name, text in comments.items()})


def _obstacle(spec_data: Mapping[str, Any], plan_json: Mapping[str, Any]) -> _Mending | None:
    """Why no field helps, None where one does."""
    if (spec_data.get("model") or {}).get("enforce_eager"):
        return _Mending(comments={("model",): "`enforce_eager` captures no graphs: every batch runs eagerly"})
    if _resolved(plan_json, "engine.model_runner") == "v1":
        return _Mending(comments={("model",): "Model Runner V1 has one list for all graphs: decode cannot be sized"})
    mode = _resolved(plan_json, f"compilation.{_MODE}")
    if mode in ("NONE", "PIECEWISE") and not _mode_field(spec_data):
        return _Mending(comments={("model",): f"the engine captures {mode} here: decode has no FULL graphs"})
    return None


def _resolved(plan_json: Mapping[str, Any], path: str) -> Any:
    return (plan_json["resolved"].get(path) or {}).get("value")


def _mode_field(spec_data: Mapping[str, Any]) -> dict[str, str]:
    """A mode with FULL decode graphs where the spec asks for one without."""
    written = (spec_data.get("compilation") or {}).get(_MODE)
    level = spec_data.get("optimization_level")
    if written in ("NONE", "PIECEWISE") or (written is None and level in (0, 1)):
        # Piecewise graphs need compilation, which level 0 leaves out.
        return {_MODE: "FULL_DECODE_ONLY" if level == 0 else "FULL_AND_PIECEWISE"}
    return {}


def _budget_field(written: Mapping[str, Any], plan_json: Mapping[str, Any], most_tokens: int) -> dict[str, int]:
    """The token budget, where the one that holds is too small."""
    has_default = plan_json["device"]["compute_capability"].startswith(_BUDGETED_CAPABILITY)
    holding = written.get(_BUDGET, DECODE_BUDGET.value if has_default else None)
    return {_BUDGET: most_tokens} if isinstance(holding, int) and holding < most_tokens else {}


def _prefill_field(written: Mapping[str, Any], plan_json: Mapping[str, Any]) -> dict[str, int]:
    """The reach of prefill graphs, where a legacy field that gave it goes."""
    if not any(written.get(name) is not None for name in LEGACY_FIELDS):
        return {}
    sizes = [
        row["max_tokens"]
        for row in plan_json["runners"]
        if row["runner"] == "target" and row["mode"] == "PIECEWISE" and row["sizes"]
    ]
    return {_PREFILL_CAP: max(sizes)} if sizes else {}


def _range_lines(lacking: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    """One line for each stretch of batch sizes that ran alike."""
    first, last, mode = 0, 0, ""
    for one in sorted(lacking, key=lambda row: (row["from_requests"], row["to_requests"])):
        if one["mode"] == mode and one["from_requests"] <= last + 1:
            last = max(last, one["to_requests"])
            continue
        if first:
            yield _range_line(first, last, mode)
        first, last, mode = one["from_requests"], one["to_requests"], one["mode"]
    yield _range_line(first, last, mode)


def _range_line(first: int, last: int, mode: str) -> str:
    requests = f"{first} to {last} requests" if last > first else f"{first} requests"
    how = "eagerly" if mode == "EAGER" else "from PIECEWISE graphs"
    return f"decode batches of {requests} ran {how}"

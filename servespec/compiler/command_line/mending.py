"""A spec that gives batches the graphs that they could have, from one whose larger batches run without."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servespec.compiler.facts.graph_sizes import DECODE_BUDGET, PREFILL_CAP
from servespec.schema.capture_fields import LEGACY_FIELDS
from servespec.schema.dump import Path, dump_yaml
from servespec.schema.modeline import MODELINE

_CAP = "max_decode_cudagraph_capture_requests"
_SIZES = "decode_cudagraph_capture_request_sizes"
_BUDGET = "max_decode_cudagraph_capture_tokens"
_PREFILL_SIZES = "prefill_cudagraph_capture_token_sizes"
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
class _Prefill:
    """The steps with a prefill in them that no graph serves, as far as graphs for them are worth their memory."""

    eager: tuple[Mapping[str, Any], ...]

    @property
    def most_tokens(self) -> int:
        return min(max((one["to_tokens"] for one in self.eager), default=0), PREFILL_CAP.value)

    @property
    def why(self) -> str:
        first, last = self.eager[0]["from_tokens"], self.eager[-1]["to_tokens"]
        return f"steps of {first} to {last} tokens with a prefill in them ran eagerly"


@dataclass(frozen=True, slots=True)
class Mended:
    """``text`` is the YAML of a spec, '' where there is nothing to change; ``obstacle`` says why no field helps."""

    text: str
    obstacle: str = ""


def mended(spec_data: Mapping[str, Any], plan_json: Mapping[str, Any]) -> Mended:
    """A spec in which the batches that ``plan_json`` runs without the graph that they could have get it.

    ``spec_data`` is the spec that the plan was made from.  A decode batch gets a FULL graph, a step with a prefill in
    it a PIECEWISE one.
    """
    decode, prefill = _decode_of(plan_json), _prefill_of(plan_json)
    if not decode.lacking and not (prefill.eager and _has_piecewise(_resolved(plan_json, f"compilation.{_MODE}"))):
        return Mended("")
    obstacle = _obstacle(spec_data, plan_json, decode)
    if obstacle:
        return Mended("", obstacle)
    fields = _fields(spec_data, plan_json, decode, prefill)
    comments: dict[Path, str] = {("compilation", name): why for name, (_, why) in fields.items() if why}
    data = _with_fields(spec_data, {name: value for name, (value, _) in fields.items()})
    return Mended(f"{MODELINE}\n{dump_yaml(data, comments)}")


def _decode_of(plan_json: Mapping[str, Any]) -> _Decode:
    rows = plan_json["coverage"]["decode"]
    return _Decode(tuple(one for one in rows if one["runner"] == "target" and one["mode"] != "UNSCHEDULED"))


def _prefill_of(plan_json: Mapping[str, Any]) -> _Prefill:
    rows = (one for one in plan_json["coverage"]["prefill"] if one["mode"] == "EAGER")
    eager = tuple(sorted(rows, key=lambda row: row["from_tokens"]))
    return _Prefill(eager if eager and eager[0]["from_tokens"] <= PREFILL_CAP.value else ())


def _with_fields(spec_data: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with ``fields`` in place of those that size the same graphs otherwise."""
    written = spec_data.get("compilation") or {}
    lists = {_CAP: _SIZES, _PREFILL_CAP: _PREFILL_SIZES}
    replaced = (*LEGACY_FIELDS, *fields, *(sizes for cap, sizes in lists.items() if cap in fields))
    kept = {name: value for name, value in written.items() if name not in replaced}
    return {**spec_data, "compilation": {**kept, **fields}}


def _fields(
    spec_data: Mapping[str, Any], plan_json: Mapping[str, Any], decode: _Decode, prefill: _Prefill
) -> dict[str, tuple[Any, str]]:
    """What to write under `compilation`, each value with what stands above it."""
    written = spec_data.get("compilation") or {}
    lacking = "\n".join(_range_lines(decode.lacking)) if decode.lacking else ""
    if written.get(_MODE) == "FULL":
        return {_PREFILL_CAP: (decode.most_tokens, lacking)}
    modes = _mode_field(spec_data) if decode.lacking else {}
    fields: dict[str, tuple[Any, str]] = {
        name: (mode, "FULL graphs for decode need a mode that has them") for name, mode in modes.items()
    }
    if decode.lacking or _has_legacy(written):
        fields[_CAP] = (decode.most_requests, lacking or "decode graphs reach as far as before")
        budget = _budget_field(written, plan_json, decode.most_tokens)
        because = f"{decode.most_requests} requests are {decode.most_tokens} tokens"
        fields |= {name: (tokens, because) for name, tokens in budget.items()}
    mode = modes.get(_MODE) or _resolved(plan_json, f"compilation.{_MODE}")
    return fields | _prefill_field(written, plan_json, prefill, mode)


def _obstacle(spec_data: Mapping[str, Any], plan_json: Mapping[str, Any], decode: _Decode) -> str:
    """Why no field helps, '' where one does."""
    if (spec_data.get("model") or {}).get("enforce_eager"):
        return "`enforce_eager` captures no graphs: every batch runs eagerly"
    if _resolved(plan_json, "engine.model_runner") == "v1":
        return "Model Runner V1 has one list for all graphs: decode cannot be sized"
    mode = _resolved(plan_json, f"compilation.{_MODE}")
    if decode.lacking and mode in ("NONE", "PIECEWISE") and not _mode_field(spec_data):
        return f"the engine captures {mode} here: decode has no FULL graphs"
    return ""


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


def _prefill_field(
    written: Mapping[str, Any], plan_json: Mapping[str, Any], prefill: _Prefill, mode: str | None
) -> dict[str, tuple[Any, str]]:
    """The reach of prefill graphs: to the largest step, or as far as the legacy field that goes."""
    if prefill.eager and _has_piecewise(mode):
        return {_PREFILL_CAP: (prefill.most_tokens, prefill.why)}
    rows = (row for row in plan_json["runners"] if row["runner"] == "target" and row["mode"] == "PIECEWISE")
    sizes = [row["max_tokens"] for row in rows if row["sizes"]]
    if not sizes or not _has_legacy(written):
        return {}
    return {_PREFILL_CAP: (max(sizes), "prefill graphs reach as far as before")}


def _has_piecewise(mode: str | None) -> bool:
    return mode is not None and "PIECEWISE" in mode


def _has_legacy(written: Mapping[str, Any]) -> bool:
    return any(written.get(name) is not None for name in LEGACY_FIELDS)


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

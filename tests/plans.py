"""Plans made in this process, the way the command line makes them; the shared vocabulary of the tests."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.runtime.gather import Options, compile_request
from servespec.schema.source import SpecSource, read_source

REPOSITORY = Path(__file__).resolve().parents[1]
MODELS = Path(__file__).resolve().parent / "models"
PRESET_MODELS = REPOSITORY / "servespec/presets/models"

Json = dict[str, Any]


def model_folder(name: str) -> str:
    """The folder of one of the models under `tests/models`, as a spec names it."""
    return str(MODELS / name)


def preset_model(name: str) -> str:
    """The folder of a model that presets bring, as a spec names it."""
    return str(PRESET_MODELS / name.replace("/", "--"))


def spec_of(model: str, gpu: str, /, **sections: Any) -> Json:
    """A spec for a model under `tests/models`; ``sections`` are laid over it."""
    return {
        "servespec": 1,
        "model": {"id": model_folder(model)},
        "hardware": {"gpu": gpu},
        "engine": {"version": "0.33.0"},
        **sections,
    }


def source_of(spec: Mapping[str, Any] | bytes, name: str = "spec.yaml") -> SpecSource:
    """A spec as a file of that name would be read: JSON is YAML."""
    return read_source(spec if isinstance(spec, bytes) else json.dumps(spec), name)


def compiled(spec: Mapping[str, Any] | bytes, options: Options | None = None) -> Plan:
    """The plan of a spec; SpecError where it is refused."""
    return compile_spec(compile_request(source_of(spec), options or Options()))


def planned(spec: Mapping[str, Any] | bytes, options: Options | None = None) -> Json:
    """The plan's JSON form, with the stock engine beside it."""
    return compiled(spec, replace(options or Options(), with_stock=True)).to_json()


def codes_of(plan: Json) -> set[str]:
    return {finding["code"] for finding in plan["diagnostics"]}


def row_of(graphs: Json, routine: str, query_len: int | None = None, k: int | None = None) -> Json:
    """The one row of a routine, of a query length and a specialised K where those are named."""
    rows = [
        row
        for row in graphs["runners"]
        if row["routine"] == routine
        and (query_len is None or row["query_len"] == query_len)
        and (k is None or row["num_speculative_tokens"] == k)
    ]
    assert len(rows) == 1, [(row["routine"], row["query_len"], row["num_speculative_tokens"]) for row in rows]
    return rows[0]


def extent(graphs: Json, routine: str, query_len: int | None = None) -> str:
    """How many sizes a row has and how far they reach: `64 @ 1024`; `none` where nothing is captured."""
    row = row_of(graphs, routine, query_len)
    return f"{row['count']} @ {row['sizes'][-1]}" if row["sizes"] else "none"


def full_requests(graphs: Json, routine: str = "uniform_decode") -> set[int]:
    """The decode batches of a routine that run from a FULL graph."""
    return {
        n
        for covered in graphs["coverage"]["decode"]
        if covered["routine"] == routine and covered["mode"] == "FULL"
        for n in range(covered["from_requests"], covered["to_requests"] + 1)
    }

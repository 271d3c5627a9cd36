"""Migrating any spec: valid, done once, nothing else touched, and what is said of its graphs is so."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from servespec.compiler.captured import stock_list_of
from servespec.compiler.comparison import compared
from servespec.compiler.comparison_schema import COMPARISON_SCHEMA
from servespec.compiler.graphs.split import decode_source
from servespec.compiler.migration import migration_of
from servespec.diagnostics import Severity, SpecError
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.migrating import Migrated, RefusedAfterError, legacy_findings, migrated
from servespec.runtime.spec_file import spec_diagnostics
from servespec.schema.capture_fields import LEGACY_FIELDS, NEW_FIELDS
from servespec.schema.dump import dump_yaml
from servespec.schema.source import SpecSource, read_source
from tests.plans import Json, compiled
from tests.strategies import legacy_fields, specs

pytestmark = pytest.mark.usefixtures("quiet_shell")

some = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def legacy_specs(draw: st.DrawFn, lowerings: tuple[str, ...] = ("auto", "legacy", "extension")) -> Json:
    """A spec with a list, a maximum or both, in any mode or none named."""
    spec = draw(specs(engine={"version": "0.33.0", "lowering": draw(st.sampled_from(lowerings))}))
    section = draw(legacy_fields(spec["scheduler"]["max_num_batched_tokens"]))
    if "cudagraph_capture_sizes" in section and draw(st.booleans()):
        section["max_cudagraph_capture_size"] = max(section["cudagraph_capture_sizes"])
    mode = draw(st.sampled_from((None, "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "PIECEWISE", "FULL")))
    others = {} if mode is None else {"cudagraph_mode": mode}
    order = draw(st.permutations([*section.items(), *others.items()]))
    return {**spec, "compilation": dict(order)}


@st.composite
def texts(draw: st.DrawFn, spec: Json) -> str:
    """The spec as people write it: block style with comments, or JSON on one line or on many."""
    form = draw(st.sampled_from(("block", "list", "flow", "json", "lines")))
    ending = draw(st.sampled_from(("\n", "\r\n")))
    if form == "json":
        return json.dumps(spec)
    if form == "lines":
        return json.dumps(spec, indent=2).replace("\n", ending)
    if form == "flow":
        rest = {name: value for name, value in spec.items() if name != "compilation"}
        return f"{dump_yaml(rest)}compilation: {json.dumps(spec['compilation'])} # one line\n".replace("\n", ending)
    comments = {("compilation", name): f"why {name} is so" for name in spec["compilation"]}
    text = dump_yaml(spec, comments)
    if form == "list":
        text = "".join(map(_as_block, text.splitlines(keepends=True)))
    return text.replace("\n", ending)


def _as_block(line: str) -> str:
    """The legacy list with an item and a comment on each line."""
    name, _, sizes = line.partition(": ")
    if name.strip() != "cudagraph_capture_sizes":
        return line.rstrip("\n") + " # beside it\n" if ":" in line and line.rstrip()[-1] not in ":#" else line
    return f"{name}:\n" + "".join(f"    - {size} # size {size}\n" for size in json.loads(sizes))


def migrated_or_refused(source: SpecSource) -> Migrated:
    """A spec that is refused before or after is another example."""
    try:
        return migrated(source, Options())
    except SpecError as error:
        codes = {one.code for one in error.diagnostics if one.severity is Severity.ERROR}
        # The engine refuses the combination; the mode has no use for decode sizes; the fields bring V2's rules.
        assume(not codes & {"R101", "S207", "P126"})
        raise


@some
@given(st.data())
def test_it_is_valid_done_once_and_touches_nothing_else(data: st.DataObject) -> None:
    spec = data.draw(legacy_specs())
    source = read_source(data.draw(texts(spec)), "spec.yaml")

    done = migrated_or_refused(source)
    again = read_source(done.migration.text, "spec.yaml")

    assert legacy_findings(again, allow_code=False) == ()
    assert [one for one in spec_diagnostics(again, allow_code=False) if one.severity is Severity.ERROR] == []
    untouched = [line for line in source.text.splitlines(keepends=True) if not _is_touched(line)]
    assert _in_order(untouched, done.migration.text.splitlines(keepends=True))
    assert again.data == {**spec, "compilation": again.data["compilation"]}
    assert not again.data["compilation"].keys() & set(LEGACY_FIELDS)
    assert again.data["compilation"].get("cudagraph_mode") == spec["compilation"].get("cudagraph_mode")
    for comment in _comments(source.text):
        assert comment in done.migration.text


def _is_touched(line: str) -> bool:
    is_item = line.strip().rstrip(",]").isdigit() or line.strip().startswith(("- ", "]"))
    return is_item or any(name in line and f"why {name}" not in line for name in LEGACY_FIELDS)


def _in_order(lines: list[str], text: list[str]) -> bool:
    """A comma goes with the pair that it stood before."""
    rest = (line.rstrip("\r\n,") for line in text)
    return all(line.rstrip("\r\n,") in rest for line in lines)


def _comments(text: str) -> list[str]:
    return [line.partition(" # ")[2] for line in text.splitlines() if " # " in line]


@some
@given(legacy_specs(lowerings=("extension", "auto")))
def test_a_list_keeps_every_graph_that_the_plan_had(spec: Json) -> None:
    """Of a list, prefill keeps its sizes and decode the counts and the cap that were made of it."""
    assume("cudagraph_capture_sizes" in spec["compilation"])
    done = migrated_or_refused(read_source(json.dumps(spec), "spec.yaml"))
    section = done.after.resolution.request.spec.compilation
    # Under `auto` the way to the engine may be another; `[]` takes later steps of the drafter along; under FULL, which
    # a backend may turn into two kinds, no field sizes decode.
    assume(spec["compilation"].get("cudagraph_mode") != "FULL")
    assume(done.before.lowered.lowering is done.after.lowered.lowering)
    assume(section.decode_cudagraph_capture_request_sizes != ())

    before, after = done.before.resolution, done.after.resolution
    sources = [decode_source(one.frame, one.fields, one.defaults, stock_list_of(before)) for one in (before, after)]

    if done.before.lowered.lowering.value == "extension":
        assert set(done.before.graphs.shapes) == set(done.after.graphs.shapes)
    if section.decode_cudagraph_capture_request_sizes is not None:
        assert sources[0].counts == sources[1].counts
        assert sources[0].cap_requests == sources[1].cap_requests


@some
@given(legacy_specs())
def test_the_stated_difference_is_the_real_one(spec: Json) -> None:
    """Held against sets of shapes, and against every batch and step one by one."""
    done = migrated_or_refused(read_source(json.dumps(spec), "spec.yaml"))
    before, after = done.before.to_json(), done.after.to_json()

    stated = compared(before, after, ("before", "after"))

    jsonschema.Draft202012Validator(COMPARISON_SCHEMA).validate(stated)
    old, new = set(done.before.graphs.shapes), set(done.after.graphs.shapes)
    assert (stated["runners"] == []) == (old == new)
    graphs = [sum(row["graphs"] for row in side["runners"]) for side in (before, after)]
    assert sum(row["after"]["graphs"] - row["before"]["graphs"] for row in stated["runners"]) == graphs[1] - graphs[0]
    for unit, kind in (("requests", "decode"), ("tokens", "prefill")):
        assert _stated_modes(stated["coverage"][kind], unit) == _real_modes(before, after, kind, unit)
    totals = [side["memory"]["totals"] for side in (before, after)]
    named = {one["name"] for one in stated["memory"]}
    assert {name for name in totals[0] if totals[0][name] != totals[1][name]} == named - {"fits", "fits_at_start"}
    assert stated["same"] == (_told(before) == _told(after))


def _stated_modes(spans: list[Json], unit: str) -> dict[Any, tuple[str | None, str | None]]:
    return {
        (span.get("runner"), span.get("routine"), size): (span["before"], span["after"])
        for span in spans
        for size in range(span[f"from_{unit}"], span[f"to_{unit}"] + 1)
    }


def _real_modes(before: Json, after: Json, kind: str, unit: str) -> dict[Any, tuple[str | None, str | None]]:
    old, new = (_each(side["coverage"][kind], unit) for side in (before, after))
    keys = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return {key: ((old.get(key) or [None])[0], (new.get(key) or [None])[0]) for key in keys}


def _each(rows: list[Json], unit: str) -> dict[Any, list[Any]]:
    return {
        (row.get("runner"), row.get("routine"), size): [
            row["mode"], row["padded_to_tokens"], row.get("padded_to_requests"), row.get("query_len")
        ]
        for row in rows
        for size in range(row[f"from_{unit}"], row[f"to_{unit}"] + 1)
    }  # fmt: skip


def _told(document: Json) -> Json:
    values = {path: one["value"] for path, one in document["resolved"].items()}
    memory = document["memory"] and {key: document["memory"][key] for key in ("totals", "fits", "fits_at_start")}
    rows = [row for row in document["runners"] if row["graphs"]]
    parts = ("engine", "device", "coverage", "launch")
    return {"values": values, "memory": memory, "rows": rows, **{part: document[part] for part in parts}}


@some
@given(specs(), specs())
def test_any_two_plans_compare(one: Json, other: Json) -> None:
    """Both ways the same differences, and none of a plan with itself."""
    try:
        before, after = (compiled(spec).to_json() for spec in (one, other))
    except SpecError as error:
        assume({found.code for found in error.diagnostics if found.severity is Severity.ERROR} != {"R101"})
        raise

    there, back = compared(before, after, ("a", "b")), compared(after, before, ("b", "a"))

    assert compared(before, before, ("a", "a"))["same"]
    assert there["same"] == back["same"] == (_told(before) == _told(after))
    assert _unordered(there) == _unordered(back, turned=True)


def _unordered(stated: Json, *, turned: bool = False) -> Json:
    """Without the order, and where ``turned`` with the sides swapped."""
    swap = {"before": "after", "after": "before", "added_sizes": "dropped_sizes", "dropped_sizes": "added_sizes"}
    pads = {"less": "more", "more": "less"}

    def turn(row: Any) -> Any:
        if not turned or not isinstance(row, dict):
            return row
        named = {swap.get(key, key): value for key, value in row.items()}
        return {**named, **({"padding": pads.get(row["padding"], row["padding"])} if "padding" in row else {})}

    rows = [*stated["runners"], *stated["memory"], *stated["resolved"], *stated["launch"]["argv"]]
    rows += [row for part in stated["coverage"].values() for row in part]
    return {json.dumps(turn(row), sort_keys=True): True for row in rows if "unit" not in row}


def test_the_hint_and_the_migration_are_one_rule() -> None:
    """Where all limits are written, S202 names what `migrate` writes."""
    spec: Json = {
        "servespec": 1,
        "model": {"id": "tests/models/qwen3-8b"},
        "hardware": {"gpu": "h200"},
        "scheduler": {"max_num_seqs": 20, "max_num_batched_tokens": 256},
        "compilation": {"cudagraph_capture_sizes": [1, 3, 8, 32, 300]},
        "engine": {"version": "0.33.0"},
    }
    plan = compiled(spec)
    hint = next(one.help for one in plan.diagnostics if one.code == "S202")

    text = migration_of(plan.resolution).text

    section = read_source(text, "spec.yaml").data["compilation"]
    assert set(section) <= set(NEW_FIELDS)
    assert all(f"`{name}: {value}`" in hint for name, value in section.items())
    assert section["decode_cudagraph_capture_request_sizes"] == [1, 3, 8, 20]


def test_a_refusal_after_is_about_the_migrated_text() -> None:
    """Without any decode graph left, the mode that captures decode alone has nothing to capture."""
    spec: Json = {
        "servespec": 1,
        "model": {"id": "tests/models/qwen3-8b"},
        "hardware": {"gpu": "h200"},
        "scheduler": {"max_num_seqs": 20},
        "speculative": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
        "compilation": {"cudagraph_capture_sizes": [1, 2], "cudagraph_mode": "FULL_DECODE_ONLY"},
        "engine": {"version": "0.33.0"},
    }

    with pytest.raises(RefusedAfterError) as refused:
        migrated(read_source(json.dumps(spec), "spec.yaml"), replace(Options(), with_stock=False))

    assert {one.code for one in refused.value.diagnostics} >= {"S207"}
    assert "decode_cudagraph_capture_request_sizes" in refused.value.text
    compile_request(read_source(json.dumps(spec), "spec.yaml"), Options())

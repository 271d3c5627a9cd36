"""Whatever reads a plan, on plans of every kind: it takes each of them, and says of it what the plan says."""

import json
import shlex
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from servespec.compiler.comparison import compared, graphs_compared
from servespec.compiler.comparison_schema import COMPARISON_SCHEMA
from servespec.compiler.container import container_of, official_image
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.graphs.hand_off import manager_class
from servespec.compiler.graphs.managers import managers_of, own_shapes
from servespec.compiler.memory.measurement import Measurement, differing_rows, measurement_of
from servespec.compiler.parallel_ranks import replica_ranks, stage_ranks
from servespec.compiler.plan import PLAN_SCHEMA, Plan
from servespec.compiler.record_schema import RECORD_SCHEMA
from servespec.diagnostics import Severity, SpecError
from servespec.render.comparison_text import comparison_text
from servespec.render.explanation import explanation
from servespec.render.launch_compose import launch_compose
from servespec.render.launch_dockerfile import dockerfile
from servespec.render.launch_script import launch_argv, launch_script
from servespec.render.page.spans import groups_of, tiers_of
from servespec.render.plan_markdown import MOST_CHARACTERS, plan_markdown
from servespec.render.plan_summary import graph_count, steps_of
from servespec.render.plan_tables import beside_stock_table, graphs_table, sizes_table
from servespec.render.plan_text import plan_text
from servespec.render.serve_text import capture_line
from servespec.runtime.capture import Verdict
from servespec.runtime.capture_log import bar_of, log_capture, planned_counts
from servespec.runtime.capture_report import graph_of, report_capture
from servespec.runtime.extension.captured_shapes import CapturedShape
from servespec.runtime.extension.replay_batches import batches_for
from servespec.runtime.extension.report import report_name
from servespec.runtime.extension.step_batches import Limits
from servespec.runtime.extension.step_times_batches import Wanted, timed_batches
from servespec.runtime.gather import Options, model_folders
from servespec.runtime.record import Measured, record_of
from servespec.runtime.verification_document import row_of
from tests.plans import Json, compiled, spec_of
from tests.runtime.test_capture_report import left, report_of
from tests.strategies import EXTENSION, specs, verifies_adaptively

pytestmark = pytest.mark.usefixtures("quiet_shell")

_TOGETHER: tuple[Json, ...] = ({}, {}, {"tensor_parallel_size": 2})
_REPLICAS: Json = {"data_parallel_size": 2}
_STAGES: tuple[Json, ...] = ({"pipeline_parallel_size": 2},)


@st.composite
def every_kind(draw: st.DrawFn) -> Json:
    """Specs over several devices and of any mode, half of them under the extension, which alone takes every kind.

    Adaptive verification needs full graphs, and the batches of all devices in one place; replicas take no tiers.
    """
    spec = draw(specs(engine=draw(st.sampled_from((None, EXTENSION)))))
    is_adaptive = verifies_adaptively(spec["speculative"])
    has_tiers = "num_speculative_tokens_per_batch_size" in (spec["speculative"] or {})
    apart = () if is_adaptive else _STAGES if has_tiers else (_REPLICAS, *_STAGES)
    parallel = draw(st.sampled_from((*_TOGETHER, *apart)))
    modes = (None, "FULL", "FULL_DECODE_ONLY") if is_adaptive else (None, None, "FULL", "PIECEWISE", "NONE")
    mode = draw(st.sampled_from(modes))
    return {
        **spec,
        "hardware": {**spec["hardware"], "count": 2 if parallel else 1},
        "parallel": parallel,
        "compilation": {**spec["compilation"], **({} if mode is None else {"cudagraph_mode": mode})},
    }


def plan_of(spec: Json) -> Plan:
    try:
        return compiled(spec, Options(with_stock=True))
    except SpecError as error:
        refused = {finding.code for finding in error.diagnostics if finding.severity is Severity.ERROR}
        assume(not refused & REFUSALS)
        raise


REFUSALS = {"R101", "S207"}
"""The engine refuses it, or the mode contradicts the sizes."""


def form(plan: Plan, document: Json, folder: Path) -> None:
    """Valid, with a name for each row, and no batch twice in one routine."""
    read = json.loads(json.dumps(document))
    jsonschema.Draft202012Validator(PLAN_SCHEMA).validate(read)
    for graphs in (document, document["stock"]):
        names = [row_name(row) for row in graphs["runners"]]
        assert len(names) == len(set(names))
        batches = [
            (one["runner"], one["routine"], n)
            for one in graphs["coverage"]["decode"]
            for n in range(one["from_requests"], one["to_requests"] + 1)
        ]
        assert len(batches) == len(set(batches))
    assert graph_count(document) == len(plan.graphs.shapes)


def row_name(row: Json) -> tuple[Any, ...]:
    return (row["runner"], row["routine"], row["query_len"], row["num_speculative_tokens"])


def text(plan: Plan, document: Json, folder: Path) -> None:
    """Every row of graphs is a line, and every way in which some step runs is told."""
    lines = plan_text(document).splitlines()
    cells = [line.split() for line in lines]

    for row in document["runners"]:
        assert [row["runner"], row["routine"], row["mode"]] in [one[:3] for one in cells]
    assert all(steps.words in "\n".join(lines) for steps in steps_of(document))
    in_full = plan_text(document, details=True)
    assert all(", ".join(map(str, row["sizes"])) in in_full for row in document["runners"])


def markdown(plan: Plan, document: Json, folder: Path) -> None:
    said = plan_markdown(document)

    assert len(said) <= MOST_CHARACTERS
    assert "Left out" in said or all(f"| {row['routine']} |" in said for row in document["runners"])
    for table in (graphs_table(document), sizes_table(document)):
        assert all(len(row) == len(table.headers) for row in table.rows)
    assert len(graphs_table(document).rows) == len(document["runners"]) + len(document["stock"]["runners"])
    if document["memory"] is not None:
        assert beside_stock_table(document["memory"], document["stock"]["memory"]).rows


def page(plan: Plan, document: Json, folder: Path) -> None:
    """Its charts leave out no batch, and its tiers are every load once."""
    for graphs in (document, document["stock"]):
        groups = list(groups_of(graphs))
        drawn = sum(len(group.spans(graphs)) for group in groups)
        assert drawn == len(graphs["coverage"]["decode"]) + len(graphs["coverage"]["prefill"])
        assert all(group.name for group in groups)
        padding = [span.most_padding_tokens for group in groups for span in group.spans(graphs)]
        assert all(tokens is None or tokens >= 0 for tokens in padding)
        tiers = tiers_of([span for group in groups if group.is_target_decode for span in group.spans(graphs)])
        loads = [n for tier in tiers for n in range(tier.first, tier.last + 1)]
        assert loads == list(range(1, plan.resolution.frame.max_num_seqs + 1))
        assert all(tier.num_speculative_tokens == tier.query_len - 1 for tier in tiers)


def beside_stock(plan: Plan, document: Json, folder: Path) -> None:
    differences = graphs_compared(document["stock"], document, ("stock", "plan"))

    jsonschema.Draft202012Validator(COMPARISON_SCHEMA).validate(differences)
    said = comparison_text(differences, details=True)
    assert all(row["routine"] in said for row in differences["runners"])


def record(plan: Plan, document: Json, folder: Path) -> None:
    """A launch that captured the plan: each row as planned, the record no other plan, its memory that of the plan."""
    spec = plan.resolution.request.spec
    for replica, rank in product(range(spec.parallel.data_parallel_size), range(replica_ranks(spec))):
        left(folder, report_of_rank(plan, rank), report_name(replica, rank))
    capture = report_capture(plan, folder)
    written = json.loads(json.dumps(record_of(plan, Measured(started=0.0, capture=capture))))

    jsonschema.Draft202012Validator(RECORD_SCHEMA).validate(written)
    assert capture.findings == ()
    assert [row.verdict for row in capture.rows] == [Verdict.AS_PLANNED] * len(plan.graphs.rows)
    assert compared(document, written, ("plan", "record"))["same"]
    full = [(row, one) for row, one in zip(plan.graphs.rows, capture.rows, strict=True) if row.mode is FULL]
    taken = [cost.pool_bytes for _, one in full for cost in one.costs[-1:] if cost is not None]
    assert taken == [sum(shape.tokens for shape in plan.graphs.shapes if row.holds(shape)) for row, _ in full]
    assert capture_line(capture, plan)
    measured = measurement_of(written, "record.json")
    assert isinstance(measured, Measurement)
    is_whole = spec.parallel.pipeline_parallel_size == 1
    assert not is_whole or differing_rows(measured, document["runners"]) == ()


FULL = CudaGraphMode.FULL


def report_of_rank(plan: Plan, rank: int) -> Json:
    """Only the last pipeline stage has the drafter."""
    spec = plan.resolution.request.spec
    drafts = rank >= replica_ranks(spec) - stage_ranks(spec)
    return {**report_of(plan, drafts=drafts), "remedies": {str(remedy): 1 for remedy in plan.lowered.remedies}}


def log(plan: Plan, document: Json, folder: Path) -> None:
    """The bars of a log that captured the plan."""
    planned = planned_counts(plan)
    bars = [
        f"Capturing {name}{' ' if name else ''}CUDA graphs ({mode}): 100%|x| {count}/{count} [00:01]"
        for (name, mode), count in planned.items()
    ]
    (folder / "engine.log").write_text("\n".join(bars), encoding="utf-8")
    capture = log_capture(plan, folder / "engine.log")

    assert capture.findings == ()
    assert {row.verdict for row in capture.rows} <= {Verdict.AS_PLANNED}
    method = plan.resolution.drafting.method.value or ""
    for row, one in zip(plan.graphs.rows, capture.rows, strict=True):
        assert one.graphs in ((None,), (row.graphs,))
        assert bar_of(row, method) in planned


def captured_shapes(plan: Plan) -> Iterator[CapturedShape]:
    """As the engine's managers would list them."""
    frame = plan.resolution.frame
    for manager in managers_of(frame):
        for shape in own_shapes(manager, plan.graphs.shapes):
            kind = manager_class(frame, manager)
            yield CapturedShape(kind, manager.query_len, str(shape.mode), *graph_of(shape))


def verification(plan: Plan, document: Json, folder: Path) -> None:
    """Every graph that `verify` and `steps` would meet is of a row of the plan."""
    frame, shapes = plan.resolution.frame, list(captured_shapes(plan))
    counts: dict[tuple[str, str, int], int] = {}
    for shape in shapes:
        key = row_of(frame, shape)
        counts[key] = counts.get(key, 0) + 1
    planned: dict[tuple[str, str, int], int] = {}
    for row in plan.graphs.rows:
        name = (str(row.runner), str(row.routine), row.query_len or 0)
        planned[name] = planned.get(name, 0) + row.graphs

    assert counts == planned
    limits = Limits(
        max_requests=frame.max_num_seqs,
        max_batched_tokens=frame.max_num_batched_tokens,
        max_model_len=8192,
        drafts=frame.num_speculative_tokens,
    )
    for batch in batches_for(shapes, limits):
        assert batch.tokens <= frame.max_num_batched_tokens
    for batch in timed_batches(shapes, limits, Wanted(requests=None, tokens=None, repeats=1)):
        assert len(batch.decodes) <= frame.max_num_seqs


def launch(plan: Plan, document: Json, folder: Path) -> None:
    """Each form of it starts the words of the plan."""
    folders = model_folders(plan)
    words = document["launch"]["argv"]
    container = container_of(plan, folders)
    script = launch_script(document, "spec.yaml", folders)
    service = YAML(typ="safe", pure=True).load(launch_compose(document, "spec.yaml", container))["services"]["vllm"]

    assert json.loads(launch_argv(document)) == words
    assert shlex.split(script[script.index("\nexec ") :].replace("\\\n", ""))[1:] == words
    assert [word.replace("$$", "$") for word in service["command"]] == list(container.argv)[-len(service["command"]) :]
    assert official_image(plan) in dockerfile(official_image(plan), "1.0.0")


def explained(plan: Plan, document: Json, folder: Path) -> None:
    for finding in document["diagnostics"]:
        page = explanation(finding["code"])
        assert page.found
        assert finding["name"] in page.text
        assert "`None`" not in finding["message"] + finding["help"]


Consumer = Callable[[Plan, Json, Path], None]
CONSUMERS: tuple[Consumer, ...] = (
    form, text, markdown, page, beside_stock, record, log, verification, launch, explained,
)  # fmt: skip


@given(spec=every_kind())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_every_consumer_takes_every_plan(spec: Json, tmp_path_factory: pytest.TempPathFactory) -> None:
    consume(plan_of(spec), tmp_path_factory.mktemp("launch"))


def consume(plan: Plan, folder: Path) -> None:
    document = plan.to_json()
    for consumer in CONSUMERS:
        consumer(plan, document, folder)


MICROBATCHES = {
    "data_parallel_size": 2,
    "enable_expert_parallel": True,
    "enable_dbo": True,
    "all2all_backend": "deepep_low_latency",
}


@pytest.mark.parametrize("mode", ["FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL"])
def test_every_consumer_takes_graphs_of_microbatches(mode: str, tmp_path: Path) -> None:
    """Few random specs would divide their batches."""
    spec = spec_of(
        "qwen3-30b-a3b",
        "h200",
        hardware={"gpu": "h200", "count": 2},
        parallel=MICROBATCHES,
        scheduler={"max_num_seqs": 64},
        compilation={"cudagraph_mode": mode},
        engine={"version": "0.33.0", "model_runner": "v2", "lowering": "extension"},
    )
    plan = plan_of(spec)

    assert any(shape.ubatches > 1 for shape in plan.graphs.shapes)
    consume(plan, tmp_path)

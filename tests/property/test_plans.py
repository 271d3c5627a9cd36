"""What holds for every plan: a partition of all batches, the same bytes, and settings that do what they say."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from servespec.compiler.graphs.coverage import DecodeRange, Ran
from servespec.compiler.graphs.dispatch import engine_dispatcher, split_dispatcher
from servespec.compiler.graphs.managers import GraphFrame
from servespec.compiler.graphs.shape import Routine, Runner
from servespec.compiler.lower import Lowering
from servespec.compiler.plan import PLAN_SCHEMA, Plan
from servespec.diagnostics import Severity, SpecError
from tests.every_batch import Subject, every_decode, unrolled
from tests.plans import REPOSITORY, Json, compiled, full_requests, model_folder, planned, spec_of
from tests.strategies import EXTENSION, specs

pytestmark = pytest.mark.usefixtures("quiet_shell")

some = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def plan_of(spec: Json) -> Plan:
    """The plan; a spec that the engine would refuse is another example, one that we refuse a fault of the test."""
    try:
        return compiled(spec)
    except SpecError as error:
        assume({finding.code for finding in error.diagnostics if finding.severity is Severity.ERROR} != {"R101"})
        raise


# Form


@some
@given(specs())
def test_the_json_form_is_valid_and_the_same_each_time(spec: Json) -> None:
    document = plan_of(spec).to_json()

    assert json.dumps(plan_of(spec).to_json()) == json.dumps(document)
    jsonschema.Draft202012Validator(PLAN_SCHEMA).validate(json.loads(json.dumps(document)))


@pytest.mark.parametrize("case", ["tiers-h200", "dspark-deepseek-v4-gb200", "errors-names-and-types"])
def test_the_bytes_do_not_depend_on_the_hash_seed(case: str) -> None:
    folder = REPOSITORY / "tests" / "golden" / "cases" / case
    words = [sys.executable, "-m", "servespec", "plan", "spec.yaml", "--format", "json", "--against", "stock"]

    outputs = {
        subprocess.run(
            words, cwd=folder, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, timeout=60
        ).__dict__["stdout" if "errors" not in case else "stderr"]
        for seed in ("0", "1", "4711")
    }

    assert len(outputs) == 1
    assert outputs != {b""}


@some
@given(specs())
def test_stock_memory_is_that_of_the_spec_without_the_new_fields(spec: Json) -> None:
    is_legacy = spec["compilation"].keys() & {"cudagraph_capture_sizes", "max_cudagraph_capture_size"}
    bare = {**at_every_load(spec), "engine": {"version": "0.33.0", "lowering": "none"}}
    unmodified = plan_of(bare if is_legacy else {**bare, "compilation": {}})
    plan_of(spec)

    assert planned(spec)["stock"]["memory"] == unmodified.to_json()["memory"]


def at_every_load(spec: Json) -> Json:
    """The unmodified engine verifies adaptively at every load or at none."""
    section = spec["speculative"] or {}
    if "load_aware" not in section:
        return spec
    kept = {name: value for name, value in section.items() if name != "load_aware"}
    return {**spec, "speculative": {**kept, "enable_adaptive_verification": True}}


# Coverage


@some
@given(specs())
def test_prefill_ranges_cover_every_step_once(spec: Json) -> None:
    plan = plan_of(spec)
    ranges = plan.graphs.coverage.prefill

    edges = [(r.from_tokens, r.to_tokens) for r in ranges]

    assert [first for first, _ in edges] == [1, *(last + 1 for _, last in edges[:-1])]
    assert edges[-1][1] == plan.resolution.frame.max_num_batched_tokens


ONE_TIER_BELOW_K = spec_of(
    "qwen3-8b",
    "gb200",
    scheduler={"max_num_seqs": 8, "max_num_batched_tokens": 64},
    speculative={
        "method": "eagle3",
        "model": model_folder("eagle3-draft"),
        "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": [[1, 8, 1]],
    },
)


@some
@given(specs())
@example(ONE_TIER_BELOW_K)
def test_decode_ranges_say_of_every_batch_once_what_dispatch_does(spec: Json) -> None:
    """Ranges are found by looking only at their edges; here every number of requests is looked at."""
    plan = plan_of(spec)
    ours = plan.lowered.lowering in (Lowering.EXTENSION, Lowering.NATIVE)
    dispatcher_of = split_dispatcher if ours else engine_dispatcher
    ranges = list(unrolled(plan.graphs.coverage.decode))

    assert dict(ranges) == every_decode(Subject(plan.resolution.frame, plan.graphs.shapes, dispatcher_of))
    assert len(ranges) == len(dict(ranges))


@some
@given(specs())
def test_no_batch_is_padded_down(spec: Json) -> None:
    plan = plan_of(spec)

    for covered in plan.graphs.coverage.decode:
        assert covered.padded_to_requests is None or covered.padded_to_requests >= covered.to_requests
        needed = widest_tokens(covered, plan.resolution.frame)
        assert covered.padded_to_tokens is None or covered.padded_to_tokens >= needed


def widest_tokens(covered: DecodeRange, frame: GraphFrame) -> int:
    """Of the largest batch of a range; where drafts are chosen, within the engine's limit of a step."""
    requests, tokens = covered.to_requests, covered.to_requests * covered.query_len
    if covered.routine not in CHOOSING:
        return tokens
    limit = frame.verify_limit_tokens
    verified = tokens if limit is None else max(requests, min(tokens, limit))
    return verified if covered.runner is Runner.TARGET else min(verified, tokens - 1)


CHOOSING = (Routine.ADAPTIVE_VERIFICATION, Routine.STEP0_PIECEWISE, Routine.BLOCK_PIECEWISE)
"""The target's steps of chosen drafts, and those of drafters after them: there at least one draft is left out."""


# Settings do what they say


def with_fields(spec: Json, **fields: Any) -> Json:
    return {**spec, "engine": EXTENSION, "compilation": {**spec["compilation"], **fields}}


def without(spec: Json, *names: str) -> Json:
    return {**spec, "compilation": {k: v for k, v in spec["compilation"].items() if k not in names}}


@some
@given(specs(legacy=False), st.integers(1, 160), st.integers(1, 160))
def test_a_larger_decode_cap_covers_no_less(spec: Json, one: int, other: int) -> None:
    base = without(spec, "decode_cudagraph_capture_request_sizes")
    small, large = (
        plan_of(with_fields(base, max_decode_cudagraph_capture_requests=cap)).to_json() for cap in sorted((one, other))
    )

    for routine in ("uniform_decode", "step0_uniform", "later_steps", "block"):
        assert full_requests(small, routine) <= full_requests(large, routine)


@some
@given(specs(legacy=False), st.integers(1, 4096), st.integers(1, 4096))
def test_a_larger_prefill_cap_covers_no_less(spec: Json, one: int, other: int) -> None:
    base = without(spec, "prefill_cudagraph_capture_token_sizes")
    small, large = (
        plan_of(with_fields(base, max_prefill_cudagraph_capture_tokens=cap)).to_json() for cap in sorted((one, other))
    )

    assert covered_tokens(small) <= covered_tokens(large)
    for routine in ("uniform_decode", "block"):
        assert full_requests(small, routine) <= full_requests(large, routine)


def covered_tokens(plan: Json) -> int:
    """The largest step with a prefill that runs from a graph; the ranges below are covered too."""
    ranges = plan["coverage"]["prefill"]
    return max((r["to_tokens"] for r in ranges if r["mode"] != "EAGER"), default=0)


@some
@given(specs(legacy=False), st.integers(1, 2048), st.integers(1, 2048))
def test_a_smaller_budget_captures_no_more(spec: Json, one: int, other: int) -> None:
    small, large = (
        plan_of(with_fields(spec, max_decode_cudagraph_capture_tokens=budget)) for budget in sorted((one, other))
    )

    for routine in Routine:
        counts = [sum(s.routine is routine for s in plan.graphs.shapes) for plan in (small, large)]
        assert counts == sorted(counts)


@some
@given(specs(legacy=False), st.integers(1, 2048))
def test_no_uniform_decode_graph_exceeds_the_budget(spec: Json, budget: int) -> None:
    plan = plan_of(with_fields(spec, max_decode_cudagraph_capture_tokens=budget))

    assert all(s.tokens <= budget for s in plan.graphs.shapes if s.query_len is not None)


@some
@given(specs(legacy=False))
def test_empty_lists_disable_their_kind(spec: Json) -> None:
    bare = without(spec, *spec["compilation"])
    no_decode = plan_of(with_fields(bare, decode_cudagraph_capture_request_sizes=[]))
    no_prefill = plan_of(with_fields(bare, prefill_cudagraph_capture_token_sizes=[]))

    assert {str(s.mode) for s in no_decode.graphs.shapes} <= {"PIECEWISE"}
    assert {str(s.mode) for s in no_prefill.graphs.shapes} <= {"FULL"}


@some
@given(specs())
def test_the_union_list_holds_every_captured_token_count(spec: Json) -> None:
    plan = plan_of({**spec, "engine": EXTENSION})

    captured = tuple(sorted({shape.tokens for shape in plan.graphs.shapes}))
    assert (plan.lowered.token_list or ()) == captured


# Help helps

_ADVICE = re.compile(r"write `(max_\w+): (\d+)`")


@some
@given(specs(legacy=False, engine=EXTENSION))
def test_following_the_help_leaves_no_decode_batch_eager(spec: Json) -> None:
    """Each finding names one change; a few rounds of them cover everything that was found eager."""
    plan = plan_of(spec)

    for _ in range(4):
        changes = dict(advice(plan))
        if not changes:
            break
        bare = without(spec, "decode_cudagraph_capture_request_sizes")
        spec = with_fields(bare, **changes)
        plan = plan_of(spec)

    # Decode graphs that `[]` or the mode takes away are not missed.
    if plan.resolution.frame.mode.has_full():
        assert [r for r in plan.graphs.coverage.decode if r.runner is Runner.TARGET and r.ran is Ran.EAGER] == []


def advice(plan: Plan) -> Iterator[tuple[str, int]]:
    for finding in plan.diagnostics:
        if finding.code == "P101":
            match = _ADVICE.search(finding.help)
            largest = plan.resolution.frame.max_num_seqs
            yield (match[1], int(match[2])) if match else ("max_decode_cudagraph_capture_requests", largest)


@some
@given(specs(legacy=False, engine=EXTENSION))
def test_following_the_help_covers_every_prefill(spec: Json) -> None:
    plan = plan_of(spec)
    found = [finding.help for finding in plan.diagnostics if finding.code in ("P106", "P107")]
    matches = [match for match in map(_ADVICE.search, found) if match]

    better = planned(with_fields(spec, **{match[1]: int(match[2]) for match in matches}))

    if matches:
        assert {r["mode"] for r in better["coverage"]["prefill"]} <= {"PIECEWISE", "FULL"}
